"""Stages: what each ends with, and what its checkpoint proves and withstands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from maar.records.evaluations import Evaluation
from maar.records.reading import Object, count, number, table
from maar.records.stores import MODEL
from maar.reporting.certification import line
from maar.reporting.collect import Run
from maar.reporting.curves import ON_TRAINING, VERIFIED_ERROR, stages_of, training_accuracy
from maar.reporting.model import Axis, Cell, Column, Evidence, Figure, Table
from maar.reporting.systems import (
    System,
    best,
    eps_text,
    evidence_of,
    percent,
    plain,
    same,
    seconds_cell,
    trained,
)

PAPER_LAYER = 3
"""Latent robustness is published behind the third ReLU."""
Found = tuple[list[float], list[Evidence]]
Measure = Callable[[Object], float | None]


def _verified_error(line: Object) -> float | None:
    return number(table(line, "train"), "verified_error")


def _accuracy(line: Object) -> float | None:
    return number(table(line, "valid"), "accuracy")


def stage_count(system: System) -> int:
    """How many stages its runs have."""
    return max((stages_of(run) for run in system.runs if run.metrics), default=0)


def last_line(run: Run, stage: int) -> Object:
    """The last epoch of a stage that is over; {} if it is not."""
    lines = [one for one in run.metrics if count(one, "stage") == stage]
    if lines and count(lines[-1], "epoch") >= count(lines[-1], "epochs"):
        return lines[-1]
    return {}


def stage_table(every: Iterable[System]) -> Table | None:
    """One row for each stage of each system; None if no run has more than one."""
    several = [system for system in every if stage_count(system) > 1]
    measures: dict[str, Measure] = {"accuracy": _accuracy}
    helps = {"accuracy": "On the validation images, in %"}
    # A column of its own, where it is all that some run has.
    lines = [one for system in several for run in system.runs for one in run.metrics]
    if any(training_accuracy(one) is not None for one in lines):
        measures["training accuracy"] = training_accuracy
        helps["training accuracy"] = f"{ON_TRAINING} In %"
    rows = []
    for system in several:
        reached = {count(one, "stage") for run in system.runs for one in run.metrics}
        rows += [_row(system, stage, measures.values()) for stage in sorted(reached) if stage]
    if not rows:
        return None
    columns = (
        Column("system"),
        Column("data", filterable=True),
        Column("stage", numeric=True),
        Column("eps", numeric=True, help="That the stage trains with, larger than the wanted one"),
        Column("epochs", numeric=True),
        Column("VE", numeric=True, help=f"{VERIFIED_ERROR} Of the last epoch, in %"),
        *(Column(name, numeric=True, help=helps[name]) for name in measures),
        Column("CR", numeric=True, help="Certified robustness of the stage's checkpoint, in %"),
        Column("LR", numeric=True, help="Latent robustness of the stage's checkpoint, in %"),
        Column("training", numeric=True, help="Time of the stage, all seeds"),
    )
    return Table(
        "stages",
        "Stages",
        columns,
        tuple(rows),
        "At the end of each stage; mean and standard deviation over the seeds, in %. CR is of "
        "`maar certify RUN --weights stage-K-last`, LR of `maar evaluate RUN --weights "
        "stage-K-last`, behind the third ReLU or the last one that was measured.",
        group_by=0,
    )


def _row(system: System, stage: int, accuracies: Iterable[Measure]) -> tuple[Cell, ...]:
    lines = [found for run in system.runs if (found := last_line(run, stage))]
    trained_with = number(lines[0], "eps") if lines else None
    seconds = [
        number(one, "seconds") or 0.0
        for run in system.runs
        for one in run.metrics
        if count(one, "stage") == stage
    ]
    epochs = count(lines[0], "epochs") if lines else None
    return (
        plain(system.name),
        plain(system.first.data),
        Cell(str(stage), stage),
        Cell("" if trained_with is None else f"{trained_with:.4g}", trained_with),
        Cell("" if epochs is None else str(epochs), epochs),
        percent(*_measured(system, stage, _verified_error)),
        *(percent(*_measured(system, stage, measure)) for measure in accuracies),
        percent(*certified_at(system, stage)),
        percent(*_latent(system, stage)),
        seconds_cell(sum(seconds)),
    )


def _measured(system: System, stage: int, measure: Measure) -> Found:
    known = [(measure(last_line(run, stage)), run) for run in system.runs]
    known = [(value, run) for value, run in known if value is not None]
    return (
        [value for value, _ in known if value is not None],
        [trained(run, "metrics.jsonl") for _, run in known],
    )


def _weights(system: System, stage: int) -> list[str]:
    """Names under which a stage's last weights are certified; the last stage's are the model."""
    own = [f"stage-{stage}-last"]
    return [*own, MODEL] if stage == stage_count(system) else own


def certified_at(system: System, stage: int) -> Found:
    """CR of the stage's checkpoint at the eps that the run is for."""
    shares, evidence = [], []
    for run in system.runs:
        stores = [best(run, run.eps, name) for name in _weights(system, stage)]
        store = next((store for store in stores if store is not None), None)
        if store is not None:
            shares.append(number(store.summary, "certified") or 0.0)
            evidence.append(evidence_of(store, run))
    return shares, evidence


