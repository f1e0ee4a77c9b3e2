"""One image's line in verdicts.jsonl."""

from __future__ import annotations

import math
from typing import Any

from maar.certification.cascade import Settled
from maar.certification.checks import About, image, is_number, number, text, whole
from maar.certification.verdict import Status, proves

Record = dict[str, Any]
WORDS = tuple(status.value for status in Status)
# Seconds are rounded to so many digits, each verifier's by itself.
ROUNDED = 1e-4


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


def is_settled(record: Record, limit: float) -> bool:
    """Whether so many seconds could not change the verdict: decided, or tried for as long."""
    if record["verdict"] == "error":
        return False
    had = record.get("limit")
    return had is None or had >= limit


def check_record(record: Record, about: About) -> None:
    """Raise a `ValueError` unless the line could have been written for such a manifest."""
    image(record, about)
    verdict = text(record, "verdict", WORDS)
    _check_times(record, about)
    lb = record.get("lb")
    if lb is not None:
        number(record, "lb")
    if verdict == "verified" and not (is_number(lb) and proves(lb)):
        raise ValueError(f"verified, but lb is {lb!r} (accepted: a number > 0)")
    if verdict in ("misclassified", "falsified"):
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
