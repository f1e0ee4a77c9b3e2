"""What a training measured epoch by epoch, in few enough numbers to outlive its run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maar.records.reading import Object, count, number, table

DIGITS = 5
"""Of a share: one image of 60,000 is still seen."""


def series(metrics: Sequence[Object]) -> dict[str, Any]:
    """A column of numbers for each thing that is drawn, one for each line of metrics.jsonl.

    Accuracy is of the test images where every epoch has noted it, as in the paper's Appendix A.4;
    else of the validation images, of a run without any of the training images. `accuracy_of` says
    which.
    """
    if not metrics:
        return {}
    noted = {
        part: [number(table(line, part), "accuracy") is not None for line in metrics]
        for part in ("test", "valid")
    }
    accuracy_of = "test" if all(noted["test"]) else "valid" if any(noted["valid"]) else "train"
    return {
        "stage": [count(line, "stage") for line in metrics],
        "epoch": [count(line, "epoch") for line in metrics],
        "verified_error": _column(metrics, "train", "verified_error"),
        "accuracy": _column(metrics, accuracy_of, "accuracy"),
        "accuracy_of": accuracy_of,
    }


def _column(metrics: Sequence[Object], part: str, key: str) -> list[float | None]:
    found = [number(table(line, part), key) for line in metrics]
    return [None if value is None else round(value, DIGITS) for value in found]
