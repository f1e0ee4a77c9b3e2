"""A line of verdicts.jsonl, and counting them: how many of each kind, by which verifier.

`maar.certification.record` writes the lines.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from maar.records.checks import About, image, is_number, number, text, whole

Record = dict[str, Any]
VERDICTS = ("misclassified", "falsified", "verified", "unknown", "error")
"""In the order in which they are shown."""
BROKEN = ("misclassified", "falsified")
"""Verdicts with a point that is classified wrong."""
# Seconds are rounded to so many digits, each verifier's by itself.
ROUNDED = 1e-4


def is_settled(record: Record, limit: float) -> bool:
    """Whether so many seconds could not change the verdict: decided, or tried for as long."""
    if record["verdict"] == "error":
        return False
    had = record.get("limit")
    return had is None or had >= limit


def check_record(record: Record, about: About) -> None:
    """Raise a `ValueError` unless the line could have been written for such a manifest."""
    image(record, about)
    verdict = text(record, "verdict", VERDICTS)
    _check_times(record, about)
    lb = record.get("lb")
    if lb is not None:
        number(record, "lb")
    if verdict == "verified" and not (is_number(lb) and lb > 0):
        raise ValueError(f"verified, but lb is {lb!r} (accepted: a number > 0)")
    if verdict in BROKEN:
        target = whole(record, "target")
        if target == record["label"]:
            raise ValueError(f"{verdict}, but target is the label {target}")
        # (an image may be misclassified by a rounding of float32, its margin is in float64)
        if number(record, "margin") >= 0 and verdict == "falsified":
            raise ValueError(f"falsified, but margin is {record['margin']!r} (accepted: below 0)")
    if verdict in ("unknown", "error"):
        _check_open(record)
    if verdict == "error":
        text(record, "error")


def _check_times(record: Record, about: About) -> None:
    """Check that the verifiers were asked in their order, and that the last one settled it."""
    times, by = record.get("times"), record.get("by")
    if not isinstance(times, dict):
        raise ValueError("times is no table of seconds")
    spent = sum(number(times, name, 0.0) for name in times)
    if abs(number(record, "seconds", 0.0) - spent) > ROUNDED * (len(times) + 1):
        raise ValueError(f"seconds is {record['seconds']!r}, its verifiers took {spent:.4f}")
    if tuple(times) != about.verifiers[: len(times)]:
        asked = ", ".join(about.verifiers)
        raise ValueError(f"times names {', '.join(times)} (accepted: the first of {asked})")
    last = list(times)[-1] if times else None
    if by is not None and by not in tuple(times):
        raise ValueError(f"by is {by!r} (accepted: {', '.join(times) or 'null'})")
    if record["verdict"] != "error" and by != (None if record["verdict"] == "unknown" else last):
        raise ValueError(f"{record['verdict']} by {by!r}, the last verifier asked is {last!r}")
    if by is None and record["verdict"] not in ("unknown", "error"):
        raise ValueError(f"{record['verdict']} by no verifier")


def _check_open(record: Record) -> None:
    classes, limit = record.get("open"), record.get("limit")
    if not isinstance(classes, list) or not all(type(k) is int and k >= 0 for k in classes):
        raise ValueError(f"open is {classes!r} (accepted: a list of classes)")
    if len(set(classes)) < len(classes) or record["label"] in classes:
        raise ValueError("open names a class twice, or the label")
    if record["verdict"] == "unknown" and not classes:
        raise ValueError("unknown, but open names no class")
    if limit is not None and (not is_number(limit) or limit <= 0):
        raise ValueError(f"limit is {limit!r} (accepted: a number of seconds > 0, or null)")


class Tally:
    """Counts over `images` images that are asked for, of the `of` that the data set has."""

    def __init__(self, images: int, of: int, verifiers: Iterable[str]) -> None:
        self.images = images
        self.of = of
        self.counts: dict[str, int] = dict.fromkeys(VERDICTS, 0)
        self.reached = dict.fromkeys(verifiers, 0)
        self.seconds = dict.fromkeys(self.reached, 0.0)
        self.settled: Counter[tuple[str, str]] = Counter()
        """(verifier, verdict) -> images."""
        self.last_error = ""

    @staticmethod
    def of_all(records: Iterable[Record], of: int, verifiers: Iterable[str]) -> Tally:
        """Count lines of different images; each was asked for."""
        records = list(records)
        tally = Tally(len(records), of, verifiers)
        for record in records:
            tally.add(record)
        return tally

    def add(self, record: Record) -> None:
        """Count one image's verdict."""
        self.counts[record["verdict"]] += 1
        self.settled[record["by"], record["verdict"]] += 1
        for name, seconds in record["times"].items():
            self.reached[name] += 1
            self.seconds[name] += seconds
        if record["verdict"] == "error":
            self.last_error = f"image {record['index']}: {record['error']}"

    @property
    def done(self) -> int:
        """Images with a verdict."""
        return sum(self.counts.values())

    @property
    def certified(self) -> float:
        """CR, the share that is proved: a lower bound of the robust share."""
        return self.counts["verified"] / self.images

    @property
    def certified_upper(self) -> float:
        """1 - the share that is disproved: an upper bound of the robust share."""
        return 1 - self.broken / self.images

    @property
    def broken(self) -> int:
        """Images that are answered wrong, or can be made to be."""
        return self.counts["misclassified"] + self.counts["falsified"]

    @property
    def accuracy(self) -> float | None:
        """The share classified correctly, once every image has been looked at for that."""
        if self.done < self.images or self.reached.get("misclassified") != self.images:
            return None
        return 1 - self.counts["misclassified"] / self.images

    @property
    def interval(self) -> tuple[float, float] | None:
        """A 95 % interval of the robust share of the whole set, if only a part was asked for.

        From the Wilson interval of the lower bound to that of the upper one, as for images drawn
        at random.
        """
        if self.done < self.images or self.images >= self.of:
            return None
        low, _ = wilson(self.counts["verified"], self.images)
        _, high = wilson(self.images - self.broken, self.images)
        return low, high

    def summary(self) -> dict[str, Any]:
        """For summary.json."""
        return {
            "images": self.images,
            "of": self.of,
            "complete": self.done == self.images,
            **self.counts,
            "pending": self.images - self.done,
            "accuracy": self.accuracy,
            "certified": self.certified,
            "certified_upper": self.certified_upper,
            "certified_interval95": self.interval,
            "verifiers": {
                name: {
                    "reached": self.reached[name],
                    "falsified": self.falsified_by(name),
                    "verified": self.settled[name, "verified"],
                    "seconds": round(self.seconds[name], 3),
                }
                for name in self.reached
            },
            "seconds": round(sum(self.seconds.values()), 3),
        }

    def falsified_by(self, name: str) -> int:
        """Images that a verifier broke, misclassified ones included."""
        return self.settled[name, "falsified"] + self.settled[name, "misclassified"]


def wilson(hits: float, trials: int) -> tuple[float, float]:
    """The 95 % score interval of a share (Wilson 1927): sensible at 0 and at 1 too."""
    z2 = 1.959964**2
    share = hits / trials
    centre = share + z2 / (2 * trials)
    reach = math.sqrt(z2 * (share * (1 - share) / trials + z2 / (4 * trials**2)))
    low, high = ((centre + sign * reach) / (1 + z2 / trials) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)
