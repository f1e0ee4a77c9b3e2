"""How far the epoch in hand is: part of a checkpoint, so that its means come out the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from maar.training.metrics import Means


@dataclass
class Progress:
    """Steps done in this epoch, the seconds they took, and the means over them."""

    steps: int = 0
    seconds: float = 0.0
    terms: Means = field(default_factory=Means)
    notes: Means = field(default_factory=Means)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; JSON keeps every bit of them."""
        return {
            "steps": self.steps,
            "seconds": self.seconds,
            "terms": dict(self.terms.sums),
            "notes": dict(self.notes.sums),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Progress:
        """Read the output of `to_json`."""
        progress = cls(record["steps"], record["seconds"])
        for means, sums in ((progress.terms, record["terms"]), (progress.notes, record["notes"])):
            means.sums.update({name: (total, count) for name, (total, count) in sums.items()})
        return progress
