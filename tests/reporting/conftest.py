"""A report made by hand, with everything in it that the model can say; and the files of runs."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from maar.core.seals import file_seal, seal_line, sealed
from maar.data.images import data_uri
from maar.records.checks import spans
from maar.records.stores import key_of
from maar.reporting.model import (
    Axis,
    Band,
    Cell,
    Column,
    Evidence,
    Figure,
    Gallery,
    GalleryItem,
    Notice,
    Picture,
    Report,
    Section,
    Series,
    Table,
)

NASTY = "<script>alert('a & b')</script>_%$"
"""A run's name: whoever renders has to escape it."""


def evidence(run: str) -> Evidence:
    return Evidence(
        source=f"runs/{run}/certify/eps-0.1-0123abcd",
        images=1000,
        of=10_000,
        split="test",
        eps="0.1",
        preset="complete",
        verifiers=("misclassified", "crown", "bab"),
        seconds=123.4,
        profile="cpu",
        seeds=(0, 1, 2),
        weights="89abcdef",
        hardware="AMD EPYC, 2 threads",
        command=f"maar certify runs/{run} --limit 1000",
    )


def share(value: float, run: str, digits: int = 1, **more) -> Cell:
    return Cell(f"{100 * value:.{digits}f}", value, evidence(run), **more)


def comparison() -> Table:
    names = ("method", "eps", "ACC", "ACC published", "CR", "CR published", "difference")
    rows = [
        (
            Cell(method, method, chips=()),
            Cell("0.1", 0.1),
            share(acc, method),
            Cell(f"{100 * acc + 0.2:.1f}", acc + 0.002, note="the paper's rerun"),
            Cell(f"{100 * cr:.1f} ± 0.2", cr, evidence(method), "strong", mark=(cr + 0.005, cr)),
            Cell(f"{100 * cr + 0.5:.1f}", cr + 0.005, note="Table 1"),
            Cell("-0.5", -0.005, tone="bad"),
        )
        for method, acc, cr in (("maar", 0.989, 0.968), ("colt", 0.99, 0.966), (NASTY, 0.97, 0.9))
    ]
    columns = [Column(name, numeric=name != "method", help=f"{name} in %") for name in names]
    return Table(
        "comparison-mnist",
        "MNIST, eps 0.1: published and measured",
        tuple(columns),
        tuple(rows),
        "Mean and standard deviation over three seeds.",
        ("Published: the paper's Table 1.", "CR of COLT is 58.6 in Table 1 and 59.6 in the text."),
    )


def runs() -> Table:
    columns = (
        Column("run"),
        Column("method", filterable=True),
        Column("state", filterable=True),
        Column("ACC", numeric=True),
        Column("CR", numeric=True),
        Column("seconds", numeric=True),
        Column("differs in"),
    )
    rows = []
    for i, name in enumerate(("maar-seed0", "maar-seed1", "colt-seed0", NASTY)):
        state = "interrupted" if i == 3 else "finished"
        chips = (f"seed = {i}", f"method.lam = {6 - i}")
        rows.append(
            (
                Cell(name, name),
                Cell(name.split("-")[0], name.split("-")[0]),
                Cell(state, state, tone="good" if state == "finished" else "muted"),
                share(0.98 + i / 1000, name),
                Cell() if i == 3 else share(0.95 + i / 500, name),
                Cell(f"{1000 + 9.5 * i:,.0f}", 1000 + 9.5 * i),
                Cell(", ".join(chips), ", ".join(chips), chips=chips),
            )
        )
    return Table("runs", "Runs", columns, tuple(rows), is_long=True)


def figures() -> tuple[Figure, ...]:
    epochs = tuple(range(1, 11))
    curves = Figure(
        "curves-verified-error",
        "Verified error by epoch",
        "lines",
        Axis("epoch"),
        Axis("verified error", is_share=True),
        (
            Series("maar-seed0", epochs, tuple(0.2 / e for e in epochs), group="maar"),
            Series(
                NASTY,
                epochs,
                (*(0.3 / e for e in epochs[:6]), None, *(0.3 / e for e in epochs[7:])),
                group="colt",
                is_dashed=True,
            ),
        ),
        (Band(0.5, 4.5, "stage 1"), Band(4.5, 8.5, "stage 2"), Band(8.5, 10.5, "stage 3")),
        "Verified error is the success of an attack on training images, not a verifier's result.",
    )
    bars = Figure(
        "cr-over-eps",
        "Certified robustness over eps",
        "bars",
        Axis("eps", "category"),
        Axis("CR", is_share=True),
        (
            Series(
                "maar",
                ("0.05", "0.1", "0.2"),
                (0.98, 0.96, 0.5),
                (0.975, 0.95, 0.45),
                (0.985, 0.97, 0.55),
                ("1,000 images",) * 3,
                "maar",
            ),
            Series("colt", ("0.05", "0.1", "0.2"), (0.97, 0.95, None), group="colt"),
        ),
    )
    cascade = Figure(
        "cascade",
        "Who settled what",
        "stacked",
        Axis("certification", "category"),
        Axis("images"),
        tuple(
            Series(verifier, ("maar-seed0", NASTY), (count, 1000 - count))
            for verifier, count in (("crown", 900), ("bab", 80), ("open", 20))
        ),
    )
    return curves, bars, cascade


