"""One image's line in verdicts.jsonl."""

from __future__ import annotations

import math

from maar.certification.cascade import Settled
from maar.certification.verdict import Status
from maar.records.verdicts import Record


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

    The store adds `counterexample`, a hash of INDEX.npz, and `seal` (`maar.core.seals`).
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
