"""Data sets by name: `load("cifar10")`, `load("npz:mine.npz")`, `info("mnist").shape`.

Built-in sets are one file each, one line in `DATASETS`. `info` of a built-in set reads no image,
so that a network can be built from the name of its data set alone.
"""

from __future__ import annotations

from pathlib import Path

from maar.core.errors import UsageError, unknown
from maar.core.registry import Registry
from maar.data.address import Address
from maar.data.dataset import SPLITS, Arrays, DataSet, Info, Source, make

__all__ = [
    "DATASETS",
    "FORMATS",
    "SPLITS",
    "Arrays",
    "DataSet",
    "Info",
    "Source",
    "fetch",
    "info",
    "load",
    "source",
]

DATASETS = Registry(
    "data set",
    {
        "mnist": "maar.data.mnist:MNIST",
        "fashion_mnist": "maar.data.fashion_mnist:FASHION_MNIST",
        "cifar10": "maar.data.cifar10:CIFAR10",
        "mnist_mini": "maar.data.mnist_mini:MNIST_MINI",
    },
    group="maar.data",
)

# A user's own data: `npz:PATH`, `folder:PATH` and `csv:PATH?label=COLUMN`.
FORMATS = Registry(
    "data format",
    {
        "npz": "maar.data.npz:Npz",
        "folder": "maar.data.folder:Folder",
        "csv": "maar.data.csv_table:CsvTable",
    },
)


def source(name: str) -> Source:
    """The source behind a name; an unknown name is a `UsageError` with the nearest match."""
    kind, colon, path = name.partition(":")
    if not colon and name in DATASETS:
        return DATASETS[name]
    if kind in FORMATS:
        if not path:
            raise UsageError(f"data set {name!r} lacks its path (accepted: {kind}:PATH)")
        address = Address.of(name)
        address.require_options(FORMATS[kind].OPTIONS)
        return FORMATS[kind](address)
    raise unknown("data set", name, [*DATASETS, *(f"{kind}:PATH" for kind in FORMATS)])


def info(name: str) -> Info:
    """Shape, classes, sizes, mean and std. For built-in sets no image is read."""
    return source(name).info


def load(name: str, *, valid: int = 0) -> DataSet:
    """Read a data set into memory, checked against its hash.

    `valid` images, always the same ones, are taken out of train for validation.
    A built-in set that is not there is a `RunError` that names the command to fetch it.
    """
    found = source(name)
    arrays = found.arrays()
    return make(found.info, arrays, valid=valid)


def fetch(name: str, *, from_dir: Path | None = None) -> str:
    """Make a built-in set present and verified; return where it came from ("" if it was there)."""
    from maar.data.obtain import ensure

    return ensure(name, source(name), from_dir=from_dir)
