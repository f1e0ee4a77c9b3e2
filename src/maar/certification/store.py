"""The folder of a certification: append-only, bound to what it is about, continued on request.

    manifest.json         what the verdicts are about, its hash, the key, and the images asked for
    verdicts.jsonl        one line per image; of two lines about one image the later counts
    counterexamples/      INDEX.npz for each falsified image
    summary.json          of the last call that ended

Killed at any moment, at most the images being worked on are lost. A counterexample is written
before its line, so a falsified line always has one. Lines are sealed (`maar.core.seals`) and read
strictly: a folder that was edited is neither continued nor joined.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maar.certification.checks import MOST_IMAGES, About, indices_of, spans, text, whole
from maar.certification.record import Record, check_record
from maar.core import limits
from maar.core.errors import RunError, UsageError
from maar.core.files import locked, write_bytes, write_text
from maar.core.seals import (
    file_seal,
    holds,
    open_line,
    seal_line,
    sealed,
    strict_json,
)
from maar.core.unpacking import read_limited

LOCK = ".lock"
MANIFEST = "manifest.json"
SUMMARY = "summary.json"
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
# Facts beside the subject that follow from it: folders of one key have the same.
DETERMINED = ("split", "images", "verifiers")

Subject = dict[str, Any]
"""What the verdicts are about: hashes of weights and data, eps, verifiers."""


@dataclass(frozen=True)
class Lines:
    """The lines of a file, checked."""

    records: list[Record]
    seals: list[str]
    """The folder's key, then the seal of each line; of earlier formats the key alone."""


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

    def read(self, folder: Path) -> list[Record]:
        """Return the whole lines in order; a torn last one is passed over."""
        return self.lines(folder).records

    def lines(self, folder: Path) -> Lines:
        """Read and check every line; the first that is wrong is a `RunError` that names it."""
        path = folder / self.file
        # In this order, for a folder that is being written: its summary counts lines that are
        # there already, its manifest names images before their lines.
        summary = _content(folder / SUMMARY)
        content = _content(path) or b""
        manifest = read_manifest(folder)
        is_sealed = manifest["format"] >= SEALED
        about, seals = _about(manifest), [manifest["key"]]
        records: list[Record] = []
        latest: dict[int, Record] = {}
        for number, line in enumerate(content[: content.rfind(b"\n") + 1].split(b"\n")[:-1], 1):
            try:
                if is_sealed:
                    line, seal = open_line(seals[-1], line)
                    seals.append(seal)
                record = strict_json(line)
                if not isinstance(record, dict):
                    raise ValueError("it is no JSON object")
                self.check(record, about)
                if why := self.conflict(latest.get(record["index"]), record):
                    raise ValueError(why)
            except (ValueError, UnicodeDecodeError) as error:
                why = _one_line(error)
                raise RunError(f"{path} is damaged: line {number} is no verdict: {why}") from None
            records.append(record)
            latest[record["index"]] = record
        if is_sealed and summary is not None:  # (without one, the last call was killed)
            _check_summary(folder / SUMMARY, summary, path, seals)
        return Lines(records, seals)

    def conflict(self, earlier: Record | None, later: Record) -> str:
        """Return why a line cannot follow another about the same image; empty if it can."""
        if earlier is None:
            return ""
        old, new, index = earlier["verdict"], later["verdict"], later["index"]
        if old in self.claims and new in self.claims and old != new:
            return f"image {index} is {new} here and {old} in a line before"
        return f"image {index} was {old} before: no line may follow" if old in self.final else ""


VERDICTS = Form(
    "verdicts.jsonl",
    check_record,
    lambda record: record["verdict"] == "falsified",
    claims=("misclassified", "falsified", "verified"),
    final=("misclassified", "verified"),
)


def _about(manifest: dict[str, Any]) -> About:
    asked = manifest.get("asked")
    known = None if asked is None else indices_of(asked, manifest["images"])
    return About(manifest["images"], tuple(manifest["verifiers"]), known)


def _content(path: Path) -> bytes | None:
    try:
        return read_limited(path, limits.LINES_BYTES)
    except FileNotFoundError:
        return None


