"""Read lines of verdicts strictly, and without the store's own reader.

A line is refused if `maar certify` could not have written it for this manifest: wrong types, an
image that was never asked for, verifiers out of order, a verdict that its verifier cannot give.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from maar.records.verdicts import VERDICTS, Record

# Verifiers that can only break an image, and those that can only prove it. Others can do both.
ATTACKS = frozenset({"misclassified", "quick_pgd", "pgd", "pgd_paper", "pgd_strong"})
BOUNDS = frozenset({"interval", "zonotope", "crown", "alpha_crown"})
SEAL = ', "seal": "'
Check = Callable[[Any, "Frame"], str]
DIGITS = 16


@dataclass(frozen=True)
class Frame:
    """The manifest's statements about its lines; `asked` is None in formats without it."""

    key: str
    images: int
    verifiers: tuple[str, ...]
    """Names in their order; empty in the first folders, which did not say it."""
    asked: frozenset[int] | None
    is_sealed: bool


def parse(text: str | bytes) -> Any:
    """Return JSON without NaN, without infinities and without a name that stands twice."""

    def refuse(word: str) -> Any:
        raise ValueError(f"it has {word}")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("it names something twice")
        return dict(pairs)

    try:
        return json.loads(text, parse_constant=refuse, object_pairs_hook=once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@dataclass(frozen=True)
class Line:
    """One line as it was read."""

    number: int
    record: Record | None
    """None if it cannot be understood."""
    seal: str
    faults: list[str]


def read(lines: list[bytes], frame: Frame) -> Iterator[Line]:
    """Yield every line, with all that is wrong with it."""
    previous = frame.key
    for number, line in enumerate(lines, 1):
        seal, faults = "", []
        if frame.is_sealed:
            seal = _seal(line)
            body = line.decode(errors="replace").rpartition(SEAL)[0] + "}"
            if not seal:
                faults.append("has no seal")
            elif seal != digest(f"{previous}\n{body}"):
                faults.append("does not fit its seal: it, or a line before it, was changed")
            previous = seal or previous
        try:
            record = parse(line)
            malformed = _first(MALFORMED, record, frame)
        except ValueError as error:
            record, malformed = None, " ".join(str(error).split())[:80]
        if malformed:
            yield Line(number, None, seal, [*faults, f"is no verdict ({malformed})"])
            continue
        assert record is not None
        if why := _first(IMPOSSIBLE, record, frame):
            faults.append(f"cannot be: {why}")
        yield Line(number, record, seal, faults)


def digest(text: str | bytes) -> str:
    """Return the hash that seals a text."""
    content = text.encode() if isinstance(text, str) else text
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def _seal(line: bytes) -> str:
    last = line.decode(errors="replace").rpartition(SEAL)[2]
    return last[:-2] if last.endswith('"}') and len(last) == DIGITS + 2 else ""


def _first(checks: tuple[Check, ...], record: Any, frame: Frame) -> str:
    """Return the first fault; empty if there is none."""
    return next((why for check in checks if (why := check(record, frame))), "")


def _object(record: Any, frame: Frame) -> str:
    return "" if isinstance(record, dict) else "no JSON object"


def _image(record: Record, frame: Frame) -> str:
    index, label = record.get("index"), record.get("label")
    if type(index) is not int or not 0 <= index < frame.images:
        return f"index is {index!r}, the split has {frame.images} images"
    return "" if type(label) is int and label >= 0 else f"label is {label!r}"


def _types(record: Record, frame: Frame) -> str:
    verdict, times, lb = record.get("verdict"), record.get("times"), record.get("lb")
    if not isinstance(verdict, str) or verdict not in VERDICTS:
        return f"verdict is {verdict!r}"
    if not isinstance(times, dict) or not all(_is_number(t) and t >= 0 for t in times.values()):
        return "times are no seconds"
    if not isinstance(record.get("by", 0), str | None):
        return f"by is {record.get('by')!r}"
    if lb is not None and not _is_number(lb):
        return f"lb is {lb!r}"
    classes = record.get("open", [])
    if not isinstance(classes, list) or not all(type(k) is int and k >= 0 for k in classes):
        return f"open is {classes!r}"
    return ""


def _asked(record: Record, frame: Frame) -> str:
    is_asked = frame.asked is None or record["index"] in frame.asked
    return "" if is_asked else "the image was never asked for"


def _times(record: Record, frame: Frame) -> str:
    times, seconds = record["times"], record.get("seconds")
    if not _is_number(seconds) or abs(seconds - sum(times.values())) > 1e-4 * (len(times) + 1):
        return f"seconds are {seconds!r}, those of its verifiers {sum(times.values()):.4f}"
    if frame.verifiers and list(times) != list(frame.verifiers[: len(times)]):
        return f"it was asked of {', '.join(times)}, which is not the order of the manifest"
    return ""


def _by(record: Record, frame: Frame) -> str:
    verdict, by, asked = record["verdict"], record.get("by"), list(record["times"])
    if verdict == "unknown":
        return "" if by is None else f"unknown by {by!r}"
    if verdict == "error":
        return "" if by is None or by in asked else f"error by {by!r}, which was not asked"
    if not asked or by != asked[-1]:
        return f"{verdict} by {by!r}, but the last one asked is {asked[-1] if asked else None!r}"
    if verdict == "verified" and by in ATTACKS:
        return f"verified by {by}, which proves nothing"
    if verdict == "falsified" and by in BOUNDS | {"misclassified"}:
        return f"falsified by {by}, which attacks nothing"
    if verdict == "misclassified" and by != "misclassified":
        return f"misclassified by {by}, which does not look for it"
    return ""


def _evidence(record: Record, frame: Frame) -> str:
    verdict = record["verdict"]
    if verdict in ("misclassified", "falsified"):
        margin, target = record.get("margin"), record.get("target")
        if type(target) is not int or target < 0 or target == record["label"]:
            return f"target is {target!r}, the label {record['label']}"
        if not _is_number(margin) or (verdict == "falsified" and margin >= 0):
            return f"{verdict}, but margin is {margin!r}"
    if verdict == "falsified" and frame.is_sealed and not record.get("counterexample"):
        return "falsified, but it names no counterexample"
    if verdict == "error" and not isinstance(record.get("error"), str):
        return "it does not say which error"
    return ""


def _open(record: Record, frame: Frame) -> str:
    if record["verdict"] not in ("unknown", "error"):
        return ""
    classes, limit = record.get("open"), record.get("limit")
    if classes is None or len(set(classes)) < len(classes) or record["label"] in classes:
        return "open is missing, or names a class twice, or the label"
    if record["verdict"] == "unknown" and not classes:
        return "unknown, but no class is open"
    if limit is not None and not (_is_number(limit) and limit > 0):
        return f"limit is {limit!r}"
    return ""


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) is int or (type(value) is float and math.isfinite(value))


# Lines that nothing can be done with, and lines that maar would not write.
MALFORMED: tuple[Check, ...] = (_object, _image, _types)
IMPOSSIBLE: tuple[Check, ...] = (_asked, _times, _by, _evidence, _open)
