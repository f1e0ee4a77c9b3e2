"""Copies of a user's own files in the folder of a run, which are read in place of the originals.

own/index.json      the file as it was named -> its copy, and the hash of it and its neighbours
own/NAME-HASH/      the file and its neighbours, as they lay beside each other
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from maar.core.errors import RunError
from maar.core.files import write_bytes, write_text
from maar.core.own.neighbours import digest, neighbours
from maar.core.unpacking import read_json

ROOM = "own"
INDEX = "index.json"
_folder: ContextVar[Path | None] = ContextVar("own_files_of", default=None)


@contextlib.contextmanager
def reading(run: Path | None) -> Iterator[None]:
    """Take own files from the copies of a run, where it has them."""
    token = _folder.set(run)
    try:
        yield
    finally:
        _folder.reset(token)


def run_of(file: str | Path) -> Path | None:
    """Return the folder that a configuration lies in, if it keeps copies of own files."""
    folder = Path(file).parent
    return folder if file and (folder / ROOM / INDEX).is_file() else None


def keep(run: Path, path: Path) -> str:
    """Copy a file and its neighbours into a run, unless that was done before; return the hash."""
    index = _index(run)
    key = str(path)
    if key in index:
        return index[key]["sha256"]
    real = path.resolve()
    sha256 = digest(real)
    home = f"{real.stem}-{sha256[:8]}"
    for file in (real, *neighbours(real)):
        write_bytes(run / ROOM / home / file.relative_to(real.parent), file.read_bytes())
    index[key] = {"copy": f"{home}/{real.name}", "sha256": sha256}
    write_text(run / ROOM / INDEX, json.dumps(index, indent=1) + "\n")
    return sha256


def found_copy(path: Path) -> Path | None:
    """Return the copy of a file in the run that is being read; None if there is none."""
    run = _folder.get()
    entry = None if run is None else _index(run).get(str(path))
    if run is None or entry is None:
        return None
    copy = run / ROOM / entry["copy"]
    if not copy.is_file() or digest(copy) != entry["sha256"]:
        raise RunError(f"{copy} is not the file that {run / ROOM / INDEX} names, it was changed")
    return copy


def _index(run: Path) -> dict[str, dict[str, str]]:
    file = run / ROOM / INDEX
    try:
        index = read_json(file)
        for entry in index.values():
            if ".." in Path(entry["copy"]).parts or Path(entry["copy"]).is_absolute():
                raise ValueError
            str(entry["sha256"])
        return index
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunError(f"{file} is damaged") from None
