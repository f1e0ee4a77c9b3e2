"""The folder of a certification or of radii, as it is read.

    manifest.json         what the lines are about, its hash, the key, and the images asked for
    verdicts.jsonl        one line per image; of two lines about one image the later counts
    counterexamples/      INDEX.npz for each falsified image
    summary.json          what the lines add up to, when the last call ended

Lines are sealed (`maar.core.seals`). A reader is strict by default: a folder that was edited is
neither continued nor joined. A report passes `tell`, and gets what can be read with its faults.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from maar.core import limits
from maar.core.errors import RunError, UsageError
from maar.core.seals import BrokenSeal, holds, open_line, strict_json
from maar.core.unpacking import read_limited
from maar.records.checks import MOST_IMAGES, About, indices_of, spans, text, whole
from maar.records.reading import number, word, words
from maar.records.verdicts import Record, check_record

LOCK = ".lock"
MANIFEST = "manifest.json"
SUMMARY = "summary.json"
MODEL = "model"
"""The weights at the end of a run."""
# Part of the key. Raised also when a verifier turned out to have been wrong, so that no verdict of
# the code before is continued or joined: 2 after alpha-CROWN took a NaN for a stable ReLU; 3 has
# seals, and the images that were asked for.
FORMAT = 3
SEALED = 3
"""The first format with seals."""
EVIDENCE = "counterexample"
LAST = "last_seal"
PERTURBATION = "perturbation.npz"
"""The radius of each place and the range, where they are not one eps in [0, 1]."""

Subject = dict[str, Any]
"""What the lines are about: hashes of weights and data, eps, verifiers."""
Tell = Callable[[str], None]
"""Takes a fault of a folder; may raise."""


def refuse(fault: str) -> NoReturn:
    """Raise: the strict reader's answer to a fault."""
    raise RunError(fault)


@dataclass(frozen=True, eq=False)
class Manifest:
    """What a folder says that it is about."""

    key: str
    format: int
    subject: Subject
    network: str
    data: str
    split: str
    of: int
    """Images in the split."""
    verifiers: tuple[str, ...]
    preset: str
    asked: frozenset[int] | None
    """Images that any call asked for; None in formats without seals."""
    source: dict[str, Any]
    """Where network and data came from."""
    machine: str
    content: dict[str, Any]
    """All of it, as it was written."""

    @property
    def is_sealed(self) -> bool:
        """Whether its lines and summary carry seals."""
        return self.format >= SEALED

    @property
    def eps(self) -> float:
        """Radius of a certification; 0 for a search of radii."""
        return number(self.subject, "eps") or 0.0

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes in label order; empty in folders of earlier versions."""
        return words(self.content, "classes")

    @property
    def prepared(self) -> str:
        """What was done to the images before anything else saw them; empty for nothing."""
        return word(self.content, "prepared")

    @property
    def hash(self) -> str:
        """Hash of the weights."""
        return word(self.subject, "weights")

    @property
    def weights(self) -> str:
        """`model`, or a stage's such as `stage-1-last`; earlier versions have it in the name."""
        named = re.search(r"\((stage-\d+-\w+)\)$", self.network)
        asked = word(self.source, "weights") or (named[1] if named else MODEL)
        # (a network of one's own has its weights in a file: they are its only ones)
        return asked if asked.startswith("stage-") else MODEL


@dataclass(frozen=True, eq=False)
class Stored:
    """A folder of results."""

    path: Path
    manifest: Manifest
    lines: list[Record]
    records: dict[int, Record]
    """The last line of each image."""
    seals: list[str]
    """The key, then the seal of each line; of earlier formats the key alone."""
    summary: dict[str, Any]
    """As it was written; {} while there is none."""

    def counterexample(self, index: int) -> Path:
        """Return where the counterexample of an image is, or would be."""
        return self.path / "counterexamples" / f"{index}.npz"


