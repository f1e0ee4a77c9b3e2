"""Files as VNN-COMP hands them out: plain, or packed by gzip with `.gz` behind the name."""

from __future__ import annotations

from pathlib import Path

from maar.core.errors import UsageError
from maar.core.unpacking import gunzip, read_limited


def read_packed(path: Path, what: str, most: int) -> bytes:
    """The content of `path`, or of `path.gz` where only that is there; `what` is for the error.

    More than `most` bytes, after decompression, are refused.
    """
    packed = path.with_name(path.name + ".gz")
    if not path.is_file() and packed.is_file():
        path = packed
    if not path.is_file():
        raise UsageError(f"{what} {str(path)!r} does not exist")
    return gunzip(path, most) if path.suffix == ".gz" else read_limited(path, most)
