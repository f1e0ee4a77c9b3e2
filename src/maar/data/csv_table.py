"""A user's own table, `csv:FILE?label=COLUMN`: a line of names, then one row an example.

Every other column is a feature, a number. Options: `classes=a,b` gives the order of the labels,
`drop=COLUMN,COLUMN` leaves columns out, `split=COLUMN` names the column that says train or test
(without it all rows are test examples), `range=data` clips perturbations to the values that occur.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from maar.core import limits
from maar.core.errors import RunError, UsageError, unknown
from maar.core.unpacking import read_limited
from maar.data.address import Address
from maar.data.dataset import Arrays, Info
from maar.data.measure import check_table, describe

_SPLITS = ("train", "test")
_MAX_CLASSES = 1000


@dataclass(frozen=True, eq=False)
class CsvTable:
    """The table in one file."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("label", "classes", "drop", "split", "range")
    address: Address

    @property
    def info(self) -> Info:
        """Features, classes and sizes; the file is read."""
        arrays, names = self._content
        note = f"features: {', '.join(self._features)}"
        return describe(str(self.address), arrays, names, note, self._span)

    def arrays(self) -> Arrays:
        """All rows, in the order of the file."""
        return self._content[0]

    @property
    def _span(self) -> tuple[Any, Any] | None:
        span = self.address.options.get("range")
        if span is None:
            return None
        if span != "data":
            raise UsageError(f"{self.address}: range is {span!r} (accepted: data)")
        every = np.concatenate([self._content[0].x_train, self._content[0].x_test]).astype(float)
        return every.min(0).tolist(), every.max(0).tolist()

    @cached_property
    def _rows(self) -> tuple[list[str], list[list[str]]]:
        """The head, and the rows below it."""
        path = self.address.path
        if not path.is_file():
            raise UsageError(f"csv:{path} is not a file (accepted: csv:FILE?label=COLUMN)")
        try:
            text = read_limited(path, limits.DATA_BYTES // 8).decode("utf-8-sig")
            head, *rows = (row for row in csv.reader(io.StringIO(text), strict=True) if row)
        except (UnicodeDecodeError, csv.Error, ValueError) as error:
            raise RunError(f"{path} is no table in UTF-8 with a line of names: {error}") from None
        head = [name.strip() for name in head]
        if len(set(head)) < len(head) or not rows:
            what = "names a column twice" if rows else "has no row"
            raise RunError(f"{path} {what}")
        for number, row in enumerate(rows, 2):
            if len(row) != len(head):
                raise RunError(f"{path}: row {number} has {len(row)} values, the head {len(head)}")
        return head, rows

    def _column(self, option: str) -> int | None:
        name = self.address.options.get(option)
        head = self._rows[0]
        if name is not None and name not in head:
            raise unknown(f"column of {self.address.path}", name, head)
        return None if name is None else head.index(name)

    @property
    def _left_out(self) -> set[str]:
        head, named = self._rows[0], self.address.options.get("drop", "")
        dropped = {name.strip() for name in named.split(",") if name.strip()}
        for name in dropped - set(head):
            raise unknown(f"column of {self.address.path}", name, head)
        options = self.address.options
        return dropped | {options[key] for key in ("label", "split") if key in options}

    @property
    def _features(self) -> list[str]:
        return [name for name in self._rows[0] if name not in self._left_out]

    @cached_property
    def _content(self) -> tuple[Arrays, tuple[str, ...]]:
        path, (head, rows) = self.address.path, self._rows
        label, split = self._column("label"), self._column("split")
        if label is None:
            raise UsageError(
                f"{self.address} does not say which column has the labels: add ?label="
            )
        names = self._named({row[label].strip() for row in rows})
        columns = [head.index(name) for name in self._features]
        if not columns:
            raise RunError(f"{path} has no column besides the label")
        x = np.array(
            [[_number(path, n, head[c], row[c]) for c in columns] for n, row in enumerate(rows, 2)]
        )
        y = np.array([names.index(row[label].strip()) for row in rows], np.int64)
        x = check_table(str(path), x)
        where = np.array(["test" if split is None else row[split].strip().lower() for row in rows])
        for word in set(where.tolist()) - set(_SPLITS):
            raise RunError(f"{path}: {word!r} in the column of the split (accepted: train, test)")
        parts = {}
        for part in _SPLITS:
            parts[f"x_{part}"], parts[f"y_{part}"] = x[where == part], y[where == part]
        return Arrays(**parts), names

    def _named(self, words: set[str]) -> tuple[str, ...]:
        names = self.address.names("classes")
        if names:
            for word in sorted(words - set(names)):
                raise unknown("class", word, names)
            return names
        if len(words) > _MAX_CLASSES or len(words) < 2:
            raise RunError(
                f"{self.address} has {len(words)} classes (accepted: 2 to {_MAX_CLASSES})"
            )
        numeric = all(word.isdecimal() for word in words)
        if numeric and sorted(map(int, words)) != list(range(len(words))):
            highest = max(map(int, words))
            if highest < _MAX_CLASSES:
                return tuple(map(str, range(highest + 1)))
        return tuple(sorted(words, key=(lambda word: (int(word), word)) if numeric else str))


def _number(path: Any, row: int, column: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RunError(
            f"{path}: row {row}, column {column!r} is {text[:40]!r}, not a number: encode it as "
            "numbers, or leave the column out with ?drop="
        ) from None
