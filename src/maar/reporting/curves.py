"""Training as figures: what each epoch measured, with the stages behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from maar.records.reading import Object, count, number, table
from maar.reporting.collect import Run
from maar.reporting.model import Axis, Band, Figure, Series
from maar.reporting.systems import System, eps_text

VERIFIED_ERROR = (
    "Verified error is the paper's name for the success of the stage's attack on the correctly "
    "classified training images: no verifier has been asked."
)
ON_TRAINING = (
    "These runs have no validation images: accuracy is of the training images, as they were "
    "trained on during the epoch."
)
MOST_STAGES = 64
"""No network has more layers to stop at: a damaged line must not make a million rows."""
ROOM_FOR_A_WORD = 0.1
"""The part of a figure's width that a stage needs to be called one."""
Measure = Callable[[Object], float | None]


def _of(part: str, key: str) -> Measure:
    return lambda line: number(table(line, part), key)


def training_accuracy(line: Object) -> float | None:
    """Of an epoch that has no accuracy on validation images; None if it has."""
    is_known = number(table(line, "valid"), "accuracy") is not None
    return None if is_known else number(table(line, "train"), "accuracy")


# id, title, axis, whether it is a share, where it stands in a line of metrics.jsonl, caption
CURVES: tuple[tuple[str, str, str, bool, Measure, str], ...] = (
    (
        "verified-error",
        "Verified error",
        "verified error",
        True,
        _of("train", "verified_error"),
        VERIFIED_ERROR,
    ),
    (
        "accuracy",
        "Accuracy on validation images",
        "accuracy",
        True,
        _of("valid", "accuracy"),
        "",
    ),
    # In a figure of its own: nobody should compare it with the others'.
    (
        "training-accuracy",
        "Accuracy on training images",
        "accuracy on training images",
        True,
        training_accuracy,
        ON_TRAINING,
    ),
    (
        "robust-accuracy",
        "Accuracy under attack on validation images",
        "accuracy under attack",
        True,
        _of("valid", "robust_accuracy"),
        "Under the method's own attack: it proves nothing.",
    ),
    ("loss", "Training loss", "loss", False, _of("loss", "total"), "All terms together."),
)


def curve_figures(every: Iterable[System], prefix: str = "") -> list[Figure]:
    """For each data set, radius and number of stages one figure of every measure."""
    groups: dict[tuple[str, str, int], list[tuple[System, Run]]] = {}
    for system in every:
        for run in system.runs:
            if run.metrics:
                key = (run.data, eps_text(run.eps), stages_of(run))
                groups.setdefault(key, []).append((system, run))
    figures = []
    for number_, ((data, eps, stages), runs) in enumerate(groups.items(), 1):
        suffix = "" if len(groups) == 1 else f"-{number_}"
        where = f"{data}, eps {eps}" + (f", {stages} stages" if stages > 1 else "")
        axis, bands, place = _epochs(runs, stages)
        for id, title, label, is_share, measure, caption in CURVES:
            series = [_series(system, run, measure, place) for system, run in runs]
            series = [one for one in series if any(y is not None for y in one.y)]
            if not series:
                continue
            figures.append(
                Figure(
                    f"{prefix}curve-{id}{suffix}",
                    f"{title} ({where})",
                    "lines",
                    axis,
                    Axis(label, is_share=is_share),
                    tuple(series),
                    bands,
                    caption,
                )
            )
    return figures


def _series(
    system: System, run: Run, measure: Measure, place: Callable[[int, Object], float]
) -> Series:
    return Series(
        run.name,
        tuple(place(index, line) for index, line in enumerate(run.metrics)),
        tuple(measure(line) for line in run.metrics),
        texts=tuple(f"stage {count(line, 'stage')}" for line in run.metrics),
        group=system.name,
        is_dashed=run.state != "finished",
    )


def _epochs(
    runs: list[tuple[System, Run]], stages: int
) -> tuple[Axis, tuple[Band, ...], Callable[[int, Object], float]]:
    """The x axis: epochs, where the stages of all runs are equally long, else parts of stages."""
    layouts = [layout(run) for _, run in runs]
    longest = max(layouts, key=len)
    if all(longest[: len(one)] == one for one in layouts):
        ends = [sum(longest[:k]) for k in range(len(longest) + 1)]
        # (a short stage has room for its number alone)
        wide = ROOM_FOR_A_WORD * ends[-1]
        bands = [
            Band(start + 0.5, end + 0.5, f"stage {k}" if end - start >= wide else f"{k}")
            for k, (start, end) in enumerate(pairwise(ends), 1)
        ]
        return Axis("epoch"), tuple(bands if stages > 1 else ()), lambda index, line: index + 1.0
    if stages == 1:
        return Axis("epoch"), (), lambda index, line: index + 1.0
    bands = [Band(k - 1.0, float(k), f"stage {k}") for k in range(1, stages + 1)]
    return Axis("stage (each stretched to the same width)"), tuple(bands), _in_stages


def _in_stages(index: int, line: Object) -> float:
    return count(line, "stage") - 1 + count(line, "epoch") / max(1, count(line, "epochs"))


def stages_of(run: Run) -> int:
    """How many stages a run that has begun will have."""
    return min(MOST_STAGES, max(1, count(run.metrics[-1], "stages")))


def layout(run: Run) -> tuple[int, ...]:
    """Epochs of each stage that has begun, as planned."""
    planned: dict[int, int] = {}
    for line in run.metrics:
        planned[count(line, "stage") or 1] = count(line, "epochs")
    return tuple(planned[stage] for stage in sorted(planned))
