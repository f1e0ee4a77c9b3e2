"""Find raw files by name below a folder: plain, gzipped, or inside a tar archive.

Archives are unpacked flat, by base name only, so nothing in them can be written elsewhere.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath

from maar.core import limits
from maar.core.errors import RunError, UsageError
from maar.core.unpacking import gunzip, read_limited

_DEPTH = 3  # cifar-10-batches-bin/x, MNIST/raw/x; `--from /` must not walk the whole disk


class Raw:
    """The raw files below `folder`; archives with the given names are unpacked into `scratch`."""

    def __init__(self, folder: Path, scratch: Path, archives: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.scratch = scratch
        self.archives = archives

    def find(self, name: str) -> Iterator[tuple[Path, bytes]]:
        """Every file called `name` or `name.gz`, with its content uncompressed.

        More than one, because MNIST and Fashion-MNIST use the same names.
        """
        for path in self._below(self.folder, name):
            yield path, _content(path)
        for path in self._below(self._unpacked, name) if self.archives else ():
            yield path, _content(path)

    @cached_property
    def _unpacked(self) -> Path:
        target = self.scratch / "unpacked"
        # Afresh: origins that follow each other must not mix their files.
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for archive in self.archives:
            for number, path in enumerate(self._below(self.folder, archive)):
                _unpack(path, target / f"{number}-{archive}")
        return target

    @staticmethod
    def _below(folder: Path, name: str) -> Iterator[Path]:
        for parent, folders, files in os.walk(folder):
            if len(Path(parent).relative_to(folder).parts) >= _DEPTH:
                folders.clear()
            folders.sort()
            yield from (Path(parent, each) for each in (name, f"{name}.gz") if each in files)


def _content(path: Path) -> bytes:
    read = gunzip if path.suffix == ".gz" else read_limited
    try:
        return read(path, limits.RAW_BYTES)
    except UsageError as error:  # not the user's doing: another origin may have the file
        raise RunError(f"{error}: too large to be what it is called") from None


def _unpack(archive: Path, target: Path) -> None:
    target.mkdir()
    room = limits.RAW_BYTES
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                body = tar.extractfile(member) if member.isfile() else None
                if body is None:
                    continue
                room -= member.size
                if room < 0:
                    raise RunError(f"{archive} is too large to be what it is called")
                with open(target / PurePosixPath(member.name).name, "wb") as file:
                    shutil.copyfileobj(body, file, 1 << 20)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile):
        raise RunError(f"{archive} is damaged: not a whole tar archive") from None
