"""A folder of results, open to be written: append-only, bound to what it is about.

Killed at any moment, at most the images being worked on are lost. A counterexample is written
before its line, so a falsified line always has one.
"""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from maar.core.errors import RunError, UsageError
from maar.core.files import locked, write_bytes, write_text
from maar.core.seals import file_seal, seal_line, sealed
from maar.records.checks import spans
from maar.records.stores import (
    EVIDENCE,
    FORMAT,
    LAST,
    LOCK,
    MANIFEST,
    PERTURBATION,
    SUMMARY,
    VERDICT_LINES,
    Form,
    Manifest,
    Subject,
    difference,
    key_of,
    read_manifest,
)
from maar.records.verdicts import Record

# Facts beside the subject that follow from it: folders of one key have the same.
DETERMINED = ("split", "images", "verifiers")


def keep_perturbation(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write the numbers behind the hash `perturbation` of a subject, once."""
    if not (path / PERTURBATION).exists():
        write_bytes(path / PERTURBATION, _npz(arrays))


class Store:
    """An open, locked folder; `records` has the verdicts so far by index."""

    def __init__(
        self, path: Path, subject: Subject, facts: dict[str, Any], form: Form = VERDICT_LINES
    ) -> None:
        self.path = path
        self.key = key_of(subject)
        self.form = form
        self.verdicts = path / form.file
        self.manifest = self._begin(subject, facts)
        stored = form.read(path)
        self.lines, self.records, self._seal = stored.lines, stored.records, stored.seals[-1]
        _cut_torn_line(self.verdicts)

    def _begin(self, subject: Subject, facts: dict[str, Any]) -> Manifest:
        if not (self.path / MANIFEST).exists():
            about = {"key": self.key, "format": FORMAT, "subject": subject}
            self._write_manifest({**about, **facts, "asked": ""})
        manifest = read_manifest(self.path)
        if manifest.key != self.key or manifest.format != FORMAT:
            raise UsageError(
                f"{self.path} is about something else ({difference(manifest, subject)}): "
                "give another folder with --out"
            )
        for name in DETERMINED:
            stated = manifest.content[name]
            if name in facts and stated != facts[name]:
                what = f"{name} is {stated!r}, of what it is about it is {facts[name]!r}"
                raise RunError(f"{self.path / MANIFEST} is damaged: {what}")
        return manifest

    def _write_manifest(self, content: dict[str, Any]) -> None:
        text = json.dumps(sealed(content), indent=1)
        write_text(self.path / MANIFEST, text + "\n")

    @property
    def asked(self) -> frozenset[int]:
        """All images that any call has asked for."""
        return self.manifest.asked or frozenset()

    def ask(self, indices: Iterable[int]) -> None:
        """Enter images that are asked for, before their lines: the folder has no others."""
        asked = spans(self.asked.union(indices))
        if asked != self.manifest.content["asked"]:
            self._write_manifest({**self.manifest.content, "asked": asked})
            self.manifest = read_manifest(self.path)

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


@contextlib.contextmanager
def open_store(
    path: Path, subject: Subject, facts: dict[str, Any], form: Form = VERDICT_LINES
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
