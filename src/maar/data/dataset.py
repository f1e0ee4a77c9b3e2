"""What a data set is: facts known beforehand (`Info`), decoded arrays (`Arrays`), and tensors ready
for training (`DataSet`).

Images stay uint8 in memory, a quarter of the size of floats; `DataSet.images` gives float32 in
[0, 1] for the whole split or for one batch. torch is imported only when a `DataSet` is made, so
that `maar data` answers at once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from maar.core.errors import UsageError, unknown

if TYPE_CHECKING:
    import torch

SPLITS = ("train", "valid", "test")

# Part of what a data set is, not of a run: every run of every seed tunes on the same images.
VALID_SEED = 20200604


@dataclass(frozen=True)
class Info:
    """Everything that a network or a table needs to know before any image is read."""

    name: str
    shape: tuple[int, ...]  # channels, height, width; of a table, its features
    classes: tuple[str, ...]
    n_train: int
    n_test: int
    mean: tuple[float, ...]  # per channel, of the train images in [0, 1]
    std: tuple[float, ...]
    augment: str = "none"  # the customary one, a name in maar.data.augment
    origin: str = ""  # who made it
    licence: str = ""
    # The least and the greatest value: numbers, one for each feature, or None if there is none.
    span: tuple[Any, Any] | None = (0.0, 1.0)
    note: str = ""  # what was done to the images before anything else saw them

    @property
    def n_classes(self) -> int:
        """How many outputs a classifier for this data set has."""
        return len(self.classes)


@dataclass(frozen=True, eq=False)
class Arrays:
    """A decoded data set: images (n, c, h, w), uint8 or float32 in [0, 1], or the rows of a table
    (n, d), float32; labels int64.

    A data set without train or without test images has an array of length 0 there.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @cached_property
    def sha256(self) -> str:
        """Hash of the content: the same wherever and in whatever format the files came."""
        digest = hashlib.sha256()
        for part in ("x_train", "y_train", "x_test", "y_test"):
            array = np.ascontiguousarray(getattr(self, part))
            digest.update(f"{part} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.data if array.size else b"")
        return digest.hexdigest()


class Source(Protocol):
    """A place that data come from: one of the built-in sets, or a user's file or folder."""

    @property
    def info(self) -> Info:
        """Known without reading an image for built-in sets; a user's files have to be read."""
        ...

    def arrays(self) -> Arrays:
        """Read, check and decode everything."""
        ...


@dataclass(frozen=True, eq=False)
class DataSet:
    """Tensors in memory. Index them with a batch of indices; no loader, no workers.

    `x_*` are uint8 (a user's float images: float32); ask `images` for floats in [0, 1].
    `sha256` is the hash of the content before the validation split was taken.
    """

    info: Info
    x_train: torch.Tensor
    y_train: torch.Tensor
    x_valid: torch.Tensor
    y_valid: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    sha256: str

    @property
    def name(self) -> str:
        """The name that the user wrote, such as `cifar10` or `npz:mine.npz`."""
        return self.info.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height, width; of a table, its features."""
        return self.info.shape

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in label order."""
        return self.info.classes

    @property
    def mean(self) -> tuple[float, ...]:
        """Per channel, of the train images in [0, 1]."""
        return self.info.mean

    @property
    def std(self) -> tuple[float, ...]:
        """Per channel, of the train images in [0, 1]."""
        return self.info.std

    def size(self, split: str) -> int:
        """Number of images in "train", "valid" or "test"."""
        return len(self._split("y", split))

    def images(
        self, split: str, index: torch.Tensor | slice | list[int] | None = None
    ) -> torch.Tensor:
        """Float32 images in [0, 1], (n, c, h, w); always a fresh tensor."""
        import torch

        x = self._part("x", split, index)
        if x.dtype != torch.uint8:
            return x.clone()
        # A tensor, not the number 255: CUDA replaces division by a number with a product that
        # rounds differently, and certificates must be about the same images on every device.
        return x.float().div_(torch.tensor(255.0, device=x.device))

    def labels(
        self, split: str, index: torch.Tensor | slice | list[int] | None = None
    ) -> torch.Tensor:
        """Int64 labels, (n,)."""
        return self._part("y", split, index)

    def to(self, device: torch.device | str) -> DataSet:
        """The same data set with its tensors on another device."""
        parts = [f"{kind}_{split}" for kind in "xy" for split in SPLITS]
        return replace(self, **{part: getattr(self, part).to(device) for part in parts})

    def without_test(self) -> DataSet:
        """Return the same data set without its test images, for what must not look at them."""
        return replace(self, x_test=self.x_test[:0], y_test=self.y_test[:0])

    def _split(self, kind: str, split: str) -> torch.Tensor:
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        return getattr(self, f"{kind}_{split}")

    def _part(
        self, kind: str, split: str, index: torch.Tensor | slice | list[int] | None
    ) -> torch.Tensor:
        tensor = self._split(kind, split)
        if not len(tensor):
            raise UsageError(f"data set {self.name} has no {split} images")
        return _pick(tensor, index)


def _pick(tensor: torch.Tensor, index: torch.Tensor | slice | list[int] | None) -> torch.Tensor:
    import torch

    if index is None:
        return tensor
    if isinstance(index, torch.Tensor) and index.dtype == torch.int64:
        return tensor.index_select(0, index)  # copies whole images: ten times quicker than [index]
    return tensor[index]


def make(info: Info, arrays: Arrays, *, valid: int = 0) -> DataSet:
    """Wrap decoded arrays as tensors, with `valid` images moved from train to validation."""
    import torch

    def tensor(array: np.ndarray) -> torch.Tensor:
        # The copy is for read-only arrays (frombuffer), which torch must not wrap.
        return torch.from_numpy(array if array.flags.writeable else array.copy())

    sha256 = arrays.sha256
    x_train, y_train = tensor(arrays.x_train), tensor(arrays.y_train)
    keep, held_out = map(torch.from_numpy, split_indices(info.name, len(y_train), valid))
    return DataSet(
        info=info,
        x_train=_pick(x_train, keep if valid else None),
        y_train=_pick(y_train, keep if valid else None),
        x_valid=_pick(x_train, held_out),
        y_valid=_pick(y_train, held_out),
        x_test=tensor(arrays.x_test),
        y_test=tensor(arrays.y_test),
        sha256=sha256,
    )


def split_indices(name: str, n_train: int, valid: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted indices (train, validation) into the train images.

    The first `valid` of one fixed permutation, so a smaller validation set is part of a larger.
    """
    if isinstance(valid, bool) or not isinstance(valid, int) or valid < 0:
        raise UsageError(f"valid = {valid!r} is not a number of images (accepted: 0 or more)")
    if valid and valid >= n_train:
        raise UsageError(
            f"valid = {valid} leaves nothing to train on: {name} has {n_train} train images"
        )
    # RandomState, not default_rng: numpy promises that its numbers never change (NEP 19).
    order = np.random.RandomState(VALID_SEED).permutation(n_train)
    return np.sort(order[valid:]), np.sort(order[:valid])
