"""Checks and figures that are the same for every format: statistics of images, sense of labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from maar.core.errors import RunError
from maar.data.dataset import Arrays, Info

_MAX_CLASSES = 10_000  # a label beyond this is a mistake, not a class
_CHUNK = 500  # images: keeps the float64 copies small


def mean_std(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Per channel over all images and pixels, on the scale [0, 1]; 0 and 1 if there is no image."""
    channels = x.shape[1]
    x = x.reshape(*x.shape, 1, 1) if x.ndim == 2 else x
    if not len(x):
        return (0.0,) * channels, (1.0,) * channels
    total, squares = np.zeros(channels), np.zeros(channels)
    for start in range(0, len(x), _CHUNK):
        part = x[start : start + _CHUNK].transpose(1, 0, 2, 3).reshape(channels, -1)
        part = part.astype(np.float64)
        total += part.sum(axis=1)
        squares += np.einsum("cn,cn->c", part, part)
    count = x.size // channels
    scale = 255.0 if x.dtype == np.uint8 else 1.0
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
    return tuple((mean / scale).tolist()), tuple((std / scale).tolist())


def describe(
    name: str, arrays: Arrays, classes: tuple[str, ...], note: str = "", span: Any = (0.0, 1.0)
) -> Info:
    """The facts about a user's own images. Mean and std never look at the test images."""
    mean, std = mean_std(arrays.x_train)
    shape = arrays.x_train.shape[1:]
    return Info(
        name=name,
        shape=tuple(shape),
        classes=classes,
        n_train=len(arrays.y_train),
        n_test=len(arrays.y_test),
        mean=tuple(round(value, 4) for value in mean),
        # A channel that never changes would be divided by zero.
        std=tuple(round(value, 4) or 1.0 for value in std),
        origin="your own",
        note=note,
        span=span,
    )


def check_table(where: str, x: np.ndarray) -> np.ndarray:
    """Rows of a table as float32, or a `RunError` that says what is wrong with them."""
    if x.dtype.kind not in "fiub" or 0 in x.shape:
        raise RunError(f"{where} has type {x.dtype} and shape {x.shape} (accepted: numbers (n, d))")
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(x, np.float32)
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise RunError(f"{where}: row {row}, column {column} is {x[row, column]}: not a number")
    return rows


def check_labels(where: str, y: np.ndarray, count: int, n_classes: int | None) -> np.ndarray:
    """Labels as int64, or a `RunError` that says what is wrong with them."""
    if y.ndim != 1 or len(y) != count:
        raise RunError(f"{where} has shape {y.shape}: {count} images need {count} labels")
    if y.dtype.kind not in "iu":
        raise RunError(f"{where} is of type {y.dtype}: labels must be integers")
    low, high = int(y.min()), int(y.max())
    limit = n_classes or _MAX_CLASSES
    if low < 0 or high >= limit:
        bad = low if low < 0 else high
        raise RunError(f"{where} holds the label {bad} (accepted: 0 to {limit - 1})")
    return y.astype(np.int64)
