"""The folder of a certification: append-only, bound to what it is about, continued on request.

    manifest.json         what the verdicts are about, and its hash, the key
    verdicts.jsonl        one line per image; of two lines about one image the later counts
    counterexamples/      INDEX.npz for each falsified image
    summary.json          of the last call that ended

Killed at any moment, at most the images being worked on are lost. A counterexample is written
before its line, so a falsified line always has one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from maar import limits
from maar.certify.record import Record, spans
from maar.certify.verdict import Status
from maar.errors import RunError, UsageError
from maar.files import locked, write_bytes, write_text
from maar.unpacking import parse_json, read_json, read_limited

LOCK = ".lock"
MANIFEST = "manifest.json"
# Part of the key. Raised also when a verifier turned out to have been wrong, so that no verdict of
# the code before is continued or joined: 2 after alpha-CROWN took a NaN for a stable ReLU.
FORMAT = 2

Subject = dict[str, Any]
"""What the verdicts are about: hashes of weights and data, eps, verifiers."""


@dataclass(frozen=True)
class Form:
    """The file with one line per image, and what a line of it has."""

    file: str
    fields: Mapping[str, type | tuple[type, ...]]
    verdicts: frozenset[str]
    is_broken: Callable[[Record], bool]
    """Whether a line needs a counterexample."""

    def read(self, folder: Path) -> list[Record]:
        """The whole lines in order; a torn last one is passed over."""
        path = folder / self.file
        try:
            content = read_limited(path, limits.LINES_BYTES)
        except FileNotFoundError:
            return []
        records = []
        for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
            try:
                record = parse_json(line)
                self._check(record)
            except (ValueError, TypeError, KeyError):
                raise RunError(f"{path} is damaged: line {number} is no verdict") from None
            records.append(record)
        return records

    def _check(self, record: Record) -> None:
        for name, kind in self.fields.items():
            if not isinstance(record[name], kind):
                raise TypeError
        if record["verdict"] not in self.verdicts:
            raise ValueError


NUMBER = (int, float)
VERDICTS = Form(
    "verdicts.jsonl",
    {
        "index": int,
        "label": int,
        "verdict": str,
        "by": (str, NoneType),
        "seconds": NUMBER,
        "times": dict,
    },
    frozenset(status.value for status in Status),
    lambda record: record["verdict"] == "falsified",
)


def key_of(subject: Subject) -> str:
    """The hash of a subject: verdicts with the same key may be put together."""
    text = json.dumps({"format": FORMAT, **subject}, sort_keys=True, allow_nan=False)
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


class Store:
    """An open, locked folder; `records` has the verdicts so far by index."""

    def __init__(
        self, path: Path, subject: Subject, facts: dict[str, Any], form: Form = VERDICTS
    ) -> None:
        self.path = path
        self.key = key_of(subject)
        self.form = form
        self.verdicts = path / form.file
        self._begin(subject, facts)
        self.lines = form.read(path)
        _cut_torn_line(self.verdicts)
        self.records = {record["index"]: record for record in self.lines}

    def _begin(self, subject: Subject, facts: dict[str, Any]) -> None:
        manifest = self.path / MANIFEST
        if not manifest.exists():
            content = {"key": self.key, "format": FORMAT, "subject": subject, **facts}
            write_text(manifest, json.dumps(content, indent=1) + "\n")
            return
        there = read_manifest(self.path)
        if there["key"] != self.key:
            raise UsageError(
                f"{self.path} is about something else ({difference(there, subject)}): "
                "give another folder with --out"
            )

    def add(self, record: Record, counterexample: dict[str, Any] | None) -> None:
        """Append a verdict, after the arrays of its counterexample, if there is one."""
        content = None
        if counterexample is not None:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **counterexample)
            content = buffer.getvalue()
        self._append(record, content)

    def copy(self, record: Record, other: Store) -> None:
        """Append a verdict of another store, with its counterexample."""
        content = None
        if self.form.is_broken(record):
            path = other.counterexample(record["index"])
            try:
                content = read_limited(path, limits.COUNTEREXAMPLE_BYTES)
            except FileNotFoundError:
                raise RunError(
                    f"{path} is gone, so image {record['index']} of {other.path} is not known to "
                    "be falsified: certify it again"
                ) from None
        self._append(record, content)

    def _append(self, record: Record, counterexample: bytes | None) -> None:
        if counterexample is not None:
            write_bytes(self.counterexample(record["index"]), counterexample)
        # Closed, hence with the kernel and safe from kill -9, when this returns.
        with open(self.verdicts, "ab") as file:
            file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
        self.lines.append(record)
        self.records[record["index"]] = record

    def whole(self, index: int) -> Record | None:
        """The verdict on an image; None if there is none, or its counterexample is gone."""
        record = self.records.get(index)
        is_torn = record and self.form.is_broken(record) and not self.counterexample(index).exists()
        return None if is_torn else record

    def counterexample(self, index: int) -> Path:
        """Where the counterexample of an image is, or would be."""
        return self.path / "counterexamples" / f"{index}.npz"

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Replace summary.json."""
        write_text(self.path / "summary.json", json.dumps(summary, indent=1) + "\n")

    def drop_summary(self) -> None:
        """Work begins: a summary of less must not be taken for one of all."""
        (self.path / "summary.json").unlink(missing_ok=True)


def read_manifest(path: Path) -> dict[str, Any]:
    """What a store says that it is about, checked against its key."""
    manifest = path / MANIFEST
    try:
        there = read_json(manifest)
        if there["key"] != key_of(there["subject"]) and there["format"] == FORMAT:
            raise ValueError
    except FileNotFoundError:
        raise UsageError(f"{path} is not a folder of results: it has no {MANIFEST}") from None
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{manifest} is damaged: give another folder with --out") from None
    return there


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
