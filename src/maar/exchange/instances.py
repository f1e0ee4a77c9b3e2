"""instances.csv of VNN-COMP: one line `network,property,timeout` per question.

A first line that names the columns may add others; `expected` is the verdict known from elsewhere.
"""

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

COLUMNS = ("network", "property", "timeout")


@dataclass(frozen=True)
class Instance:
    """One question; the names are as they stand in the file, relative to its folder."""

    network: str
    property: str
    timeout: float
    """Seconds."""
    expected: str = ""
    """"sat" or "unsat" where the answer is known."""

    def category(self) -> str:
        """The folder of the network; VNN-COMP's own files have none."""
        parts = [part for part in Path(self.network).parts[:-1] if part not in (".", "onnx")]
        return parts[0] if parts else ""


def read_instances(path: str | Path) -> list[Instance]:
    """The lines of the file, which may be packed by gzip; empty lines are skipped."""
    content = read_packed(Path(path), "instances file", limits.INSTANCES_BYTES)
    try:
        return _instances(content.decode("utf-8"), path)
    except (UnicodeDecodeError, csv.Error):
        raise UsageError(f"{path} is not a CSV file") from None


def _instances(text: str, path: str | Path) -> list[Instance]:
    instances: list[Instance] = []
    columns = {name: place for place, name in enumerate(COLUMNS)}
    width = len(COLUMNS)
    for line, row in enumerate(csv.reader(io.StringIO(text, newline="")), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if not instances and set(COLUMNS) <= set(cells):
            columns, width = {name: place for place, name in enumerate(cells)}, len(cells)
            continue
        if len(cells) != width or not all(cells[columns[name]] for name in COLUMNS):
            raise UsageError(f"{path}:{line} is not of the form network,property,seconds")
        network, prop, seconds = (cells[columns[name]] for name in COLUMNS)
        expected = cells[columns["expected"]] if "expected" in columns else ""
        if expected not in ("", "sat", "unsat"):
            raise UsageError(f"{path}:{line}: expected {expected[:40]!r} (accepted: sat, unsat)")
        instances.append(Instance(network, prop, _seconds(seconds, f"{path}:{line}"), expected))
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
