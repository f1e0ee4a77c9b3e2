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
    reason: str = ""
    """Why a complete verifier ends with UNKNOWN before its time is up."""

    @staticmethod
    def bounded(lb: Mapping[int, float], reason: str = "") -> Verdict:
        """From lower bounds of every open class: verified if all are positive."""
        if all(map(proves, lb.values())):
            return Verdict(Status.VERIFIED, lb=dict(lb))
        return Verdict(Status.UNKNOWN, lb=dict(lb), reason=reason)


UNKNOWN = Verdict(Status.UNKNOWN)
NEAR_ZERO = "too near zero to be told from it in float64"
"""Why branch and bound neither proves nor breaks a margin of which every ReLU is split."""


def proves(lb: float) -> bool:
    """Whether a lower bound settles its class. Zero does not, nor what came of an overflow."""
    return math.isfinite(lb) and lb > 0
