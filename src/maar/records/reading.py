"""Files of runs and stores, read whatever their condition: what is wrong becomes a problem to show.

A report must not fail because one of twenty runs was cut off in the middle of a line.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from maar.core import limits
from maar.core.unpacking import parse_json, parse_toml, read_text

Object = dict[str, Any]


class Reader:
    """Reads files and keeps the problems that it met, one line each."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def toml(self, path: Path) -> Object:
        """A TOML file; {} if it is damaged."""
        text = self.text(path)
        try:
            return parse_toml(text)
        except ValueError as error:
            self.problems.append(f"{path} is not valid TOML: {error}")
            return {}

    def json(self, path: Path) -> Object:
        """A JSON file with an object in it; {} if it is absent or damaged."""
        text = self.text(path)
        if not text and not path.exists():
            return {}
        try:
            return _object(text)
        except ValueError as error:
            self.problems.append(f"{path} is damaged: {error}")
            return {}

    def lines(self, path: Path) -> list[Object]:
        """The objects of a file with one on each line; damaged lines are left out and counted.

        What stands behind the last line break is being written, or was cut off: no problem.
        """
        found, bad = [], []
        for number, line in enumerate(self.text(path).split("\n")[:-1], 1):
            try:
                found.append(_object(line))
            except ValueError:
                bad.append(number)
        if bad:
            lines = f"line {bad[0]}" if len(bad) == 1 else f"{len(bad)} lines, the first {bad[0]},"
            self.problems.append(f"{path} is damaged: {lines} cannot be read and was left out")
        return found

    def text(self, path: Path) -> str:
        """A text file; "" if it is absent or cannot be read."""
        try:
            return read_text(path, limits.LINES_BYTES)
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError:
            self.problems.append(f"{path} is damaged: it is not a text file")
        except ValueError as error:
            self.problems.append(f"{path} is too large: {error}")
        except OSError as error:
            self.problems.append(f"{path} cannot be read: {error.strerror}")
        return ""


def _object(text: str) -> Object:
    found = parse_json(text)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def table(content: Object, key: str) -> Object:
    """A part that should be a table; {} if it is not."""
    found = content.get(key)
    return found if isinstance(found, dict) else {}


def number(content: Object, key: str) -> float | None:
    """A part that should be a finite number; None if it is not."""
    found = content.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    # JSON knows integers that no float can hold.
    is_finite = abs(found) <= sys.float_info.max if isinstance(found, int) else math.isfinite(found)
    return float(found) if is_finite else None


def count(content: Object, key: str) -> int:
    """A part that should be a number of things; 0 if it is not."""
    found = content.get(key)
    if isinstance(found, bool) or not isinstance(found, int):
        return 0
    return found if abs(found) < 1 << 53 else 0


def word(content: Object, key: str) -> str:
    """A part that should be a text; "" if it is not."""
    found = content.get(key)
    return found if isinstance(found, str) else ""


def words(content: Object, key: str) -> tuple[str, ...]:
    """A part that should be a list, as texts; () if it is not."""
    found = content.get(key)
    return tuple(map(str, found)) if isinstance(found, list) else ()


def numbers(content: Object, key: str) -> list[float]:
    """A part that should be a list of numbers; [] if it is not."""
    found = content.get(key)
    values = (
        [number({key: value}, key) for value in found] if isinstance(found, list | tuple) else []
    )
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []
