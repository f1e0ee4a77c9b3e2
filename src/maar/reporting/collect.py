"""What there is to report on: runs, certifications, radii and evaluations found below some paths.

    RUN                  config.toml, metrics.jsonl, result.json, env.json
      certify/eps-…/     manifest.json, verdicts.jsonl, counterexamples/, summary.json
      radius-…/          manifest.json, radii.jsonl, counterexamples/, summary.json
      evaluate-….json    latent robustness
    certs/NAME           the same three of a network without a run
    NAME.json            an experiment of `maar reproduce`

Nothing here knows how a report looks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from maar.core.eps import Eps
from maar.core.errors import MaarError, UsageError
from maar.core.files import is_locked
from maar.core.seals import BrokenSeal, file_seal, holds, open_line
from maar.reporting.read import Object, Reader, count, number, table, word, words

VERDICTS = ("misclassified", "falsified", "verified", "unknown", "error")
MODEL = "model"
"""The weights at the end of a run."""
SEALED = 3
"""The first format of stores with seals."""
SHARES = ("certified", "certified_upper")
MOST = 10_000_000
"""Images in a data set: a damaged file that names more must not fill the memory."""


@dataclass(frozen=True, eq=False)
class Store:
    """A certification or a search of radii: its folder, and what its manifest says."""

    path: Path
    run: str
    """The run's name; of a network without a run, the network's."""
    network: str
    weights: str
    """`model`, or a stage's such as `stage-1-last`."""
    hash: str
    data: str
    classes: tuple[str, ...]
    """Names in label order; empty where the manifest has none."""
    prepared: str
    """What was done to the images; empty for nothing."""
    split: str
    preset: str
    verifiers: tuple[str, ...]
    summary: Object
    """As it was written, or counted from the lines while there is none yet."""
    lines: dict[int, Object]
    """By index of the image."""

    @property
    def images(self) -> int:
        """How many were asked for."""
        return count(self.summary, "images")

    @property
    def is_complete(self) -> bool:
        """Whether every image that was asked for has an answer."""
        return self.summary.get("complete") is True

    @property
    def seconds(self) -> float:
        """Of all verifiers."""
        return number(self.summary, "seconds") or 0.0

    @property
    def eps(self) -> float:
        """The radius of a certification."""
        return number(self.summary, "eps") or 0.0

    def counterexample(self, index: int) -> Path:
        """Where that of an image is, or would be."""
        return self.path / "counterexamples" / f"{index}.npz"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A file of `maar evaluate`."""

    path: Path
    run: str
    weights: str
    content: Object


@dataclass(frozen=True, eq=False)
class Run:
    """The folder of a run, or, without a configuration, what is known of one network."""

    path: Path
    name: str
    state: str
    """finished, running, interrupted, damaged; "" of a network without a run."""
    config: Object = field(default_factory=dict)
    hash: str = ""
    metrics: list[Object] = field(default_factory=list)
    result: Object = field(default_factory=dict)
    env: Object = field(default_factory=dict)
    certifications: tuple[Store, ...] = ()
    radii: tuple[Store, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()

    @property
    def seconds(self) -> float:
        """Of training."""
        return sum(number(line, "seconds") or 0.0 for line in self.metrics)

    @property
    def method(self) -> str:
        """Its name, with that of what it is built around."""
        method = table(self.config, "method")
        base = word(table(method, "base"), "name")
        name = word(method, "name")
        return f"{name}({base})" if base else name

    @property
    def data(self) -> str:
        """The data set's name."""
        found = [store.data for store in (*self.certifications, *self.radii)]
        return word(self.config, "data") or (found[0] if found else "")

    @property
    def eps(self) -> float | None:
        """The radius that it was trained for."""
        return radius(self.config.get("eps"))

    @property
    def seed(self) -> int | None:
        """Of its randomness."""
        seed = self.config.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def hardware(self) -> str:
        """What it was trained on."""
        device = word(self.env, "gpu") or word(self.env, "cpu")
        threads = count(self.env, "threads")
        return f"{device}, {threads} thread{'s' * (threads != 1)}" if device and threads else device

    @property
    def command(self) -> str:
        """That trained it, for people."""
        found = words(self.env, "command")
        return " ".join(("maar", *found[1:])) if found else ""