@dataclass(frozen=True)
class Form:
    """The file with one line per image, and what a line of it has."""

    file: str
    check: Callable[[Record, About], None]
    """Raise a `ValueError` unless this can be a line of such a folder."""
    is_broken: Callable[[Record], bool]
    """Whether a line needs a counterexample."""
    claims: tuple[str, ...]
    """Verdicts of which an image can have one only."""
    final: tuple[str, ...]
    """Verdicts that are never asked for again."""

    def read(self, folder: Path, tell: Tell = refuse) -> Stored:
        """Read and check every whole line; a torn last one is passed over.

        The first line that is wrong is told by its number. Lines that are no verdicts are left out.
        """
        path = folder / self.file
        # In this order, for a folder that is being written: its summary counts lines that are
        # there already, its manifest names images before their lines.
        summary = _content(folder / SUMMARY)
        content = _content(path) or b""
        manifest = read_manifest(folder, tell)
        about = About(manifest.of, manifest.verifiers, manifest.asked)
        is_chained, seals, left_out = manifest.is_sealed, [manifest.key], 0
        lines: list[Record] = []
        records: dict[int, Record] = {}
        for place, line in enumerate(content[: content.rfind(b"\n") + 1].split(b"\n")[:-1], 1):
            try:
                if is_chained:
                    line, seal = open_line(seals[-1], line)
                    seals.append(seal)
            except BrokenSeal as error:
                tell(_no_verdict(path, place, error))
                is_chained = False
            try:
                record = self._parse(line, about, records)
            except (ValueError, UnicodeDecodeError) as error:
                if not left_out:
                    tell(_no_verdict(path, place, error))
                left_out += 1
                continue
            lines.append(record)
            records[record["index"]] = record
        if left_out:
            tell(f"{path}: {left_out} lines are no verdicts and are left out")
        stated = _summary(folder / SUMMARY, summary, path, seals if is_chained else None, tell)
        return Stored(folder, manifest, lines, records, seals, stated)

    def _parse(self, line: bytes, about: About, records: dict[int, Record]) -> Record:
        record = strict_json(line)
        if not isinstance(record, dict):
            raise ValueError("it is no JSON object")
        self.check(record, about)
        if why := self.conflict(records.get(record["index"]), record):
            raise ValueError(why)
        return record

    def conflict(self, earlier: Record | None, later: Record) -> str:
        """Return why a line cannot follow another about the same image; empty if it can."""
        if earlier is None:
            return ""
        old, new, index = earlier["verdict"], later["verdict"], later["index"]
        if old in self.claims and new in self.claims and old != new:
            return f"image {index} is {new} here and {old} in a line before"
        return f"image {index} was {old} before: no line may follow" if old in self.final else ""


VERDICT_LINES = Form(
    "verdicts.jsonl",
    check_record,
    lambda record: record["verdict"] == "falsified",
    claims=("misclassified", "falsified", "verified"),
    final=("misclassified", "verified"),
)


def _no_verdict(path: Path, number: int, error: Exception) -> str:
    return f"{path} is damaged: line {number} is no verdict: {_one_line(error)}"


def _content(path: Path) -> bytes | None:
    try:
        return read_limited(path, limits.LINES_BYTES)
    except FileNotFoundError:
        return None


