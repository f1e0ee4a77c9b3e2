"""A user's own image files, `folder:PATH`, one sub-folder a class.

PATH/train/cat/1.png   PATH/train/dog/7.jpg   PATH/test/cat/2.webp   ...
PATH/cat/1.png         PATH/dog/7.jpg         (no train/, no test/: all are test images)

Options: `size=64` resizes and crops each image, `classes=cat,dog` gives the order of the labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from maar.core import limits
from maar.core.errors import RunError, UsageError, nearest
from maar.core.unpacking import read_limited
from maar.data.address import Address
from maar.data.dataset import Arrays, Info
from maar.data.images import ACCEPTED, FORMATS, decode
from maar.data.measure import describe

_OTHER_IMAGES = (".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".heic", ".avif")
_LARGEST = 4096  # pixels of a side, to resize to


@dataclass(frozen=True, eq=False)
class Folder:
    """The data set below one folder."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("size", "classes")
    address: Address

    @property
    def info(self) -> Info:
        """Shape, classes and sizes; the images are read."""
        note = (
            ""
            if self._size is None
            else (
                f"each image resized so that its shorter side has {self._size} pixels (bilinear, "
                f"antialiased), and cropped to the central {self._size}x{self._size}"
            )
        )
        return describe(str(self.address), *self._content, note=note)

    def arrays(self) -> Arrays:
        """All images, sorted by class and file name."""
        return self._content[0]

    @property
    def _size(self) -> int | None:
        size = self.address.number("size")
        if size is not None:
            limits.require(size, _LARGEST, self.address, "size")
        return size

    @cached_property
    def _content(self) -> tuple[Arrays, tuple[str, ...]]:
        path = self.address.path
        if not path.is_dir():
            raise UsageError(f"folder:{path} is not a folder")
        roots = {split: path / split for split in ("train", "test")}
        if not any(root.is_dir() for root in roots.values()):
            roots = {"test": path}
        found = {split: _classes(root) for split, root in roots.items() if root.is_dir()}
        folders = set().union(*found.values())
        if "train" in found and (alone := folders - set(found["train"])):
            raise RunError(f"{path / 'test'} has the class {min(alone)!r}, train/ has not")
        names = self._named(folders)
        # Both splits in one go, so that a grey train set and a coloured test set are seen.
        listed = [
            (split, names.index(name), file)
            for split, classes in found.items()
            for name in names
            for file in classes.get(name, ())
        ]
        x = self._decode([file for _, _, file in listed])
        y = np.array([label for _, label, _ in listed], np.int64)
        parts = {}
        for split in ("train", "test"):
            here = np.array([each == split for each, _, _ in listed])
            parts[f"x_{split}"], parts[f"y_{split}"] = x[here], y[here]
        return Arrays(**parts), names

    def _named(self, folders: set[str]) -> tuple[str, ...]:
        """The classes in label order: as asked for, else by name."""
        names = self.address.names("classes") or _in_order(folders)
        for folder in sorted(folders - set(names)):
            raise UsageError(
                f"{self.address.path} has the class folder {folder!r}, which classes does not name"
                f"{nearest(folder, names)} (named: {', '.join(names)})"
            )
        if len(names) < 2 or not folders:
            raise RunError(
                f"{self.address.path} needs two or more class folders with {ACCEPTED} files in them"
            )
        return names

    def _decode(self, files: list[Path]) -> np.ndarray:
        """Images as (n, c, h, w)."""
        images: list[np.ndarray] = []
        total = 0
        for file in files:
            content = read_limited(file, limits.IMAGE_BYTES)
            images.append(decode(str(file), content, self._size))
            total += images[-1].nbytes
            limits.require(total, limits.DATA_BYTES, self.address.path, "bytes of all images")
            if images[-1].shape[1:] != images[0].shape[1:]:
                raise self._of_two_sizes(files[0], images[0], file, images[-1])
        shape = (max(map(len, images)), *images[0].shape[1:])
        out = np.empty((len(images), *shape), np.uint8)
        for number, image in enumerate(images):
            out[number] = image
        return out

    def _of_two_sizes(
        self, first: Path, first_image: np.ndarray, file: Path, image: np.ndarray
    ) -> RunError:
        (_, a, b), (_, c, d) = first_image.shape, image.shape
        smallest = self.address.having(size=str(min(a, b, c, d)))
        return RunError(
            f"{file} is {d}x{c} pixels, but {first} is {b}x{a}: to resize and crop all of them to "
            f"one size, write {str(smallest)!r} (or another size)"
        )


def _classes(root: Path) -> dict[str, list[Path]]:
    """Class name -> its images; folders without images are an error, other files are not."""
    classes = {}
    for folder in root.iterdir():
        if not folder.is_dir() or folder.name.startswith("."):
            continue
        classes[folder.name] = list(_images(folder.iterdir()))
        if not classes[folder.name]:
            raise RunError(f"the class folder {folder} holds no {ACCEPTED} file")
    return classes


def _images(files: Iterable[Path]) -> Iterable[Path]:
    for file in sorted(file for file in files if not file.name.startswith(".")):
        kind = file.suffix.lower()
        if kind in _OTHER_IMAGES:
            raise RunError(f"{file} is not a {ACCEPTED} image: convert it, or use npz:PATH")
        if kind in FORMATS:
            yield file


def _in_order(names: set[str]) -> tuple[str, ...]:
    """By number if all are numbers (so that 10 comes after 9), else by name."""
    numeric = all(name.isdecimal() for name in names)
    return tuple(sorted(names, key=(lambda name: (int(name), name)) if numeric else str))
