"""One image's line in radii.jsonl."""

from __future__ import annotations

import math

from maar.certification.cascade import Settled
from maar.certification.checks import About, image, is_number, number, text
from maar.certification.radius.search import Measured
from maar.certification.record import Record
from maar.certification.store import Form
from maar.certification.verdict import Status

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


def check_record(record: Record, about: About) -> None:
    """Raise a `ValueError` unless the line could have been written for such a manifest."""
    image(record, about)
    verdict = text(record, "verdict", tuple(WORDS.values()))
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
