"""instances.csv of VNN-COMP: one line `network,property,timeout` per question."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from maar.core import limits
from maar.core.errors import UsageError
from maar.core.files import write_text
from maar.exchange.packed import read_packed


@dataclass(frozen=True)
class Instance:
    """One question; the names are as they stand in the file, relative to its folder."""

    network: str
    property: str
    timeout: float
    """Seconds."""


def read_instances(path: str | Path) -> list[Instance]:
    """The lines of the file, which may be packed by gzip; empty lines are skipped."""
    content = read_packed(Path(path), "instances file", limits.INSTANCES_BYTES)
    try:
        return _instances(content.decode("utf-8"), path)
    except (UnicodeDecodeError, csv.Error):
        raise UsageError(f"{path} is not a CSV file") from None


def _instances(text: str, path: str | Path) -> list[Instance]:
    instances = []
    for line, row in enumerate(csv.reader(io.StringIO(text, newline="")), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) != 3 or not all(cells):
            raise UsageError(f"{path}:{line} is not of the form network,property,seconds")
        instances.append(Instance(cells[0], cells[1], _seconds(cells[2], f"{path}:{line}")))
    if not instances:
        raise UsageError(f"{path} has no instances")
    return instances


def write_instances(path: str | Path, instances: Iterable[Instance]) -> None:
    """Write the file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for instance in instances:
        writer.writerow([instance.network, instance.property, f"{instance.timeout:g}"])
    write_text(Path(path), text.getvalue())


def _seconds(text: str, where: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (0 < seconds < math.inf):
        raise UsageError(f"{where}: timeout {text[:40]!r} (accepted: a number of seconds > 0)")
    return seconds
