"""Files as VNN-COMP hands them out: plain, or packed by gzip with `.gz` behind the name."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from maar.errors import RunError, UsageError


def read_packed(path: Path, what: str) -> bytes:
    """The content of `path`, or of `path.gz` where only that is there; `what` is for the error."""
    packed = path.with_name(path.name + ".gz")
    if not path.is_file() and packed.is_file():
        path = packed
    if not path.is_file():
        raise UsageError(f"{what} {str(path)!r} does not exist")
    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        raise RunError(f"{path} is not a gzip file, or is damaged") from None
