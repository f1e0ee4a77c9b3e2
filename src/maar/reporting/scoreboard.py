"""Results of many VNN-COMP instances: by category, and as the curve of a cactus plot."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

SOLVED = ("sat", "unsat")


@dataclass(frozen=True)
class Outcome:
    """The result of one instance."""

    category: str
    network: str
    property: str
    timeout: float
    result: str
    """sat, unsat, timeout, unknown or error."""
    seconds: float
    by: str = ""
    reason: str = ""
    expected: str = ""

    def is_wrong(self) -> bool:
        """Whether it contradicts what was expected."""
        return bool(self.expected) and self.is_solved() and self.result != self.expected

    def is_solved(self) -> bool:
        """Whether there is an answer."""
        return self.result in SOLVED

    def key(self) -> tuple[str, str]:
        """The key that names an instance in a list."""
        return self.network, self.property


@dataclass(frozen=True)
class Score:
    """One line of the scoreboard."""

    category: str
    instances: int
    solved: int
    wrong: int
    errors: int
    median_seconds: float | None
    """Of the solved ones."""


def scores(outcomes: Sequence[Outcome]) -> list[Score]:
    """One score for each category in the order of the list, and one of all."""
    names = list(dict.fromkeys(outcome.category for outcome in outcomes))
    groups = [(name, [o for o in outcomes if o.category == name]) for name in names]
    return [_score(*group) for group in [*groups, ("all", list(outcomes))]]


def _score(category: str, group: Sequence[Outcome]) -> Score:
    right = [o for o in group if o.is_solved() and not o.is_wrong()]
    return Score(
        category or "-",
        len(group),
        len(right),
        sum(o.is_wrong() for o in group),
        sum(o.result == "error" for o in group),
        statistics.median(o.seconds for o in right) if right else None,
    )


def cactus(outcomes: Iterable[Outcome]) -> list[float]:
    """Seconds of the solved instances, fastest first: the n-th number is when n are solved."""
    return sorted(o.seconds for o in outcomes if o.is_solved() and not o.is_wrong())


def vnncomp_csv(outcomes: Iterable[Outcome]) -> str:
    """The results file of VNN-COMP: category, network, property, preparation, result, seconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for o in outcomes:
        writer.writerow([o.category, o.network, o.property, "0", o.result, f"{o.seconds:.3f}"])
    return text.getvalue()


def as_json(outcomes: Sequence[Outcome], settings: dict[str, Any]) -> dict[str, Any]:
    """All there is to know, for reports and for `read`."""
    return {
        "format": 1,
        "settings": settings,
        "scores": [asdict(score) for score in scores(outcomes)],
        "cactus": cactus(outcomes),
        "instances": [asdict(outcome) for outcome in outcomes],
    }


def read(content: dict[str, Any]) -> list[Outcome]:
    """The outcomes in what `as_json` made."""
    return [Outcome(**instance) for instance in content["instances"]]
