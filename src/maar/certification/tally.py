"""Counting verdicts: how many of each kind, by which verifier, and what that says of the set."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from maar.certification.record import Record

# In the order in which they are shown.
VERDICTS = ("misclassified", "falsified", "verified", "unknown", "error")


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
