"""One image's line in verdicts.jsonl."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from maar.certify.cascade import Settled
from maar.certify.verdict import Status

Record = dict[str, Any]


def make_record(index: int, label: int, settled: Settled, limit: float = math.inf) -> Record:
    """The line; what does not apply is left out.

    index, label   which image of the test split
    verdict        misclassified, verified, falsified, unknown or error
    by             the verifier that settled it, or failed; null if none did
    seconds        in all verifiers; `times` has each
    lb             the least proved lower bound of z_y - z_k over the classes k
    open           classes that no bound settled
    margin, target z_y - z_target at the counterexample, and the class ahead of y there
    error          what went wrong, in a verifier that failed
    limit          the seconds that an image had which is still open; null if it had any number
    reason         why a complete verifier left it open before these were over
    """
    record: Record = {
        "index": index,
        "label": label,
        "verdict": settled.status.value,
        "by": settled.by,
        "seconds": round(sum(settled.times.values()), 4),
        "times": {name: round(seconds, 4) for name, seconds in settled.times.items()},
    }
    if settled.status in (Status.VERIFIED, Status.UNKNOWN, Status.ERROR) and settled.lb:
        least = min(settled.lb.values())
        record["lb"] = least if math.isfinite(least) else None
    if settled.status in (Status.UNKNOWN, Status.ERROR):
        record["open"] = settled.open
        record["limit"] = limit if math.isfinite(limit) else None
        if settled.reason:
            record["reason"] = settled.reason
    if settled.margin is not None:
        record["margin"] = settled.margin
        record["target"] = settled.target
    if settled.error:
        record["error"] = settled.error
    return record


def is_settled(record: Record, limit: float) -> bool:
    """Whether so many seconds could not change the verdict: decided, or tried for as long."""
    if record["verdict"] == "error":
        return False
    had = record.get("limit")
    return had is None or had >= limit


def spans(indices: Iterable[int]) -> str:
    """Indices as people write them: `0-9,12`."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
