"""summary.json against the lines that it sums up."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from maar.certify.audit.disagreement import Disagreement
from maar.certify.audit.folder import Folder
from maar.certify.record import Record
from maar.certify.tally import VERDICTS

HEADER = ("eps", "weights")


def recount(folder: Folder) -> list[Disagreement]:
    """What summary.json says otherwise than the lines; also images that it counts and are missing.

    What a summary does not say is not held against it: it may be of an earlier version.
    """
    said = folder.summary
    if said is None:
        return []
    asked = _asked(folder, said)
    if asked is None:
        return [Disagreement(None, "summary.json does not say which images it is about")]
    wrong = [
        Disagreement(index, "summary.json counts it, verdicts.jsonl has no line of it")
        for index in sorted(asked - folder.records.keys())
        if said.get("complete")
    ]
    records = [folder.records[index] for index in sorted(asked & folder.records.keys())]
    counted = {
        "key": folder.manifest["key"],
        **{name: folder.subject[name] for name in HEADER},
        **_count(records, len(asked)),
    }
    for name, value in counted.items():
        if name in said and not _same(said[name], value):
            what = f"summary.json: {name} is {_spell(said[name])}, the lines say {_spell(value)}"
            wrong.append(Disagreement(None, what))
    verifiers = said.get("verifiers")
    for verifier, row in (verifiers if isinstance(verifiers, dict) else {}).items():
        for name, value in _by(records, verifier).items():
            if not isinstance(row, dict) or not _same(row.get(name), value):
                there = row.get(name) if isinstance(row, dict) else row
                what = f"{verifier} {name} is {_spell(there)}, the lines say {_spell(value)}"
                wrong.append(Disagreement(None, f"summary.json: {what}"))
    return wrong


def _asked(folder: Folder, said: dict[str, Any]) -> set[int] | None:
    """The images that the summary is about; without a list of them, all if their number fits."""
    if "indices" not in said:
        there = set(folder.records)
        return there if said.get("images") == len(there) else None
    found: set[int] = set()
    try:
        for part in said["indices"].split(","):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    except (AttributeError, ValueError):
        return None
    return found


def _count(records: list[Record], images: int) -> dict[str, Any]:
    counts = Counter(record["verdict"] for record in records)
    broken = counts["misclassified"] + counts["falsified"]
    return {
        "images": images,
        "complete": len(records) == images,
        "pending": images - len(records),
        **{verdict: counts[verdict] for verdict in VERDICTS},
        "certified": counts["verified"] / images,
        "certified_upper": 1 - broken / images,
    }


def _by(records: list[Record], verifier: str) -> dict[str, int]:
    mine = Counter(record["verdict"] for record in records if record["by"] == verifier)
    return {
        "reached": sum(verifier in record["times"] for record in records),
        "falsified": mine["falsified"] + mine["misclassified"],
        "verified": mine["verified"],
    }


def _same(said: Any, counted: Any) -> bool:
    if isinstance(counted, float):
        return isinstance(said, int | float) and math.isclose(said, counted, abs_tol=1e-12)
    return said == counted


def _spell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and len(value) == 64:
        return value[:8]  # a hash
    return str(value)
