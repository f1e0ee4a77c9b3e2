"""Read a folder of `maar certify` without changing it, and say what is wrong with its lines.

The store's own reader cuts a torn line off and believes the rest; this one does neither.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maar.certify.audit.disagreement import Disagreement
from maar.certify.record import Record
from maar.certify.store import MANIFEST, key_of
from maar.certify.tally import VERDICTS
from maar.eps import Eps
from maar.errors import RunError, UsageError

# A verdict that says something about the network: two different ones cannot both be true.
CLAIMS = ("misclassified", "falsified", "verified")


@dataclass
class Folder:
    """What is there; `records` has the line that counts for each image, the last one."""

    path: Path
    manifest: dict[str, Any]
    eps: Eps
    split: str
    valid: int
    """Validation images that the split was made with."""
    lines: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    summary: dict[str, Any] | None = None
    wrong: list[Disagreement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def subject(self) -> dict[str, Any]:
        """The hashes, eps and verifiers that the verdicts are bound to."""
        return self.manifest["subject"]

    @property
    def source(self) -> dict[str, Any]:
        """Where network and data came from; empty in folders of earlier versions."""
        found = self.manifest.get("source")
        return found if isinstance(found, dict) else {}

    def counterexample(self, index: int) -> Path:
        """Where the counterexample of an image should be."""
        return self.path / "counterexamples" / f"{index}.npz"


def read_folder(path: Path) -> Folder:
    """Read everything; only a folder that is none, or whose manifest is unreadable, is refused."""
    if not (path / MANIFEST).is_file():
        raise UsageError(f"{path} is not a folder of `maar certify`: it has no {MANIFEST}")
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        about = manifest["subject"]
        split, _, valid = about["split"].partition(" ")
        folder = Folder(path, manifest, Eps(float(about["eps"])), split, int(valid or 0))
        key, hashes = manifest["key"], [about["weights"], about["data"], manifest["data"]]
        if not all(isinstance(text, str) for text in [key, *hashes]):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunError(f"{path / MANIFEST} is damaged") from None
    if key != key_of(about):
        folder.wrong.append(Disagreement(None, f"{MANIFEST}: its key is not that of its subject"))
    _read_lines(folder)
    _read_summary(folder)
    return folder


def _read_lines(folder: Folder) -> None:
    path = folder.path / "verdicts.jsonl"
    content = path.read_bytes() if path.is_file() else b""
    *whole, torn = content.split(b"\n")
    if torn:
        folder.notes.append("the last line of verdicts.jsonl is torn: left out")
    folder.lines = len(whole)
    places: dict[int, list[tuple[int, str]]] = {}
    for number, line in enumerate(whole, 1):
        try:
            record = json.loads(line)
            index, verdict = record["index"], record["verdict"]
            numbers = (index, record["label"], *record["times"].values())
            if verdict not in VERDICTS or not all(isinstance(n, int | float) for n in numbers):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError):
            _say(folder, None, f"line {number} of verdicts.jsonl is no verdict")
            continue
        folder.records[index] = record
        places.setdefault(index, []).append((number, verdict))
    _judge_repeats(folder, {i: lines for i, lines in places.items() if len(lines) > 1})


def _judge_repeats(folder: Folder, repeats: dict[int, list[tuple[int, str]]]) -> None:
    """An open image may be settled later, a settled one never be settled otherwise."""
    for index, lines in repeats.items():
        said = {verdict: number for number, verdict in lines if verdict in CLAIMS}
        if len(said) > 1:
            claims = " and ".join(f"{verdict} in line {number}" for verdict, number in said.items())
            _say(folder, index, f"{claims} of verdicts.jsonl")
    if repeats:
        few = ", ".join(map(str, list(repeats)[:10])) + (", ..." if len(repeats) > 10 else "")
        folder.notes.append(f"{len(repeats)} images have several lines, the last counts: {few}")


def _read_summary(folder: Folder) -> None:
    path = folder.path / "summary.json"
    if not path.is_file():
        folder.notes.append("no summary.json: the certification has not ended")
        return
    try:
        folder.summary = json.loads(path.read_text())
        if not isinstance(folder.summary, dict):
            raise ValueError
    except ValueError:
        folder.summary = None
        _say(folder, None, "summary.json is damaged")


def _say(folder: Folder, index: int | None, what: str) -> None:
    folder.wrong.append(Disagreement(index, what))