def _check_summary(path: Path, content: bytes, lines: Path, seals: list[str]) -> None:
    """Check that the lines which were summed up are still there.

    One more may follow them: an interrupt can fall between a line and its count.
    """
    try:
        summary = strict_json(content)
        if not isinstance(summary, dict):
            raise ValueError("it is no JSON object")
        count = whole(summary, "lines")
        if not holds(summary):
            raise ValueError("its seal does not fit: it was changed")
    except ValueError as error:
        raise RunError(f"{path} is damaged: {_one_line(error)}") from None
    if count >= len(seals):
        raise RunError(
            f"{lines} is damaged: it ends after line {len(seals) - 1}, {SUMMARY} counts {count}"
        )
    if summary.get(LAST) != seals[count]:
        raise RunError(f"{path} is damaged: it does not name the seal of line {count}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def key_of(subject: Subject, format: int = FORMAT) -> str:
    """The hash of a subject: verdicts with the same key may be put together."""
    text = json.dumps({"format": format, **subject}, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def header(subject: Subject, facts: dict[str, Any], indices: Iterable[int]) -> dict[str, Any]:
    """What a summary begins with."""
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


def keep_perturbation(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write the numbers behind the hash `perturbation` of a subject, once."""
    if not (path / PERTURBATION).exists():
        write_bytes(path / PERTURBATION, _npz(arrays))


class Store:
    """An open, locked folder; `records` has the verdicts so far by index."""

    def __init__(
        self, path: Path, subject: Subject, facts: dict[str, Any], form: Form = VERDICTS
    ) -> None:
        self.path = path
        self.key = key_of(subject)
        self.form = form
        self.verdicts = path / form.file
        self.manifest = self._begin(subject, facts)
        read = form.lines(path)
        self.lines, self._seal = read.records, read.seals[-1]
        _cut_torn_line(self.verdicts)
        self.records = {record["index"]: record for record in self.lines}

    def _begin(self, subject: Subject, facts: dict[str, Any]) -> dict[str, Any]:
        if not (self.path / MANIFEST).exists():
            about = {"key": self.key, "format": FORMAT, "subject": subject}
            self._write_manifest({**about, **facts, "asked": ""})
        manifest = read_manifest(self.path)
        if manifest["key"] != self.key or manifest["format"] != FORMAT:
            raise UsageError(
                f"{self.path} is about something else ({difference(manifest, subject)}): "
                "give another folder with --out"
            )
        for name in DETERMINED:
            if name in facts and manifest[name] != facts[name]:
                what = f"{name} is {manifest[name]!r}, of what it is about it is {facts[name]!r}"
                raise RunError(f"{self.path / MANIFEST} is damaged: {what}")
        return manifest

    def _write_manifest(self, content: dict[str, Any]) -> None:
        text = json.dumps(sealed(content), indent=1)
        write_text(self.path / MANIFEST, text + "\n")

    @property
    def asked(self) -> frozenset[int]:
        """All images that any call has asked for."""
        return indices_of(self.manifest["asked"], self.manifest["images"])

    def ask(self, indices: Iterable[int]) -> None:
        """Enter images that are asked for, before their lines: the folder has no others."""
        asked = spans(self.asked.union(indices))
        if asked != self.manifest["asked"]:
            self.manifest = {**self.manifest, "asked": asked}
            self._write_manifest(self.manifest)

    def add(self, record: Record, counterexample: dict[str, Any] | None) -> None:
        """Append a verdict, after the arrays of its counterexample, if there is one."""
        content = None
        if counterexample is not None:
            content = _npz(counterexample)
        self._append(record, content)

    def copy(self, record: Record, other: Store) -> None:
        """Append a verdict of another store, with its counterexample."""
        content = None
        if self.form.is_broken(record):
            path = other.counterexample(record["index"])
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                raise RunError(
                    f"{path} is gone, so image {record['index']} of {other.path} is not known to "
                    "be falsified: certify it again"
                ) from None
            if file_seal(content) != record.get(EVIDENCE):
                raise RunError(
                    f"{path} is not the counterexample that the line of image {record['index']} "
                    f"in {other.verdicts} names: certify it again"
                )
        self._append(record, content)

    def _append(self, record: Record, counterexample: bytes | None) -> None:
        index = record["index"]
        if why := self.form.conflict(self.records.get(index), record):
            raise RunError(f"{self.verdicts}: {why}")
        if counterexample is not None:
            write_bytes(self.counterexample(index), counterexample)
            record = {**record, EVIDENCE: file_seal(counterexample)}
        line, seal = seal_line(self._seal, record)
        # Closed, hence with the kernel and safe from kill -9, when this returns.
        with open(self.verdicts, "ab") as file:
            file.write(line + b"\n")
        self._seal = seal
        self.lines.append(record)
        self.records[record["index"]] = record

    def whole(self, index: int) -> Record | None:
        """Return the verdict on an image; None without one, or without its counterexample.

        A file that is not the one which the line names is no counterexample.
        """
        record = self.records.get(index)
        if record is None or not self.form.is_broken(record):
            return record
        try:
            content = self.counterexample(index).read_bytes()
        except FileNotFoundError:
            return None
        return record if file_seal(content) == record.get(EVIDENCE) else None

    def counterexample(self, index: int) -> Path:
        """Where the counterexample of an image is, or would be."""
        return self.path / "counterexamples" / f"{index}.npz"

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Replace summary.json."""
        content = sealed({**summary, "lines": len(self.lines), LAST: self._seal})
        write_text(self.path / SUMMARY, json.dumps(content, indent=1) + "\n")

    def drop_summary(self) -> None:
        """Work begins: a summary of less must not be taken for one of all."""
        (self.path / SUMMARY).unlink(missing_ok=True)


def read_manifest(path: Path) -> dict[str, Any]:
    """Return what a store says that it is about, checked against its key and its seal."""
    manifest = path / MANIFEST
    try:
        content = strict_json(read_limited(manifest, limits.JSON_BYTES))
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
        _check_manifest(content)
    except FileNotFoundError:
        raise UsageError(f"{path} is not a folder of results: it has no {MANIFEST}") from None
    except (ValueError, KeyError, TypeError) as error:
        why = _one_line(error)
        raise RunError(f"{manifest} is damaged ({why}): give another folder with --out") from None
    return content


def _check_manifest(content: dict[str, Any]) -> None:
    format, subject = whole(content, "format", FORMAT + 1), content["subject"]
    if not isinstance(subject, dict):
        raise ValueError("it does not say what it is about")
    text(content, "key")
    whole(content, "images", MOST_IMAGES)
    for name in ("network", "data", "split"):
        text(content, name)
    names = content["verifiers"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"verifiers is {names!r} (accepted: a list of names)")
    if format >= SEALED and content["key"] != key_of(subject, format):
        raise ValueError("its key is not that of its subject")
    if format >= SEALED:
        indices_of(content["asked"], content["images"])
        if not holds(content):
            raise ValueError("its seal does not fit: it was changed")


@contextlib.contextmanager
def open_store(
    path: Path, subject: Subject, facts: dict[str, Any], form: Form = VERDICTS
) -> Iterator[Store]:
    """Lock the folder and read it; one of another subject, or in use, is refused."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is not a folder: give another with --out")
    # Before the lock: a folder of somebody else's gets no file of ours.
    entries = [] if not path.exists() else [entry.name for entry in path.iterdir()]
    if MANIFEST not in entries and any(not name.startswith(".") for name in entries):
        raise UsageError(f"{path} holds something else: give another with --out")
    with locked(path / LOCK, wait=False):
        yield Store(path, subject, facts, form)


def _npz(arrays: dict[str, Any]) -> bytes:
    """Return the arrays as a compressed .npz without a date: equal arrays make equal files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy")
            file.writestr(info, member.getvalue(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _cut_torn_line(path: Path) -> None:
    """The process was killed while it wrote: what is not a whole line is no verdict."""
    if not path.exists():
        return
    with open(path, "rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def difference(there: dict[str, Any], subject: Subject) -> str:
    """In what a manifest's subject is another, for people."""
    old = there["subject"]
    parts = [
        f"{name}: {_two(old.get(name), subject.get(name))}"
        for name in dict.fromkeys([*old, *subject])
        if old.get(name) != subject.get(name)
    ]
    return "; ".join(parts) or f"format {there['format']} there, {FORMAT} here"


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
