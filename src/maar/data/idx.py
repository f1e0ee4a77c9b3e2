"""The idx format of MNIST: a magic number, big-endian sizes, then bytes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from maar.core import limits
from maar.core.errors import RunError
from maar.data.dataset import Arrays

_UBYTE = 8  # the only sample type that the MNIST family uses


def read(path: Path, dimensions: int) -> np.ndarray:
    """Read one file of unsigned bytes with so many dimensions; the whole header is checked."""
    start = 4 + 4 * dimensions
    head = np.fromfile(path, np.uint8, start)
    if len(head) < start or head[:4].tolist() != [0, 0, _UBYTE, dimensions]:
        raise RunError(f"{path} is not an idx file of {dimensions}-dimensional unsigned bytes")
    shape = tuple(map(int, head[4:].view(">u4")))
    size = path.stat().st_size - start
    if size != math.prod(shape):
        raise RunError(f"{path} holds {size} bytes, its header says {math.prod(shape)}")
    limits.require(size, limits.RAW_BYTES, path, "bytes")
    return np.fromfile(path, np.uint8, offset=start).reshape(shape)


def read_four(folder: Path) -> Arrays:
    """The four files that MNIST and its look-alikes consist of."""
    parts = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images = read(folder / f"{prefix}-images-idx3-ubyte", 3)
        parts[f"x_{split}"] = images[:, None]
        parts[f"y_{split}"] = read(folder / f"{prefix}-labels-idx1-ubyte", 1).astype(np.int64)
    return Arrays(**parts)
