"""A published data set: files of known size and hash in the cache (or inside the package)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from maar.core.errors import RunError
from maar.core.files import sha256_file
from maar.data.dataset import Arrays, Info

if TYPE_CHECKING:
    from rich.progress import Progress

    from maar.data.raw import Raw


def cache_dir() -> Path:
    """Where fetched data live: the folder `MAAR_DATA`, else `~/.cache/maar`."""
    given = os.environ.get("MAAR_DATA")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "maar"


@dataclass(frozen=True)
class File:
    """A file in its canonical, uncompressed form."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Fault:
    """What is wrong with a file of a data set."""

    file: File
    path: Path
    absent: bool
    reason: str


class Origin(Protocol):
    """Somewhere to get raw files from: the web, a package registry."""

    @property
    def label(self) -> str:
        """How the origin is named in messages."""
        ...

    def by_hand(self, names: list[str]) -> str:
        """What the user can get elsewhere and place by hand; empty for nothing."""
        ...

    def offer(self, names: list[str], scratch: Path, progress: Progress) -> Iterator[Path]:
        """Yield folders that may hold the named files in some raw form, best first.

        Raises `Unavailable` with the reason when there is nothing (more) to offer.
        """
        ...


class Unavailable(Exception):
    """An origin has nothing to offer here and now; the message says why."""


@dataclass(frozen=True, eq=False)
class Published:
    """A built-in data set. A new one is an instance of this, in a file of its own."""

    info: Info
    files: tuple[File, ...]
    sha256: str  # of the decoded arrays
    decode: Callable[[Path], Arrays]
    # (canonical name, raw files) -> possible contents of that file, each with where it came from
    rebuild: Callable[[str, Raw], Iterator[tuple[Path, bytes]]] | None = None
    origins: tuple[Origin, ...] = ()
    archives: tuple[str, ...] = ()  # tar files that `--from DIR` may hold, besides plain files
    packaged: Path | None = None  # folder inside the package, for a set that is always there

    @property
    def folder(self) -> Path:
        """Where the canonical files are, or will be."""
        return self.packaged or cache_dir() / self.info.name

    def faults(self, *, hashes: bool = True) -> list[Fault]:
        """Files that are absent or damaged; `hashes=False` looks at sizes only."""
        found = (self._fault(file, hashes) for file in self.files)
        return [fault for fault in found if fault]

    def arrays(self) -> Arrays:
        """Decode the files; what they hold is compared with the known hash every time."""
        name = self.info.name
        for fault in self.faults(hashes=False):
            if fault.absent:
                raise RunError(f"data set {name} is not in {self.folder}: {self.remedy}")
            raise RunError(f"{fault.path} is damaged ({fault.reason}): {self.remedy}")
        arrays = self.decode(self.folder)
        if arrays.sha256 != self.sha256:
            raise RunError(
                f"data set {name} in {self.folder} is damaged (wrong hash): {self.remedy}"
            )
        return arrays

    @property
    def remedy(self) -> str:
        """The command that repairs this set."""
        if self.packaged:
            return "reinstall maar (pip install --force-reinstall --no-deps maar)"
        return f"run `maar data fetch {self.info.name}`"

    def _fault(self, file: File, hashes: bool) -> Fault | None:
        path = self.folder / file.name
        if not path.is_file():
            return Fault(file, path, True, "absent")
        size = path.stat().st_size
        if size != file.size:
            return Fault(file, path, False, f"{size:,} bytes, not {file.size:,}")
        if hashes and (actual := sha256_file(path)) != file.sha256:
            return Fault(file, path, False, f"SHA-256 {actual[:12]}…, not {file.sha256[:12]}…")
        return None
