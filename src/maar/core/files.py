"""Files that are either whole or absent: atomic writes, locks and content hashes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from errno import ENOTDIR
from pathlib import Path

from maar.core.errors import RunError


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's content, read in pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def make_folder(path: Path) -> None:
    """Make a folder and those around it, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:
        # As on /proc. Said so, for a file that is not there may be a fault of the program instead.
        raise NotADirectoryError(ENOTDIR, "No folder can be made here", str(path)) from error


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success flush it to disk and rename it into place.

    A reader never sees half a file, and a killed writer leaves the old one.
    """
    path = Path(path)
    make_folder(path.parent)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes 0600: a shared cache must be readable
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write a whole UTF-8 text file atomically."""
    write_bytes(path, content.encode())


def json_text(content: object) -> str:
    """JSON to be read and compared by people: indented, the numbers of a list on one line."""
    text = json.dumps(content, indent=1)
    # (no line ends within a string, so that nothing in quotes is ever taken for a list)
    return re.sub(r"\[\n[^][{}\"]*\]", lambda found: _on_a_line(found[0]), text) + "\n"


def _on_a_line(numbers: str) -> str:
    return f"[{' '.join(numbers[1:-1].split())}]"


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold an advisory lock on `path` (created if absent); freed by the kernel if we are killed.

    With `wait=False` a lock held by another process is a `RunError` instead of a wait.
    """
    import fcntl

    path = Path(path)
    make_folder(path.parent)
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise RunError(f"{path.parent} is in use by another maar process") from None
        yield


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock right now."""
    import fcntl

    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