@dataclass(frozen=True)
class Collected:
    """Everything that was found."""

    runs: tuple[Run, ...]
    experiments: tuple[tuple[Path, Object], ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def certifications(self) -> list[Store]:
        """Of all runs."""
        return [store for run in self.runs for store in run.certifications]

    @property
    def radii(self) -> list[Store]:
        """Of all runs."""
        return [store for run in self.runs for store in run.radii]


def collect(paths: Sequence[Path]) -> Collected:
    """Read what is below the paths; one with nothing in it is a `UsageError`."""
    reader = Reader()
    runs: dict[Path, Run] = {}
    stores: dict[Path, Store] = {}
    experiments: dict[Path, Object] = {}
    for path in paths:
        if path.is_file() and path.suffix == ".json":
            experiments[path.resolve()] = reader.json(path)
            continue
        if not path.is_dir():
            raise UsageError(f"{path} is neither a folder nor the JSON file of an experiment")
        of_runs, of_stores = _find(path)
        results = [] if of_runs or of_stores else _results(path)
        experiments |= {file.resolve(): reader.json(file) for file in results}
        if not of_runs and not of_stores and not results:
            raise UsageError(
                f"{path} holds nothing to report on (accepted: the folder of a run, a folder of "
                "runs, the results of maar certify or maar radius, a JSON of maar reproduce or a "
                "folder of them)"
            )
        for folder in of_runs:
            if folder.resolve() not in runs:
                runs[folder.resolve()] = _run(folder, reader)
        for folder in of_stores:
            store = None if folder.resolve() in stores else _store(folder, "", reader)
            if store is not None:
                stores[folder.resolve()] = store
    named = _name([*runs.values(), *_networks(list(stores.values()), reader)])
    return Collected(tuple(named), tuple(experiments.items()), tuple(reader.problems))


def radius(value: object) -> float | None:
    """An eps as a configuration has it, 0.1 or "2/255"; None if it is none."""
    if not isinstance(value, str | int | float):
        return None
    try:
        return float(Eps(value))
    except MaarError:
        return None


def _results(path: Path) -> list[Path]:
    """The experiments of `maar reproduce` in a folder of its results."""
    files = sorted(path.glob("*.json"))
    return [file for file in files if isinstance(Reader().json(file).get("rows"), list)]


def _find(path: Path) -> tuple[list[Path], list[Path]]:
    """The folders of runs at any depth, and those of stores that are in no run."""
    runs, stores = [], []
    for where, folders, files in os.walk(path):
        found = {"config.toml": runs, "manifest.json": stores}
        for file, kind in found.items():
            if file in files:
                kind.append(Path(where))
                folders.clear()  # what is below belongs to it
                break
        folders.sort()
    return runs, stores


def _run(path: Path, reader: Reader) -> Run:
    run = _read_run(path, path.resolve().name, reader)
    folders = [manifest.parent for manifest in sorted(path.glob("**/manifest.json"))]
    stores = [store for folder in folders if (store := _store(folder, run.name, reader))]
    return _with(run, stores, _evaluations(path, run.name, reader))


def _networks(stores: list[Store], reader: Reader) -> list[Run]:
    """Stores that are in no run, put together where they are about the same weights."""
    by_weights: dict[str, list[Store]] = {}
    for store in stores:
        by_weights.setdefault(store.hash, []).append(store)
    found = []
    for hash, same in by_weights.items():
        folders = dict.fromkeys(store.path.parent for store in same)
        files = [file for folder in folders for file in _evaluations(folder, "", reader)]
        ours = [file for file in files if file.content.get("weights_hash") == hash]
        found.append(_with(Run(same[0].path, same[0].network, ""), same, ours))
    return found


def _with(run: Run, stores: list[Store], evaluations: list[Evaluation]) -> Run:
    return replace(
        run,
        certifications=tuple(store for store in stores if "eps" in store.summary),
        radii=tuple(store for store in stores if "largest" in store.summary),
        evaluations=tuple(evaluations),
    )


def _evaluations(folder: Path, run: str, reader: Reader) -> list[Evaluation]:
    found = []
    for file in sorted(folder.glob("evaluate-*.json")):
        if content := reader.json(file):
            found.append(Evaluation(file, run, word(content, "weights") or MODEL, content))
    return found


def _read_run(path: Path, name: str, reader: Reader) -> Run:
    problems = len(reader.problems)
    config = reader.toml(path / "config.toml")
    first = reader.text(path / "config.toml").partition("\n")[0]
    metrics = reader.lines(path / "metrics.jsonl")
    result, env = reader.json(path / "result.json"), reader.json(path / "env.json")
    if len(reader.problems) > problems:
        state = "damaged"
    elif is_locked(path / ".lock"):
        state = "running"
    else:
        state = "finished" if result else "interrupted"
    hash = first.removeprefix("# hash ") if first.startswith("# hash ") else ""
    return Run(path, name, state, config, hash, metrics, result, env)


def _store(path: Path, run: str, reader: Reader) -> Store | None:
    manifest = reader.json(path / "manifest.json")
    subject = table(manifest, "subject")
    if not subject:
        if manifest:
            reader.problems.append(f"{path / 'manifest.json'} does not say what it is about")
        return None
    is_radius = "largest" in subject
    file = path / ("radii.jsonl" if is_radius else "verdicts.jsonl")
    # Before the lines: a folder that is being written has counted no more than is there.
    summary = reader.json(path / "summary.json")
    lines = reader.lines(file)
    by_index = {line["index"]: line for line in lines if type(line.get("index")) is int}
    reader.problems += _edits(path, reader.text(file), by_index, manifest, summary)
    if not is_radius:
        strange = sum(word(line, "verdict") not in VERDICTS for line in by_index.values())
        if strange:
            text = f"{strange} lines have no verdict that is known, and are left out"
            reader.problems.append(f"{path / 'verdicts.jsonl'}: {text}")
    split = word(manifest, "split") or word(subject, "split").partition(" ")[0]
    if not is_radius:
        summary = _checked(path, summary, manifest, by_index, reader)
    elif not summary:
        summary = {"largest": subject["largest"], "images": len(by_index), "complete": False}
    # Stores of earlier versions name the weights in brackets only.
    stage = re.search(r"\((stage-\d+-\w+)\)$", word(manifest, "network"))
    return Store(
        path,
        run,
        word(manifest, "network"),
        word(table(manifest, "source"), "weights") or (stage[1] if stage else MODEL),
        word(subject, "weights"),
        word(manifest, "data"),
        words(manifest, "classes"),
        word(manifest, "prepared"),
        split,
        word(manifest, "preset"),
        words(manifest, "verifiers") or tuple(table(summary, "verifiers")),
        summary,
        by_index,
    )


def _edits(
    path: Path, lines: str, records: dict[int, Object], manifest: Object, summary: Object
) -> Iterator[str]:
    """Yield what was changed by hand: seals that do not fit. Those that fit prove nothing."""
    advice = "its numbers are not to be trusted (maar audit says more)"
    if count(manifest, "format") < SEALED:
        yield f"{path} is of a format without seals: an edit by hand would not show here"
        return
    if not holds(manifest):
        yield f"{path / 'manifest.json'} was changed: {advice}"
    seals = [word(manifest, "key")]
    for place, line in enumerate(lines.encode().split(b"\n")[:-1], 1):
        try:
            seals.append(open_line(seals[-1], line)[1])
        except BrokenSeal:
            yield f"{path}: its verdicts were changed, in line {place} or before it: {advice}"
            return
    for line in records.values():
        file = path / "counterexamples" / f"{line['index']}.npz"
        seal = word(line, "counterexample")
        if seal and file.is_file() and file_seal(file.read_bytes()) != seal:
            yield f"{file} is not the counterexample that its line names"
    if not summary:
        return
    counted = count(summary, "lines")
    if not holds(summary):
        yield f"{path / 'summary.json'} was changed: {advice}"
    elif not 0 <= counted < len(seals):
        yield f"{path} has {len(seals) - 1} verdicts, summary.json counts {counted}: {advice}"
    elif summary.get("last_seal") != seals[counted]:
        yield f"{path / 'summary.json'} is not about the verdicts beside it: {advice}"


def _checked(
    path: Path, summary: Object, manifest: Object, lines: dict[int, Object], reader: Reader
) -> Object:
    """A certification's summary, counted again: a number that is printed has been looked up."""
    about = {
        "eps": number(table(manifest, "subject"), "eps") or 0.0,
        "of": count(manifest, "images") or count(summary, "of") or None,
    }
    everything = {**_count(lines.values()), **about}
    if not summary:
        return {**everything, "complete": False}
    if everything["images"] > count(summary, "images"):
        # The summary is of the last call, which may have looked at a few of the images only.
        is_whole = sorted(lines) == list(range(len(lines))) and not everything["error"]
        return {**everything, "complete": is_whole}
    asked = indices(word(summary, "indices"))
    among = [lines[i] for i in asked if i in lines] if asked is not None else list(lines.values())
    counted = _count(among)
    if asked is None and counted["images"] != count(summary, "images"):
        return {**summary, **about}  # of a part of the store, and of which it does not say
    if any(counted[name] != count(summary, name) for name in VERDICTS):
        reader.problems.append(
            f"{path / 'summary.json'} does not say what the verdicts beside it say: "
            "they were counted again"
        )
        return {**counted, **about, "complete": False}
    if counted["images"] == count(summary, "images"):
        about |= {name: counted[name] for name in SHARES if name in counted}
    return {**summary, **about}


def _count(lines: Iterable[Object]) -> Object:
    """The counts of a summary, from the verdicts."""
    counts = dict.fromkeys(VERDICTS, 0)
    verifiers: dict[str, Object] = {}
    lines = [line for line in lines if word(line, "verdict") in counts]
    for line in lines:
        counts[line["verdict"]] += 1
        for name in table(line, "times"):
            row = verifiers.setdefault(name, {"reached": 0, "falsified": 0, "verified": 0})
            row["reached"] += 1
            row["seconds"] = row.get("seconds", 0.0) + (number(line["times"], name) or 0.0)
            if line.get("by") == name and line["verdict"] in ("misclassified", "falsified"):
                row["falsified"] += 1
            elif line.get("by") == name and line["verdict"] == "verified":
                row["verified"] += 1
    shares: Object = {}
    if lines:
        broken = counts["misclassified"] + counts["falsified"]
        shares = {
            "accuracy": 1 - counts["misclassified"] / len(lines),
            "certified": counts["verified"] / len(lines),
            "certified_upper": 1 - broken / len(lines),
        }
    seconds = sum(number(line, "seconds") or 0.0 for line in lines)
    return {
        "images": len(lines),
        **counts,
        **shares,
        "verifiers": verifiers,
        "seconds": round(seconds, 3),
    }


def indices(spans: str) -> list[int] | None:
    """The numbers of `0-9,12`; None if it says nothing, or more than any data set has."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", spans):
        return None
    ends = [tuple(map(int, span.split("-"))) for span in spans.split(",")]
    if sum(end[-1] - end[0] for end in ends) > MOST:
        return None
    return [index for end in ends for index in range(end[0], end[-1] + 1)]


def _name(runs: list[Run]) -> list[Run]:
    """Runs of the same name in different folders get as much of their path as tells them apart."""
    parts = 1
    names = [run.name for run in runs]
    while len(set(names)) < len(names) and parts < 20:
        parts += 1
        double = {name for name in names if names.count(name) > 1}
        longer = ["/".join(run.path.resolve().parts[-parts:]) for run in runs]
        names = [long if name in double else name for name, long in zip(names, longer, strict=True)]
    # A folder need not be named in UTF-8: what is not becomes a sign for that.
    names = [os.fsencode(name).decode(errors="replace") for name in names]
    return [_renamed(run, name) for run, name in zip(runs, names, strict=True)]


def _renamed(run: Run, name: str) -> Run:
    return replace(
        run,
        name=name,
        certifications=tuple(replace(store, run=name) for store in run.certifications),
        radii=tuple(replace(store, run=name) for store in run.radii),
        evaluations=tuple(replace(file, run=name) for file in run.evaluations),
    )
