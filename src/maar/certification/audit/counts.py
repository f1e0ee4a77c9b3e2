"""summary.json against the lines that it sums up."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from maar.certification.audit.disagreement import Disagreement
from maar.certification.audit.folder import Folder, indices
from maar.records.verdicts import VERDICTS, Record

# Parts of a summary that are copied from the manifest, and those of its subject.
FACTS, SUBJECT = ("network", "data", "split", "preset"), ("eps", "weights")
Z = 1.959964
"""Of the normal distribution, 95 % are this near."""


def recount(folder: Folder) -> list[Disagreement]:
    """Count again what summary.json says, and name the images that it counts without a line.

    Older summaries may lack parts: only the present format must have all of them.
    """
    summary = folder.summary
    if summary is None:
        return []
    asked = _asked(folder, summary)
    if asked is None:
        return [Disagreement(None, "summary.json does not say which images it is about")]
    wrong = [
        Disagreement(index, "summary.json counts it, verdicts.jsonl has no line of it")
        for index in sorted(asked - folder.summed.keys())
        if summary.get("complete")
    ]
    records = [folder.summed[index] for index in sorted(asked & folder.summed.keys())]
    is_old = not folder.frame.is_sealed
    counted = {
        "key": folder.manifest["key"],
        **{name: folder.subject[name] for name in SUBJECT},
        **{name: folder.manifest[name] for name in FACTS if name in folder.manifest},
        **_count(records, len(asked), folder),
    }
    for name, value in counted.items():
        if name in summary or not is_old:
            wrong += _compare(name, summary.get(name), value)
    rows = summary.get("verifiers")
    rows = rows if isinstance(rows, dict) else {}
    if not is_old and list(rows) != list(folder.frame.verifiers):
        wrong.append(Disagreement(None, "summary.json names other verifiers than the manifest"))
    for verifier, row in rows.items():
        for name, value in _by(records, verifier).items():
            if name != "seconds" or not is_old:
                value_here = row.get(name) if isinstance(row, dict) else row
                wrong += _compare(f"{verifier} {name}", value_here, value)
    return wrong


def _compare(name: str, stated: Any, counted: Any) -> list[Disagreement]:
    if _same(stated, counted, 2e-3 if name.endswith("seconds") else 1e-9):
        return []
    what = f"summary.json: {name} is {_spell(stated)}, the lines say {_spell(counted)}"
    return [Disagreement(None, what)]


def _asked(folder: Folder, summary: dict[str, Any]) -> frozenset[int] | None:
    """Return the images that the summary is about; without a list, all if their number fits."""
    if "indices" not in summary:
        images = frozenset(folder.records)
        is_old = not folder.frame.is_sealed
        return images if is_old and summary.get("images") == len(images) else None
    try:
        asked = indices(summary["indices"], folder.frame.images)
    except (AttributeError, ValueError):
        return None
    return asked if folder.frame.asked is None or asked <= folder.frame.asked else None


def _count(records: list[Record], images: int, folder: Folder) -> dict[str, Any]:
    counts = Counter(record["verdict"] for record in records)
    broken = counts["misclassified"] + counts["falsified"]
    counted = {
        "images": images,
        "complete": len(records) == images,
        "pending": images - len(records),
        **{verdict: counts[verdict] for verdict in VERDICTS},
        "certified": counts["verified"] / max(1, images),
        "certified_upper": 1 - broken / max(1, images),
    }
    if not folder.frame.is_sealed:
        return counted
    looked_at = sum("misclassified" in record["times"] for record in records)
    is_part = counted["complete"] and images < folder.frame.images
    ends = [_wilson(counts["verified"], images)[0], _wilson(images - broken, images)[1]]
    return {
        **counted,
        "of": folder.frame.images,
        "accuracy": 1 - counts["misclassified"] / images if looked_at == images else None,
        "certified_interval95": ends if is_part else None,
        "seconds": sum(sum(record["times"].values()) for record in records),
    }


def _wilson(hits: int, trials: int) -> tuple[float, float]:
    """Return the roots p of (hits / trials - p)^2 = Z^2 p (1 - p) / trials."""
    a, b, c = trials + Z * Z, 2 * hits + Z * Z, hits * hits / trials
    root = math.sqrt(max(0.0, b * b - 4 * a * c))
    return max(0.0, (b - root) / (2 * a)), min(1.0, (b + root) / (2 * a))


def _by(records: list[Record], verifier: str) -> dict[str, Any]:
    mine = Counter(record["verdict"] for record in records if record["by"] == verifier)
    return {
        "reached": sum(verifier in record["times"] for record in records),
        "falsified": mine["falsified"] + mine["misclassified"],
        "verified": mine["verified"],
        "seconds": float(sum(record["times"].get(verifier, 0.0) for record in records)),
    }


def _same(stated: Any, counted: Any, tolerance: float) -> bool:
    if isinstance(counted, list):
        return (
            isinstance(stated, list)
            and len(stated) == len(counted)
            and all(_same(*pair, tolerance) for pair in zip(stated, counted, strict=True))
        )
    if isinstance(counted, float):
        is_number = isinstance(stated, int | float) and not isinstance(stated, bool)
        return is_number and math.isclose(stated, counted, rel_tol=1e-9, abs_tol=tolerance)
    return stated == counted and isinstance(stated, bool) == isinstance(counted, bool)


def _spell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and len(value) == 64:
        return value[:8]  # a hash
    return str(value)