def galleries() -> tuple[Gallery, ...]:
    chance = np.random.default_rng(0)
    items = []
    for index in range(6):
        clean = chance.random((3 if index % 2 else 1, 28, 28))
        kinds = {"clean": clean, "adversarial": 1 - clean, "difference x10": clean**2}
        items.append(
            GalleryItem(
                "maar-seed0" if index < 5 else NASTY,
                index,
                "7" if index < 5 else NASTY,
                tuple(Picture(name, data_uri(image), 28, 28) for name, image in kinds.items()),
                (("answer", "9"), ("margin", "-0.031"), ("found by", "pgd")),
                evidence("maar-seed0"),
            )
        )
    return (
        Gallery("counterexamples", "Counterexamples", tuple(items), "Least changed first."),
        Gallery("least-robust", "Least robust certified images", tuple(items[:2])),
    )


def make_example() -> Report:
    """A report with every kind of block; `NASTY` wherever a user's name can stand."""
    return Report(
        title=f"A report on {NASTY}",
        made="2020-06-04 12:00 UTC",
        version="0.1.0",
        command="maar report runs -o report",
        sections=(
            Section("comparison", "Paper and measurement", (comparison(),)),
            Section("curves", "Training", figures()[:1], "Stages are shaded."),
            Section("certification", "Certification", figures()[1:]),
            Section("galleries", "Images", galleries()),
            Section("runs", "Runs", (runs(),)),
            Section("radius", "Radius", (), "No radius store was found."),
        ),
        notices=(
            Notice("warning", "Numbers of the reduced profile cpu: not the paper's training."),
            Notice("error", f"{NASTY}: metrics.jsonl has a line that is not JSON"),
            Notice("info", "maar-seed2 is still running"),
        ),
        facts=(("runs", "4"), ("certifications", "2")),
    )