def _latent(system: System, stage: int) -> Found:
    shares, evidence = [], []
    for run in system.runs:
        for name in _weights(system, stage):
            files = [f for f in run.evaluations if f.weights == name and _is_asked(f, run)]
            if files:
                file = max(files, key=lambda file: file.images)
                layer, share = deepest(file.latent_robustness)
                if share is not None:
                    shares.append(share)
                    evidence.append(_attacked(file, layer, run))
                break
    return shares, evidence


def _is_asked(file: Evaluation, run: Run) -> bool:
    """Whether an attack was on the run's own test images, at the radius that it is for."""
    return (
        bool(file.latent_robustness)
        and file.split == "test"
        and file.data in ("", run.data)
        and (run.eps is None or not file.eps or same(file.eps, run.eps))
    )


def deepest(by_layer: dict[str, float]) -> tuple[str, float | None]:
    """The layer to show, and its share: the paper's, or else the last one measured."""
    layers = [layer for layer in by_layer if layer.isdigit()]
    if not layers:
        return "", None
    layer = str(PAPER_LAYER) if str(PAPER_LAYER) in layers else max(layers, key=int)
    return layer, by_layer[layer]


def _attacked(file: Evaluation, layer: str, run: Run) -> Evidence:
    steps, size = file.attack.get("steps"), file.attack.get("step_size")
    return Evidence(
        source=str(file.path),
        images=file.images or None,
        of=file.of or None,
        split=file.split,
        eps=eps_text(file.eps),
        preset=f"PGD behind ReLU {layer}, {steps} steps of {size}",
        seconds=file.seconds,
        seeds=() if run.seed is None else (run.seed,),
        weights=file.weights_hash[:8],
    )


def stage_figures(every: Iterable[System], prefix: str = "") -> list[Figure]:
    """Verified error, accuracy, CR and latent robustness by stage, a line for each system."""
    several = [system for system in every if stage_count(system) > 1]

    def measured(measure: Measure) -> Callable[[System, int], Sequence[float]]:
        return lambda system, stage: _measured(system, stage, measure)[0]

    wanted: tuple[tuple[str, str, str, Callable[[System, int], Sequence[float]]], ...] = (
        (
            "verified-error",
            "Verified error by stage",
            VERIFIED_ERROR,
            measured(_verified_error),
        ),
        ("accuracy", "Accuracy by stage", "On validation images.", measured(_accuracy)),
        (
            "training-accuracy",
            "Accuracy on training images by stage",
            ON_TRAINING,
            measured(training_accuracy),
        ),
        ("cr", "Certified robustness by stage", "", lambda *of: certified_at(*of)[0]),
        ("latent", "Latent robustness by stage", "", lambda *of: _latent(*of)[0]),
    )
    figures = []
    for data in dict.fromkeys((s.first.data, eps_text(s.first.eps)) for s in several):
        ours = [s for s in several if (s.first.data, eps_text(s.first.eps)) == data]
        for id, title, caption, measure in wanted:
            series = []
            for system in ours:
                stages = range(1, stage_count(system) + 1)
                values = [measure(system, stage) for stage in stages]
                # A point alone is no course; that of the last stage is among the results.
                if sum(map(bool, values)) > 1:
                    series.append(line(system.name, tuple(map(str, stages)), values))
            if series:
                name = f"{prefix}stages-{id}"
                number_ = sum(figure.id.startswith(name) for figure in figures)
                figures.append(
                    Figure(
                        name if not number_ else f"{name}-{number_ + 1}",
                        f"{title} ({data[0]}, eps {data[1]})",
                        "lines",
                        Axis("stage", "category"),
                        Axis(title.partition(" by ")[0].lower(), is_share=True),
                        tuple(series),
                        caption=caption,
                    )
                )
    return figures
