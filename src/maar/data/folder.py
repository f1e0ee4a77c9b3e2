"""A user's own images as PNG files, `folder:PATH`, one sub-folder a class.

PATH/train/cat/1.png   PATH/train/dog/7.png   PATH/test/cat/2.png   ...
PATH/cat/1.png         PATH/dog/7.png         (no train/, no test/: all are test images)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from maar.core import limits
from maar.core.errors import RunError, UsageError
from maar.core.unpacking import read_limited
from maar.data import png
from maar.data.dataset import Arrays, Info
from maar.data.measure import describe

_OTHER_IMAGES = (".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
# Images decoded together, and their bytes: enough to be quick, few enough to stay small.
_CHUNK, _CHUNK_BYTES = 128, 64 * limits.MIB


@dataclass(frozen=True, eq=False)
class Folder:
    """The data set below one folder."""

    path: Path

    @property
    def info(self) -> Info:
        """Shape, classes and sizes; the images are read."""
        return describe(f"folder:{self.path}", *self._content)

    def arrays(self) -> Arrays:
        """All images, sorted by class and file name."""
        return self._content[0]

    @cached_property
    def _content(self) -> tuple[Arrays, tuple[str, ...]]:
        if not self.path.is_dir():
            raise UsageError(f"folder:{self.path} is not a folder")
        roots = {split: self.path / split for split in ("train", "test")}
        if not any(root.is_dir() for root in roots.values()):
            roots = {"test": self.path}
        found = {split: _classes(root) for split, root in roots.items() if root.is_dir()}
        names = _in_order(set().union(*found.values()))
        if "train" in found and (alone := set(names) - set(found["train"])):
            raise RunError(f"{self.path / 'test'} has the class {min(alone)!r}, train/ has not")
        if len(names) < 2:
            raise RunError(f"{self.path} needs two or more class folders with PNG files in them")
        # Both splits in one go, so that a grey train set and a coloured test set are seen.
        listed = [
            (split, names.index(name), file)
            for split, classes in found.items()
            for name in names
            for file in classes.get(name, ())
        ]
        x = _decode([file for _, _, file in listed])
        y = np.array([label for _, label, _ in listed], np.int64)
        parts = {}
        for split in ("train", "test"):
            here = np.array([each == split for each, _, _ in listed])
            parts[f"x_{split}"], parts[f"y_{split}"] = x[here], y[here]
        return Arrays(**parts), names


def _classes(root: Path) -> dict[str, list[Path]]:
    """Class name -> its PNG files; folders without images are an error, other files are not."""
    classes = {}
    for folder in root.iterdir():
        if not folder.is_dir() or folder.name.startswith("."):
            continue
        files = sorted(file for file in folder.iterdir() if not file.name.startswith("."))
        for file in files:
            if file.suffix.lower() in _OTHER_IMAGES:
                raise RunError(f"{file} is not a PNG: convert it to PNG, or use npz:PATH")
        classes[folder.name] = [file for file in files if file.suffix.lower() == ".png"]
        if not classes[folder.name]:
            raise RunError(f"the class folder {folder} holds no PNG file")
    return classes


def _in_order(names: set[str]) -> tuple[str, ...]:
    """By number if all are numbers (so that 10 comes after 9), else by name."""
    numeric = all(name.isdecimal() for name in names)
    return tuple(sorted(names, key=(lambda name: (int(name), name)) if numeric else str))


def _parts(files: list[Path]) -> Iterator[list[tuple[str, bytes]]]:
    """Names and contents, so many at a time that decoding them takes little memory."""
    part: list[tuple[str, bytes]] = []
    size = 0
    for file in files:
        content = read_limited(file, limits.PNG_BYTES)
        unpacked = png.unpacked_bytes(content)
        if part and (len(part) == _CHUNK or size + unpacked > _CHUNK_BYTES):
            yield part
            part, size = [], 0
        part.append((str(file), content))
        size += unpacked
    yield part


def _decode(files: list[Path]) -> np.ndarray:
    """Images as (n, c, h, w)."""
    chunks = []
    total, number = 0, 0
    for part in _parts(files):
        chunks.append(png.decode(part).transpose(0, 3, 1, 2))
        total += chunks[-1].nbytes
        limits.require(total, limits.DATA_BYTES, files[0].parent.parent, "bytes of all images")
    first = chunks[0]
    for chunk in chunks:
        if chunk.shape[2:] != first.shape[2:]:
            raise RunError(
                f"{files[number]} is {chunk.shape[3]}x{chunk.shape[2]} pixels, but "
                f"{files[0]} is {first.shape[3]}x{first.shape[2]}: all must have one size"
            )
        number += len(chunk)
    channels = max(chunk.shape[1] for chunk in chunks)
    shape = (channels, *first.shape[2:])
    return np.concatenate([np.broadcast_to(chunk, (len(chunk), *shape)) for chunk in chunks])
