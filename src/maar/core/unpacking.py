"""Files that are read whole, packed or not, without exceeding a limit of bytes."""

from __future__ import annotations

import gzip
import io
import json
import math
import sys
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maar.core import limits
from maar.core.errors import MaarError, RunError, UsageError, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    import numpy as np

PIECE = 1 << 20


def read_limited(path: Path, most: int) -> bytes:
    """Return a file's content; more than `most` bytes are refused unread."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        limits.require(size, most, path, "bytes")
        file.seek(0)
        try:
            return file.read(size)
        except MemoryError:
            raise RunError(f"{path}: no memory for its {size} bytes") from None


def gunzip(path: Path, most: int) -> bytes:
    """Return the unpacked content of a gzip file of at most `most` bytes.

    It is unpacked piece by piece, so that an alarm can interrupt it.
    """
    content = io.BytesIO()  # gives its content away without a copy
    try:
        with gzip.open(path) as file:
            while piece := file.read(PIECE):
                content.write(piece)
                if content.tell() > most:
                    raise limits.excess("more", most, path, "bytes after decompression")
        return content.getvalue()
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise RunError(f"{path} is not a gzip file, or is damaged") from None
    except MemoryError:
        raise RunError(f"{path}: no memory for its bytes after decompression") from None


def read_npz(path: Path, most: int, keys: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file that together have at most `most` bytes.

    With `keys`, an array of another name is an error. Objects are never unpickled.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            limits.require(total, most, path, "bytes after decompression")
            names = [member.filename.removesuffix(".npy") for member in members]
            for name in names:
                if keys is not None and name not in keys:
                    raise RunError(
                        f"{path} has an unknown key {name[:40]!r}{nearest(name[:40], keys)} "
                        f"(accepted: {', '.join(keys)})"
                    )
            arrays: dict[str, np.ndarray] = {}
            for name, member in zip(names, members, strict=True):
                with archive.open(member) as file:
                    arrays[name] = _array(file, member, path)
            return arrays
    except (MaarError, FileNotFoundError):
        raise
    except MemoryError:
        raise RunError(f"{path}: no memory for its arrays") from None
    except Exception:  # zipfile and numpy's header raise a dozen kinds, tokenize.TokenError too
        raise RunError(f"{path} is damaged: not a whole .npz file") from None


def read_npy(path: Path, most: int) -> np.ndarray:
    """Return the array of a .npy file of at most `most` bytes; objects are never unpickled."""
    import numpy as np

    if not path.is_file():
        raise UsageError(f"{path} is not a file (accepted: a .npy file)")
    content = read_limited(path, most)
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception:  # numpy's header raises a dozen kinds
        raise RunError(f"{path} is not a .npy file, or is damaged") from None
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        raise RunError(f"{path} is not a .npy file with one array")
    return array


def _array(file: Any, member: zipfile.ZipInfo, path: Path) -> np.ndarray:
    """Read one array, after its header was held against the bytes that follow."""
    import numpy as np

    version = np.lib.format.read_magic(file)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:  # 3.0 is for fields with names, which no image has
        raise ValueError
    shape, in_columns, dtype = read_header(file)
    if dtype.hasobject:
        raise RunError(f"{path} holds Python objects, which are never unpickled")
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize > member.file_size:
        raise ValueError
    if dtype.kind in "SU":
        limits.require(count * dtype.itemsize, limits.DATA_TEXT_BYTES, path, "bytes of a text")
    # (Of bytes that can be written to, as numpy's own reader gives them.)
    content = bytearray(count * dtype.itemsize)
    view, filled = memoryview(content), 0
    while filled < len(content):
        read = file.readinto(view[filled : filled + PIECE])
        if not read:
            raise EOFError
        filled += read
    file.read(1)  # at its end, zipfile compares the checksum
    array = np.frombuffer(content, dtype, count) if dtype.itemsize else np.zeros(count, dtype)
    return array.reshape(shape[::-1]).T if in_columns else array.reshape(shape)


def read_text(path: Path, most: int) -> str:
    """Return a UTF-8 text of at most `most` bytes; a `ValueError` if it is longer."""
    size = path.stat().st_size
    if size > most:
        raise ValueError(f"{path.name} has {size} bytes (accepted: up to {most})")
    return path.read_text(encoding="utf-8")


def read_json(path: Path) -> Any:
    """Return what a JSON file says; a `ValueError` if it is damaged, too large or too deep."""
    return parse_json(read_text(path, limits.JSON_BYTES))


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text says; a `ValueError` if it is damaged, too large or too deep."""
    if len(text) > limits.JSON_BYTES:
        raise ValueError(f"JSON of {len(text)} bytes (accepted: up to {limits.JSON_BYTES})")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("too many brackets inside each other") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text; a `ValueError` if it is damaged, too large or too deep."""
    if len(text) > limits.TOML_BYTES:
        raise ValueError(f"TOML of {len(text)} characters (accepted: up to {limits.TOML_BYTES})")
    longest = max(map(len, text.split("\n")))
    if longest > limits.TOML_LINE:
        raise ValueError(
            f"a line of TOML of {longest} characters (accepted: up to {limits.TOML_LINE})"
        )
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("too many brackets inside each other") from None