def _summary(
    path: Path, content: bytes | None, lines: Path, seals: list[str] | None, tell: Tell
) -> dict[str, Any]:
    """Return the summary, once it is clear that the lines which it sums up are still there.

    One more may follow them: an interrupt can fall between a line and its count. Without `seals`
    its seals are not looked at.
    """
    if content is None:  # the last call was killed
        return {}
    try:
        summary = strict_json(content)
        if not isinstance(summary, dict):
            raise ValueError("it is no JSON object")
        if seals is None:
            return summary
        count = whole(summary, "lines")
        if not holds(summary):
            raise ValueError("its seal does not fit: it was changed")
    except ValueError as error:
        tell(f"{path} is damaged: {_one_line(error)}")
        return {}
    if count >= len(seals):
        tell(f"{lines} is damaged: it ends after line {len(seals) - 1}, {SUMMARY} counts {count}")
    elif summary.get(LAST) != seals[count]:
        tell(f"{path} is damaged: it does not name the seal of line {count}")
    return summary


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def key_of(subject: Subject, format: int = FORMAT) -> str:
    """Return the hash of a subject: lines with the same key may be put together."""
    text = json.dumps({"format": format, **subject}, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def header(subject: Subject, facts: dict[str, Any], indices: Iterable[int]) -> dict[str, Any]:
    """Return what a summary begins with."""
    return {
        "network": facts["network"],
        "data": facts["data"],
        "split": facts["split"],
        "indices": spans(indices),
        **{name: value for name, value in subject.items() if isinstance(value, float)},
        "preset": facts.get("preset", ""),
        "key": key_of(subject),
        "weights": subject["weights"],
    }


def read_manifest(path: Path, tell: Tell = refuse) -> Manifest:
    """Return what a folder says that it is about, checked against its key and its seal.

    One that cannot be understood is a `RunError`; one that was edited is told.
    """
    manifest = path / MANIFEST
    try:
        content = strict_json(read_limited(manifest, limits.JSON_BYTES))
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
        found = _manifest(content)
        edits = list(_edits(found))
    except FileNotFoundError:
        raise UsageError(f"{path} is not a folder of results: it has no {MANIFEST}") from None
    except (ValueError, KeyError, TypeError) as error:
        why = _one_line(error)
        raise RunError(f"{manifest} is damaged ({why}): give another folder with --out") from None
    for why in edits:
        tell(f"{manifest} is damaged ({why}): give another folder with --out")
    return found


def _manifest(content: dict[str, Any]) -> Manifest:
    format, subject = whole(content, "format", FORMAT + 1), content["subject"]
    if not isinstance(subject, dict):
        raise ValueError("it does not say what it is about")
    names, source = content["verifiers"], content.get("source")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"verifiers is {names!r} (accepted: a list of names)")
    images = whole(content, "images", MOST_IMAGES)
    return Manifest(
        key=text(content, "key"),
        format=format,
        subject=subject,
        network=text(content, "network"),
        data=text(content, "data"),
        split=text(content, "split"),
        of=images,
        verifiers=tuple(names),
        preset=word(content, "preset"),
        asked=indices_of(content["asked"], images) if format >= SEALED else None,
        source=source if isinstance(source, dict) else {},
        machine=word(content, "machine"),
        content=content,
    )


def _edits(manifest: Manifest) -> Iterable[str]:
    if manifest.is_sealed and manifest.key != key_of(manifest.subject, manifest.format):
        yield "its key is not that of its subject"
    if manifest.is_sealed and not holds(manifest.content):
        yield "its seal does not fit: it was changed"


def difference(there: Manifest, subject: Subject) -> str:
    """Say in what a manifest's subject is another."""
    old = there.subject
    parts = [
        f"{name}: {_two(old.get(name), subject.get(name))}"
        for name in dict.fromkeys([*old, *subject])
        if old.get(name) != subject.get(name)
    ]
    return "; ".join(parts) or f"format {there.format} there, {FORMAT} here"


def _two(old: object, new: object) -> str:
    if not isinstance(old, list) or not isinstance(new, list):
        return f"{_short(old)} there, {_short(new)} here"
    # Of verifiers only those that are not the same: the others would hide them.
    only = ([str(item) for item in a if item not in b] for a, b in ((old, new), (new, old)))
    parts = [
        f"{', '.join(items)} only {where}"
        for items, where in zip(only, ("there", "here"), strict=True)
        if items
    ]
    return ", ".join(parts) or "in another order"


def _short(value: object) -> str:
    text = str(value)
    return text[:8] if len(text) == 64 else text  # (a hash)