def with_name(value, new: str):
    """The same with another name for `NASTY`, in texts within texts too."""
    if isinstance(value, str):
        return value.replace(NASTY, new)
    if isinstance(value, tuple):
        return tuple(with_name(item, new) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        changed = {name: with_name(getattr(value, name), new) for name in names}
        return dataclasses.replace(value, **changed)
    return value


@pytest.fixture(scope="session")
def example() -> Report:
    return make_example()


@pytest.fixture(scope="session")
def renamed(example):
    """The example with another name for `NASTY`."""
    return lambda new: with_name(example, new)


def write_run(
    path: Path,
    *,
    seed: int = 0,
    lam: float = 6.0,
    epochs=(2, 2),
    done: int = 4,
    has_valid: bool = True,
) -> Path:
    """The folder of a run with two stages, of which `done` epochs are over."""
    path.mkdir(parents=True)
    (path / "config.toml").write_text(
        f'# hash {"0123456789abcdef" * 4}\nname = "x"\ndata = "mnist"\nnetwork = "convmed"\n'
        f'eps = 0.1\nseed = {seed}\n[method]\nname = "maar"\nlam = {lam}\n'
        '[method.base]\nname = "colt"\n[train]\nlr = 0.001\n'
    )
    lines = []
    for stage, length in enumerate(epochs, 1):
        for epoch in range(1, length + 1):
            quality = 0.1 * stage + 0.01 * epoch + 0.001 * seed
            lines.append(
                {
                    "stage": stage,
                    "stages": len(epochs),
                    "epoch": epoch,
                    "epochs": length,
                    "eps": 0.12 - 0.01 * stage,
                    "loss": {"total": 1 - quality},
                    "train": {"accuracy": 0.65 + quality, "verified_error": 0.3 - quality},
                    "valid": {"accuracy": 0.7 + quality, "robust_accuracy": 0.6 + quality},
                    "seconds": 10.0,
                }
            )
            if not has_valid:
                del lines[-1]["valid"]
    text = "".join(json.dumps(line) + "\n" for line in lines[:done])
    (path / "metrics.jsonl").write_text(text)
    facts = {"cpu": "AMD EPYC", "threads": 2, "command": ["maar", "train", "demo"]}
    (path / "env.json").write_text(json.dumps(facts))
    if done == sum(epochs):
        result = {"test": {"accuracy": 0.9 + 0.01 * seed}}
        (path / "result.json").write_text(json.dumps(result))
    return path


def write_store(
    path: Path,
    verdicts: dict[str, int],
    *,
    eps: float = 0.1,
    network: str = "x",
    weights: str = "model",
    summary: bool = True,
    split: str = "test",
    preset: str = "complete",
) -> Path:
    """A certification with so many images of each verdict, the counterexamples included."""
    path.mkdir(parents=True)
    subject = {"weights": f"{abs(hash((network, weights))):064x}", "split": split, "eps": eps}
    key, images = key_of(subject), sum(verdicts.values())
    manifest = {
        "key": key,
        "format": 3,
        "subject": subject,
        "asked": spans(range(images + (not summary))),
        "network": network,
        "data": "mnist",
        "split": split,
        "images": 10_000,
        "verifiers": ["misclassified", "crown", "pgd"],
        "preset": preset,
        "source": {"weights": weights},
    }
    (path / "manifest.json").write_text(json.dumps(sealed(manifest)))
    by = {
        "misclassified": "misclassified",
        "falsified": "pgd",
        "verified": "crown",
        "unknown": None,
    }
    lines = []
    for verdict, number in verdicts.items():
        for _ in range(number):
            line = {"index": len(lines), "label": 7, "verdict": verdict, "by": by[verdict]}
            last = ["misclassified", "crown", "pgd"].index(by[verdict] or "pgd")
            times = dict([("misclassified", 0.1), ("crown", 1.0), ("pgd", 1.0)][: last + 1])
            line |= {"seconds": sum(times.values()), "times": times}
            if verdict in ("misclassified", "falsified"):
                line |= {"margin": -0.01 * len(lines) - 0.01, "target": 9}
            if verdict == "falsified":
                line["counterexample"] = _write_pair(path, len(lines))
            line |= {"lb": 0.5} if verdict == "verified" else {}
            line |= {"open": [9], "limit": None} if verdict == "unknown" else {}
            lines.append(line)
    last = _write_lines(path / "verdicts.jsonl", key, lines)
    if summary:
        images = len(lines)
        counts = {name: verdicts.get(name, 0) for name in (*by, "error")}
        share = {
            "accuracy": 1 - counts["misclassified"] / images,
            "certified": counts["verified"] / images,
            "certified_upper": 1 - (counts["misclassified"] + counts["falsified"]) / images,
            "certified_interval95": [0.1, 0.9],
        }
        verifiers = {
            "misclassified": {"reached": images, "falsified": counts["misclassified"]},
            "crown": {"reached": 5, "verified": counts["verified"], "falsified": 0},
            "pgd": {"reached": 2, "verified": 0, "falsified": counts["falsified"]},
        }
        content = {
            "eps": eps,
            "indices": f"0-{images - 1}",
            "images": images,
            "of": 10_000,
            "complete": True,
            **counts,
            **share,
            "verifiers": {name: {"seconds": 1.5, **row} for name, row in verifiers.items()},
            "seconds": 4.5,
            "lines": images,
            "last_seal": last,
        }
        (path / "summary.json").write_text(json.dumps(sealed(content)))
    return path


def _write_lines(path: Path, seal: str, lines: list[dict]) -> str:
    """Write sealed lines; return the last seal."""
    content = b""
    for line in lines:
        text, seal = seal_line(seal, line)
        content += text + b"\n"
    path.write_bytes(content)
    return seal


def write_radii(path: Path, radii: dict[float, float | None]) -> Path:
    """A search of radii: proved up to -> broken at."""
    path.mkdir(parents=True)
    subject = {"weights": "a" * 64, "split": "test", "largest": 0.5, "tolerance": 0.001}
    manifest = {"subject": subject, "network": "net.onnx", "data": "cifar10", "split": "test"}
    manifest |= {"key": key_of(subject), "format": 3, "images": 10_000}
    manifest |= {"verifiers": ["pgd", "crown"], "asked": spans(range(len(radii)))}
    (path / "manifest.json").write_text(json.dumps(sealed(manifest)))
    lines = []
    for index, (lower, upper) in enumerate(radii.items()):
        line = {"index": index, "label": 3, "verdict": "found", "lower": lower, "upper": upper}
        line |= {"lower_by": "crown" if lower else None, "upper_by": "pgd", "target": 5}
        lines.append({**line, "margin": -0.02, "seconds": 1.0})
        if upper is not None:
            lines[-1]["counterexample"] = _write_pair(path, index, channels=3)
    last = _write_lines(path / "radii.jsonl", key_of(subject), lines)
    summary = {"largest": 0.5, "images": len(radii), "lines": len(lines), "last_seal": last}
    (path / "summary.json").write_text(json.dumps(sealed(summary)))
    return path


def _write_pair(path: Path, index: int, channels: int = 1) -> str:
    """Write a counterexample; return the hash that its line names."""
    (path / "counterexamples").mkdir(exist_ok=True)
    x = np.full((channels, 4, 5), 0.5, np.float32)
    x_adv = x.copy()
    x_adv[:, 0, 0] += 0.05
    file = path / "counterexamples" / f"{index}.npz"
    np.savez(file, x=x, x_adv=x_adv, label=7, target=9)
    return file_seal(file.read_bytes())


@pytest.fixture(scope="session")
def make_run():
    return write_run


@pytest.fixture(scope="session")
def make_store():
    return write_store


@pytest.fixture(scope="session")
def make_radii():
    return write_radii
