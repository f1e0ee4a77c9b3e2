"""Trainings whose epochs the file of an experiment has kept: to be drawn where the runs are gone.

They become runs of numbers alone, so that the figures are those of a run that is here.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path

from maar.records.reading import Object, number, numbers, word, words
from maar.reporting.collect import Run
from maar.reporting.systems import System


def kept_systems(rows: Sequence[Object], here: Container[str]) -> list[System]:
    """The systems of the rows, with what was kept of their epochs.

    None if every run is `here`: its own section draws it.
    """
    if all(Path(name).name in here for row in rows for name in words(row, "runs")):
        return []
    found = [System(word(row, "system"), tuple(_runs(row))) for row in rows]
    return [system for system in found if system.runs]


def _runs(row: Object) -> list[Run]:
    names, seeds, kept = words(row, "runs"), row.get("seeds"), row.get("epochs")
    if not isinstance(seeds, list) or not isinstance(kept, list):
        return []
    about = {"data": word(row, "data") or word(row, "setting"), "eps": row.get("eps")}
    return [
        Run(
            Path(name),
            "finished",
            config={**about, "seed": seed},
            metrics=lines,
            name=Path(name).name,
        )
        for name, seed, series in zip(names, seeds, kept, strict=False)
        if (lines := _lines(series))
    ]


def _lines(series: object) -> list[Object]:
    """As they stood in metrics.jsonl; none if the columns do not fit together."""
    if not isinstance(series, dict):
        return []
    stages, epochs = ([int(n) for n in numbers(series, key)] for key in ("stage", "epoch"))
    errors, accuracies = (_column(series, key) for key in ("verified_error", "accuracy"))
    if len({len(stages), len(epochs), len(errors), len(accuracies)}) > 1:
        return []
    # (of a stage that is over, as many were planned)
    planned = dict(sorted(zip(stages, epochs, strict=True)))
    of = word(series, "accuracy_of")
    return [
        {
            "stage": stage,
            "stages": max(stages),
            "epoch": epoch,
            "epochs": planned[stage],
            "train": {"verified_error": error, **({"accuracy": accuracy} if of == "train" else {})},
            "valid": {"accuracy": accuracy} if of == "valid" else {},
            "test": {"accuracy": accuracy} if of == "test" else {},
        }
        for stage, epoch, error, accuracy in zip(stages, epochs, errors, accuracies, strict=True)
    ]


def _column(series: Object, key: str) -> list[float | None]:
    """Numbers, with gaps."""
    found = series.get(key)
    return [number({key: value}, key) for value in found] if isinstance(found, list) else []
