"""Read a folder of `maar certify` without changing it, and say what is wrong with its lines.

The store's own reader cuts a torn line off and stops at the first fault; this one does neither.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from maar.certification.audit.disagreement import Disagreement
from maar.certification.audit.lines import Frame, digest, parse, read
from maar.certification.audit.points import Limits
from maar.core import limits
from maar.core.eps import Eps
from maar.core.errors import MaarError, RunError, UsageError
from maar.core.unpacking import read_npz
from maar.records.verdicts import Record

MANIFEST = "manifest.json"
LINES = "verdicts.jsonl"
NEWEST = 3
SEALED = 3
"""The first format with seals, and with the images that were asked for."""
MOST_IMAGES = 1 << 24
# A verdict that says something about the network: two different ones cannot both be true.
CLAIMS = ("misclassified", "falsified", "verified")
# Nothing is asked again about such an image.
FINAL = ("misclassified", "verified")


@dataclass
class Folder:
    """The content of a folder; `records` has each image's last line, the one that counts."""

    path: Path
    manifest: dict[str, Any]
    eps: Eps
    split: str
    valid: int
    """Validation images that the split was made with."""
    frame: Frame
    lines: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    summed: dict[int, Record] = field(default_factory=dict)
    """The same of the lines that the summary counts."""
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
        source = self.manifest.get("source")
        return source if isinstance(source, dict) else {}

    @cached_property
    def near(self) -> Limits:
        """Which inputs its verdicts are about."""
        eps, stated = float(self.eps), self.subject.get("perturbation")
        if stated is None:
            return Limits.of(eps)
        path = self.path / "perturbation.npz"
        try:
            arrays = read_npz(path, limits.COUNTEREXAMPLE_BYTES, keys=("each", "low", "high"))
            each, low, high = (arrays[name] for name in ("each", "low", "high"))
        except (MaarError, OSError, KeyError) as error:
            raise RunError(f"{path} cannot be read: {error}") from None
        total = hashlib.sha256()
        for name, array in (("each", each), ("low", low), ("high", high)):
            if array.dtype != np.float64 or array.shape != each.shape:
                raise RunError(f"{path} is damaged: {name} is {array.dtype} {array.shape}")
            total.update(f"{name} {array.shape}\n".encode() + array.astype("<f8").tobytes())
        if total.hexdigest() != stated or not each.size or float(each.max()) != eps:
            raise RunError(f"{path} does not hold the numbers that {MANIFEST} is about")
        return Limits(eps, each, low, high)

    @property
    def format(self) -> int:
        """The number of the format that it was written in."""
        return self.manifest["format"]

    def counterexample(self, index: int) -> Path:
        """Where the counterexample of an image should be."""
        return self.path / "counterexamples" / f"{index}.npz"


def read_folder(path: Path) -> Folder:
    """Read everything; only a folder that is none, or whose manifest is unreadable, is refused."""
    if not (path / MANIFEST).is_file():
        raise UsageError(f"{path} is not a folder of `maar certify`: it has no {MANIFEST}")
    try:
        folder = _begin(path, parse((path / MANIFEST).read_bytes()))
    except (ValueError, KeyError, TypeError, AttributeError, MaarError):
        raise RunError(f"{path / MANIFEST} is damaged") from None
    _check_hashes(folder)
    _read_summary(folder)
    _read_lines(folder)
    _note_images(folder)
    return folder


def _begin(path: Path, manifest: dict[str, Any]) -> Folder:
    about, format = manifest["subject"], manifest["format"]
    split, _, valid = about["split"].partition(" ")
    if type(format) is not int or not 1 <= format <= NEWEST:
        raise ValueError
    is_sealed = format >= SEALED
    if not is_sealed:  # the first folders said neither
        manifest = {"images": MOST_IMAGES - 1, "verifiers": [], **manifest}
    images, names = manifest["images"], manifest["verifiers"]
    texts = [manifest["key"], manifest["data"], manifest["split"], about["weights"], about["data"]]
    if type(images) is not int or not 0 < images < MOST_IMAGES or type(about["eps"]) is not float:
        raise ValueError
    if not all(isinstance(text, str) for text in (*texts, *names, *about["verifiers"])):
        raise TypeError
    asked = indices(manifest["asked"], images) if is_sealed else None
    frame = Frame(manifest["key"], images, tuple(names), asked, is_sealed)
    most = math.inf if "perturbation" in about else 1.0
    return Folder(path, manifest, Eps(about["eps"], most), split, int(valid or 0), frame)


def indices(spelled: str, images: int) -> frozenset[int]:
    """Return the numbers of `0-9,12`; `ValueError` unless all are below `images`."""
    numbers: set[int] = set()
    for part in spelled.split(",") if spelled else []:
        ends = [int(end) if end.isdecimal() else -1 for end in part.split("-")]
        if len(ends) > 2 or not 0 <= ends[0] <= ends[-1] < images:
            raise ValueError
        numbers.update(range(ends[0], ends[-1] + 1))
    return frozenset(numbers)


