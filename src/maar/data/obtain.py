"""Get a published data set into the cache: try its origins in turn, check, rename into place.

Only files with the right SHA-256 ever get their final name. Everything else lives in a scratch
folder that the next fetch clears, apart from `.part` files, which it continues.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from maar.core.errors import RunError, UsageError
from maar.core.files import locked, write_bytes
from maar.data.dataset import Source
from maar.data.published import Fault, Published, Unavailable
from maar.data.raw import Raw

if TYPE_CHECKING:
    from rich.progress import Progress

_SCRATCH = ".fetch"


def ensure(name: str, source: Source, *, from_dir: Path | None = None) -> str:
    """Make a data set present and verified; return where it came from ("" if it was there).

    Two processes may do this at once: the second waits, then finds the work done.
    """
    if not isinstance(source, Published):
        raise UsageError(f"data set {name!r} is your own: there is nothing to fetch")
    if from_dir is not None and not from_dir.is_dir():
        raise UsageError(
            f"--from {from_dir} is not a folder (accepted: a folder with {name} in it)"
        )
    # Looked at before the lock is taken, so that a shared read-only cache needs no writing.
    if not source.faults():
        return ""
    if source.packaged:
        raise RunError(f"{source.faults()[0].path} is damaged or absent: {source.remedy}")
    with _explained(source.folder, from_dir), _lock(name, source.folder / ".lock"):
        return _fill(source, from_dir)


def _fill(source: Published, from_dir: Path | None) -> str:
    scratch = source.folder / _SCRATCH
    _tidy(source.folder)
    faults = source.faults()
    if not faults:
        return ""
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        with _progress() as progress:
            if from_dir is not None:
                _from_folder(source, from_dir, scratch, faults, progress)
                origin = str(from_dir)
            else:
                origin = _from_origins(source, scratch, faults, progress)
        shutil.rmtree(scratch, ignore_errors=True)
        return origin
    finally:
        _tidy(source.folder)


def _from_folder(
    source: Published, folder: Path, scratch: Path, faults: list[Fault], progress: Progress
) -> None:
    left, wrong = _store(source, Raw(folder, scratch, source.archives), faults, progress)
    if wrong:
        path, digest = wrong[0]
        raise RunError(
            f"{path} is not the published file of {source.info.name} (its content has "
            f"SHA-256 {digest[:12]}…): get it again"
        )
    if left:
        listed = ", ".join(fault.file.name for fault in left)
        raise RunError(
            f"--from {folder} lacks {listed} (accepted: plain, as .gz"
            f"{''.join(f', inside {archive}' for archive in source.archives)})"
        )


def _from_origins(source: Published, scratch: Path, faults: list[Fault], progress: Progress) -> str:
    tried = []
    for origin in source.origins:
        names = [fault.file.name for fault in faults]
        try:
            for folder in origin.offer(names, scratch, progress):
                raw = Raw(folder, scratch, source.archives)
                faults, _ = _store(source, raw, faults, progress)
                if not faults:
                    return origin.label
        except (Unavailable, RunError) as error:
            tried.append(f"{origin.label}: {error}")
    name = source.info.name
    names = [fault.file.name for fault in faults]
    ways = ", or ".join(filter(None, (origin.by_hand(names) for origin in source.origins)))
    raise RunError(
        f"{name} cannot be fetched ({'; '.join(tried)}); by hand: put {ways} into a folder DIR "
        f"and run `maar data fetch {name} --from DIR`"
    )


def _store(
    source: Published, raw: Raw, faults: list[Fault], progress: Progress
) -> tuple[list[Fault], list[tuple[Path, str]]]:
    """Move what has the right hash into the cache; return what is still lacking or was wrong."""
    assert source.rebuild is not None
    left: list[Fault] = []
    wrong: list[tuple[Path, str]] = []
    task = progress.add_task("check and store", total=sum(fault.file.size for fault in faults))
    for fault in faults:
        refused = []
        for path, content in source.rebuild(fault.file.name, raw):
            digest = hashlib.sha256(content).hexdigest()
            if digest == fault.file.sha256:
                write_bytes(fault.path, content)
                break
            refused.append((path, digest))
        else:
            left.append(fault)
            wrong += refused
        progress.advance(task, fault.file.size)
    progress.remove_task(task)
    return left, wrong


def _tidy(folder: Path) -> None:
    """Remove what interrupted or killed fetches left behind, but for downloads to continue."""
    for half_written in folder.glob(".*.part"):
        half_written.unlink(missing_ok=True)
    scratch = folder / _SCRATCH
    for entry in scratch.iterdir() if scratch.is_dir() else ():
        if entry.name != "web":
            shutil.rmtree(entry, ignore_errors=True)
    for download in (scratch / "web").glob("*/*"):
        if download.suffix != ".part":
            download.unlink(missing_ok=True)
    for empty in (*(scratch / "web").glob("*"), scratch / "web", scratch):
        with contextlib.suppress(OSError):
            empty.rmdir()


@contextlib.contextmanager
def _lock(name: str, path: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path, wait=False))
        except RunError:
            print(f"another process is fetching {name}: waiting for it", file=sys.stderr)
            stack.enter_context(locked(path))
        yield


@contextlib.contextmanager
def _explained(folder: Path, from_dir: Path | None) -> Iterator[None]:
    """Turn a full disk, a read-only folder or an unreadable file into one line."""
    try:
        yield
    except OSError as error:
        if from_dir and error.filename and Path(error.filename).is_relative_to(from_dir):
            raise RunError(f"cannot read {error.filename}: {error.strerror}") from None
        raise RunError(
            f"cannot write to {folder}: {error.strerror}; set MAAR_DATA to a folder that has room "
            "and can be written to"
        ) from None


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class Amount(DownloadColumn):
        """Bytes done and to do; nothing for a program that does not tell."""

        def render(self, task: Task) -> Text:
            return Text() if task.total is None else super().render(task)

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        Amount(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
