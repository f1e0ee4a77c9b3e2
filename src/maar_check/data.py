"""Read the true images and labels of a data set, to compare certificates with."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

from maar_check.arithmetic import Array
from maar_check.certificate import read_bytes
from maar_check.refusal import Refused, require

LARGEST = 1 << 30


def read_images(path: Path) -> tuple[Array, Array]:
    """Images in [0, 1] and labels: of a folder with IDX files (MNIST) or of one CIFAR-10 batch."""
    if path.is_dir():
        (images,), (labels,) = (_named(path, name) for name in ("images-idx3", "labels-idx1"))
        return _scaled(_idx(images)), _idx(labels)
    records = np.frombuffer(_content(path), np.uint8)
    require(records.size % 3073 == 0, f"{path.name} is no batch of CIFAR-10")
    records = records.reshape(-1, 3073)
    return _scaled(records[:, 1:].reshape(-1, 3, 32, 32)), records[:, 0]


def _named(folder: Path, name: str) -> list[Path]:
    files = sorted(folder.rglob(f"t10k-{name}-ubyte*"))[:1]
    require(files, f"{folder} has no file t10k-{name}-ubyte")
    return files


def _scaled(pixels: Array) -> Array:
    """float32, as every data loader divides by 255."""
    return pixels.astype(np.float32) / np.float32(255)


def _content(path: Path) -> bytes:
    content = read_bytes(path, LARGEST)
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError) as error:
        raise Refused(f"{path.name}: {error}") from None


def _idx(path: Path) -> Array:
    content = _content(path)
    require(len(content) >= 8 and content[:3] == b"\0\0\x08", f"{path.name} is no IDX file")
    sides = struct.unpack(f">{content[3]}I", content[4 : 4 + 4 * content[3]])
    pixels = np.frombuffer(content, np.uint8, offset=4 + 4 * len(sides))
    require(pixels.size == np.prod(sides), f"{path.name} is damaged")
    return pixels.reshape(sides)
