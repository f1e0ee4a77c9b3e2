"""A verifier's answer to a query."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


class Status(str, enum.Enum):
    """How a question can end; the values are the words in verdicts.jsonl."""

    MISCLASSIFIED = "misclassified"
    """Falsified by the image itself."""
    FALSIFIED = "falsified"
    VERIFIED = "verified"
    UNKNOWN = "unknown"
    ERROR = "error"
    """The computation failed: kept apart from unknown, never counted as certified."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """VERIFIED and UNKNOWN come with margins, FALSIFIED with a counterexample, ERROR with why."""

    status: Status
    lb: Mapping[int, float] = field(default_factory=dict)
    """Class -> a proved lower bound of z_y - z_k on the ball."""
    counterexample: Tensor | None = None
    """[1, *shape]"""
    error: str = ""

    @staticmethod
    def bounded(lb: Mapping[int, float]) -> Verdict:
        """From lower bounds of every open class: verified if all are positive."""
        return Verdict(
            Status.VERIFIED if all(map(proves, lb.values())) else Status.UNKNOWN, lb=dict(lb)
        )


UNKNOWN = Verdict(Status.UNKNOWN)


def proves(lb: float) -> bool:
    """Whether a lower bound settles its class. Zero does not, nor what came of an overflow."""
    return math.isfinite(lb) and lb > 0
