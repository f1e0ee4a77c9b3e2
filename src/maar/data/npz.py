"""A user's own images in one file, `npz:PATH`, as `numpy.savez` writes it.

    np.savez("mine.npz", x_train=..., y_train=..., x_test=..., y_test=...)

`x_test` and `y_test` alone suffice for certification, `x_train` and `y_train` for training.
Images are uint8, or floats in [0, 1]; (n, h, w), (n, h, w, c) or (n, c, h, w). The rows of a table
are (n, d), any numbers; `low` and `high`, if there, are the range of each feature. Optional:
`classes`, the names in label order, and `layout`, "NHWC" or "NCHW" where the shape does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from maar.core import limits
from maar.core.errors import RunError, UsageError
from maar.core.unpacking import read_npz
from maar.data.address import Address
from maar.data.dataset import Arrays, Info
from maar.data.measure import check_labels, check_table, describe

_LAYOUTS = ("NHWC", "NCHW")
_ARRAY = b"\x93NUMPY"
_KEYS = ("x_train", "y_train", "x_test", "y_test", "classes", "layout", "low", "high")


@dataclass(frozen=True, eq=False)
class Npz:
    """The data set in one .npz file."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("classes",)
    address: Address

    @property
    def info(self) -> Info:
        """Shape, classes and sizes; the file is read."""
        arrays, names = self._content
        return describe(str(self.address), arrays, names, span=self._span)

    def arrays(self) -> Arrays:
        """The checked content of the file."""
        return self._content[0]

    @cached_property
    def _file(self) -> dict[str, np.ndarray]:
        return _read(self.address.path)

    @property
    def _span(self) -> tuple[Any, Any] | None:
        """The range of each value: [0, 1] for images; of a table, what the file says, or none."""
        arrays, path = self._content[0], self.address.path
        if arrays.x_train.ndim > 2:
            return 0.0, 1.0
        ends = [self._file.get(name) for name in ("low", "high")]
        if all(end is None for end in ends):
            return None
        return span_of(str(path), arrays, *ends)

    @cached_property
    def _content(self) -> tuple[Arrays, tuple[str, ...]]:
        path = self.address.path
        arrays, names = _checked(path, self._file)
        asked = self.address.names("classes")
        if asked and len(asked) < len(names):
            raise UsageError(f"classes names {len(asked)} classes, {path} has {len(names)}")
        return arrays, asked or names


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UsageError(f"npz:{path} is not a file (accepted: npz:PATH of a .npz file)")
    with open(path, "rb") as file:
        magic = file.read(len(_ARRAY))
    if magic == _ARRAY:
        raise RunError(f"{path} holds a single array: save all of them with numpy.savez")
    if not magic.startswith(b"PK"):
        raise RunError(f"{path} is no .npz file")
    return read_npz(path, limits.DATA_BYTES, keys=_KEYS)


def _checked(path: Path, content: dict[str, np.ndarray]) -> tuple[Arrays, tuple[str, ...]]:
    splits = [split for split in ("train", "test") if f"x_{split}" in content]
    if not splits:
        raise RunError(f"{path} has neither x_train nor x_test")
    layout = _layout(path, content)
    names = _classes(path, content)
    parts: dict[str, np.ndarray] = {}
    for split in splits:
        x, y = f"x_{split}", f"y_{split}"
        if y not in content:
            raise RunError(f"{path} has {x} but no {y}")
        parts[x] = _images(f"{path}: {x}", content[x], layout)
        parts[y] = check_labels(f"{path}: {y}", content[y], len(parts[x]), len(names) or None)
    shape, dtype = parts[f"x_{splits[0]}"].shape[1:], parts[f"x_{splits[0]}"].dtype
    for x in [f"x_{split}" for split in splits[1:]]:
        if parts[x].shape[1:] != shape or parts[x].dtype != dtype:
            raise RunError(
                f"{path}: x_train is {dtype} of shape {shape}, "
                f"x_test is {parts[x].dtype} of shape {parts[x].shape[1:]}"
            )
    for split in {"train", "test"} - set(splits):
        parts[f"x_{split}"] = np.empty((0, *shape), dtype)
        parts[f"y_{split}"] = np.empty(0, np.int64)
    if not names:
        highest = max(int(parts[f"y_{split}"].max()) for split in splits)
        names = tuple(map(str, range(highest + 1)))
    return Arrays(**parts), names


def span_of(
    where: str, arrays: Arrays, low: np.ndarray | None, high: np.ndarray | None
) -> tuple[Any, Any]:
    """The least and greatest value of each feature; every row must lie between."""
    width = arrays.x_train.shape[1:]
    ends = []
    for name, end, default in (("low", low, -np.inf), ("high", high, np.inf)):
        end = np.asarray(default if end is None else end)
        if end.dtype.kind not in "fiu" or end.shape not in ((), width) or np.isnan(end).any():
            raise RunError(f"{where}: {name} has shape {end.shape} (accepted: one or {width[0]})")
        ends.append(np.broadcast_to(end.astype(np.float64), width))
    for x in (arrays.x_train, arrays.x_test):
        if ((x < ends[0]) | (x > ends[1])).any():
            row, column = np.argwhere((x < ends[0]) | (x > ends[1]))[0]
            raise RunError(f"{where}: {x[row, column]:g} in column {column} is not in its range")
    return ends[0].tolist(), ends[1].tolist()


def _images(where: str, x: np.ndarray, layout: str | None) -> np.ndarray:
    if x.ndim == 2:
        return check_table(where, x)
    if x.ndim not in (3, 4) or 0 in x.shape:
        raise RunError(
            f"{where} has shape {x.shape} (accepted: images (n, h, w), (n, h, w, c) or "
            "(n, c, h, w), or the rows of a table (n, d))"
        )
    if x.dtype != np.uint8:
        if x.dtype.kind != "f":
            raise RunError(f"{where} is of type {x.dtype} (accepted: uint8, or floats in [0, 1])")
        low, high = x.min(), x.max()
        if not (low >= 0 and high <= 1):
            what = "NaN" if np.isnan(low) else f"values from {low:g} to {high:g}"
            raise RunError(f"{where} holds {what} (accepted: floats in [0, 1], or uint8)")
        x = x.astype(np.float32)
    if x.ndim == 3:
        return np.ascontiguousarray(x[:, None])
    if layout is None:
        first, last = x.shape[1] in (1, 3), x.shape[3] in (1, 3)
        if first == last:
            raise RunError(
                f"{where} has shape {x.shape}, which does not tell where the channels are: "
                f"add layout={_LAYOUTS[0]!r} or layout={_LAYOUTS[1]!r} to numpy.savez"
            )
        layout = "NCHW" if first else "NHWC"
    return np.ascontiguousarray(x if layout == "NCHW" else x.transpose(0, 3, 1, 2))


def _layout(path: Path, content: dict[str, np.ndarray]) -> str | None:
    if "layout" not in content:
        return None
    layout = str(content["layout"])
    if layout not in _LAYOUTS:
        raise RunError(f"{path}: layout is {layout!r} (accepted: {', '.join(_LAYOUTS)})")
    return layout


def _classes(path: Path, content: dict[str, np.ndarray]) -> tuple[str, ...]:
    if "classes" not in content:
        return ()
    names = content["classes"]
    distinct = set(names.ravel().tolist())
    if names.dtype.kind != "U" or not 2 <= len(distinct) == names.size == len(names):
        raise RunError(f"{path}: classes must be a list of two or more different names")
    return tuple(names.tolist())