def _check_hashes(folder: Folder) -> None:
    """The key is the hash of the subject, the seal that of the whole manifest."""
    about = {"format": folder.format, **folder.subject}
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    if folder.manifest["key"] != key:
        _say(folder, None, f"{MANIFEST}: its key is not that of its subject")
    if not folder.frame.is_sealed:
        folder.notes.append(
            f"format {folder.format} has no seals: edits by hand show only where a check fails"
        )
        return
    _check_seal(folder, MANIFEST, folder.manifest)


def _check_seal(folder: Folder, name: str, content: dict[str, Any]) -> None:
    rest = {key: value for key, value in content.items() if key != "seal"}
    if content.get("seal") != digest(json.dumps(rest, sort_keys=True)):
        _say(folder, None, f"{name}: its seal does not fit, so it was changed")


def _read_lines(folder: Folder) -> None:
    path = folder.path / LINES
    content = path.read_bytes() if path.is_file() else b""
    *whole, torn = content.split(b"\n")
    if torn:
        folder.notes.append(f"the last line of {LINES} is torn: left out")
    folder.lines = len(whole)
    summed = (folder.summary or {}).get("lines", len(whole))
    seals, places = [folder.frame.key], dict[int, list[tuple[int, str]]]()
    for line in read(whole, folder.frame):
        number, record = line.number, line.record
        seals.append(line.seal)
        for why in line.faults:
            index = None if record is None else record["index"]
            _say(folder, index, f"line {number} of {LINES} {why}")
        if record is None:
            continue
        folder.records[record["index"]] = record
        if number <= summed:
            folder.summed[record["index"]] = record
        places.setdefault(record["index"], []).append((number, record["verdict"]))
    if folder.frame.is_sealed and folder.summary is not None:
        _check_seal(folder, "summary.json", folder.summary)
        _check_end(folder, summed, seals)
    _judge_repeats(folder, {i: lines for i, lines in places.items() if len(lines) > 1})


def _check_end(folder: Folder, summed: Any, seals: list[str]) -> None:
    """Check that the lines which the summary counts are all there."""
    assert folder.summary is not None
    if type(summed) is not int or not 0 <= summed < len(seals):
        _say(folder, None, f"summary.json counts {summed} lines, {LINES} has {folder.lines}")
    elif folder.summary.get("last_seal") != seals[summed]:
        _say(folder, None, f"summary.json does not name the seal of line {summed} of {LINES}")
    elif summed < folder.lines:
        folder.notes.append(f"{folder.lines - summed} lines came after summary.json")


def _judge_repeats(folder: Folder, repeats: dict[int, list[tuple[int, str]]]) -> None:
    """An open image may be settled later, a settled one never be settled otherwise."""
    for index, lines in repeats.items():
        claims = {verdict: number for number, verdict in lines if verdict in CLAIMS}
        if len(claims) > 1:
            words = " and ".join(
                f"{verdict} in line {number}" for verdict, number in claims.items()
            )
            _say(folder, index, f"{words} of {LINES}")
            continue
        for (number, verdict), (later, _) in pairwise(lines):
            if verdict in FINAL:
                _say(folder, index, f"{verdict} in line {number} of {LINES}, again in line {later}")
    if repeats:
        few = ", ".join(map(str, list(repeats)[:10])) + (", ..." if len(repeats) > 10 else "")
        folder.notes.append(f"{len(repeats)} images have several lines, the last counts: {few}")


def _note_images(folder: Folder) -> None:
    """Say which images the folder is about, where these are not simply the first ones."""
    images = sorted(folder.records)
    asked = folder.frame.asked
    missing = sorted((asked or frozenset()) - folder.records.keys())
    if missing:
        folder.notes.append(
            f"{len(missing)} of the {len(asked or ())} images that were asked for have no line: "
            f"{_few(missing)}"
        )
    if images and images != list(range(len(images))):
        folder.notes.append(
            f"the folder has a choice of {len(images)} images ({_few(images)}), not the first "
            "ones: its shares are about these alone"
        )


def _few(images: list[int]) -> str:
    return ", ".join(map(str, images[:10])) + (", ..." if len(images) > 10 else "")


def _read_summary(folder: Folder) -> None:
    path = folder.path / "summary.json"
    if not path.is_file():
        folder.notes.append("no summary.json: the certification has not ended")
        return
    try:
        folder.summary = parse(path.read_bytes())
        if not isinstance(folder.summary, dict):
            raise ValueError
        if folder.frame.is_sealed and type(folder.summary.get("lines")) is not int:
            raise ValueError
    except ValueError:
        folder.summary = None
        _say(folder, None, "summary.json is damaged")


def _say(folder: Folder, index: int | None, what: str) -> None:
    folder.wrong.append(Disagreement(index, what))
