"""What an audit found, beside the folder that it checked: `audit.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from maar.core.files import write_text
from maar.records.reading import Reader

AUDIT = "audit.json"
MOST_KEPT = 100
"""Disagreements that are kept word for word."""


@dataclass(frozen=True)
class AuditOutcome:
    """The outcome of `maar audit`, and which state of the folder it is about."""

    key: str
    lines: int
    """Lines of the folder when it was checked."""
    last_seal: str
    images: int
    """Images that were checked."""
    of: int
    """Images of the folder."""
    verified: int
    on_trust: int
    """Verified images that nothing in the audit proves again."""
    checks: Mapping[str, int]
    """How a line was checked -> lines that agree."""
    disagreements: int
    wrong: list[str]
    """The first disagreements."""
    notes: list[str]
    made: str
    maar: str
    machine: str

    def write(self, folder: Path) -> None:
        """Write it beside what it is about."""
        write_text(folder / AUDIT, json.dumps(asdict(self), indent=1) + "\n")


def read_audit(folder: Path, reader: Reader) -> AuditOutcome | None:
    """Return the outcome beside a folder's lines; None if there is none, or it is damaged."""
    content = reader.json(folder / AUDIT)
    if not content:
        return None
    kinds = {"str": str, "int": int, "list[str]": list, "Mapping[str, int]": dict}
    values: dict[str, Any] = {}
    for each in fields(AuditOutcome):
        value, kind = content.get(each.name), kinds[str(each.type)]
        items = value.values() if isinstance(value, dict) else value if kind is list else ()
        item = int if kind is dict else str
        if type(value) is not kind or not all(type(one) is item for one in items or ()):
            reader.problems.append(f"{folder / AUDIT} is damaged: {each.name} is {value!r:.100}")
            return None
        values[each.name] = value
    return AuditOutcome(**values)
