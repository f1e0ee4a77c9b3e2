"""A line of radii.jsonl, and counting them: how many are found, and how they are spread.

`maar.certification.radius.record` writes the lines.
"""

from __future__ import annotations

from collections import Counter
from statistics import fmean as mean
from typing import Any

import numpy as np

from maar.records.checks import About, image, is_number, number, text
from maar.records.stores import Form
from maar.records.verdicts import Record

VERDICTS = ("found", "open", "misclassified", "error")
QUANTILES = (0, 5, 25, 50, 75, 95, 100)
"""In percent."""
FARTHEST = 1.0
"""No two images are farther apart: the upper end of what was never broken."""


def check_record(record: Record, about: About) -> None:
    """Raise a `ValueError` unless the line could have been written for such a manifest."""
    image(record, about)
    verdict = text(record, "verdict", VERDICTS)
    lower, upper = number(record, "lower", 0.0), record.get("upper")
    number(record, "seconds", 0.0)
    for name in ("lower_by", "upper_by"):
        if record.get(name) is not None:
            text(record, name, about.verifiers)
    if (record.get("lower_by") is None) != (lower == 0):
        raise ValueError(f"lower is {lower:g}, proved by {record.get('lower_by')!r}")
    if upper is not None and not (is_number(upper) and upper >= lower):
        raise ValueError(f"upper is {upper!r} (accepted: a number >= lower, or null)")
    if verdict == "error":
        text(record, "error")


RADII = Form(
    "radii.jsonl",
    check_record,
    lambda record: record["upper"] is not None and record["verdict"] != "misclassified",
    claims=("found", "misclassified"),
    final=("misclassified",),
)


class RadiusTally:
    """Counts over `images` images that are asked for, of the `of` that the data set has.

    A misclassified image has the radius 0; of one that failed nothing is known.
    """

    def __init__(self, images: int, of: int) -> None:
        self.images = images
        self.of = of
        self.counts: dict[str, int] = dict.fromkeys(VERDICTS, 0)
        self.proved_by: Counter[str] = Counter()
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.seconds = 0.0
        self.questions = 0
        self.last_error = ""

    def add(self, record: Record) -> None:
        """Count one image's radius."""
        self.counts[record["verdict"]] += 1
        self.seconds += record["seconds"]
        self.questions += len(record.get("questions", ()))
        self.lower.append(record["lower"])
        self.upper.append(FARTHEST if record["upper"] is None else record["upper"])
        if record["lower_by"] is not None:
            self.proved_by[record["lower_by"]] += 1
        if record["verdict"] == "error":
            self.last_error = f"image {record['index']}: {record.get('error', '')}"

    @property
    def done(self) -> int:
        """Images with a radius."""
        return sum(self.counts.values())

    def spread(self) -> dict[str, list[float]]:
        """The quantiles of both ends, and their means last; each errs to its own side."""
        if not self.done:
            return {}
        share = np.array(QUANTILES) / 100
        return {
            "lower": [*np.quantile(self.lower, share, method="lower").tolist(), mean(self.lower)],
            "upper": [*np.quantile(self.upper, share, method="higher").tolist(), mean(self.upper)],
        }

    def summary(self) -> dict[str, Any]:
        """For summary.json."""
        names = [*map(str, QUANTILES), "mean"]
        return {
            "images": self.images,
            "of": self.of,
            "complete": self.done == self.images,
            **self.counts,
            "pending": self.images - self.done,
            **{end: dict(zip(names, values, strict=True)) for end, values in self.spread().items()},
            "proved_by": dict(self.proved_by.most_common()),
            "questions": self.questions,
            "seconds": round(self.seconds, 3),
        }
