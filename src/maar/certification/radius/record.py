"""One image's line in radii.jsonl."""

from __future__ import annotations

import math

from maar.certification.cascade import Settled
from maar.certification.radius.search import Measured
from maar.certification.verdict import Status
from maar.records.verdicts import Record

WORDS = {
    Status.VERIFIED: "found",
    Status.UNKNOWN: "open",
    Status.MISCLASSIFIED: "misclassified",
    Status.ERROR: "error",
}


def make_record(index: int, label: int, settled: Settled, limit: float) -> Record:
    """The line; what does not apply is left out.

    index, label     which image of the split
    verdict          found (the ends are as close as asked for), open, misclassified or error
    lower, lower_by  proved up to this eps, by this verifier; 0 and null if nothing was
    upper, upper_by  broken at this distance; null if it never was
    target, margin   the class ahead at the counterexample, and z_y - z_target there
    questions        every eps that was asked about, with verdict, verifier and seconds
    seconds          of all questions together
    limit            the seconds that each question had, of an image still open; null if any number
    error            what went wrong
    """
    found = (
        settled if isinstance(settled, Measured) else Measured(settled.status, error=settled.error)
    )
    record: Record = {
        "index": index,
        "label": label,
        "verdict": WORDS[found.status],
        "lower": found.lower,
        "lower_by": found.lower_by,
        "upper": found.upper,
        "upper_by": found.by,
        "seconds": round(sum(found.times.values()), 4),
        "questions": [
            {**vars(question), "seconds": round(question.seconds, 4)}
            for question in found.questions
        ],
    }
    if found.margin is not None:
        record["target"], record["margin"] = found.target, found.margin
    if found.status in (Status.UNKNOWN, Status.ERROR):
        record["limit"] = limit if math.isfinite(limit) else None
    if found.error:
        record["error"] = found.error
    return record
