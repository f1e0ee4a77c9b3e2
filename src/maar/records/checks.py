"""Strict checks of what a folder of results says: a boolean is no number, a float no index."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

MOST_IMAGES = 1 << 24
"""More than any data set has: a larger number in a file is no number of images."""


@dataclass(frozen=True)
class About:
    """What a manifest says about the lines beside it."""

    images: int
    """Images in the split."""
    verifiers: tuple[str, ...]
    """Names, in the order in which they are asked."""
    asked: frozenset[int] | None = None
    """Images that were asked for; None in folders of earlier formats, which do not say it."""


def whole(record: Mapping[str, Any], name: str, below: int | None = None) -> int:
    """Return a whole number >= 0 and, where asked for, < `below`."""
    value = record.get(name)
    if type(value) is not int or value < 0 or (below is not None and value >= below):
        limit = "" if below is None else f" below {below}"
        raise ValueError(f"{name} is {value!r} (accepted: a whole number{limit})")
    return value


def number(record: Mapping[str, Any], name: str, least: float = -math.inf) -> float:
    """Return a finite number that is at least `least`."""
    value = record.get(name)
    if not is_number(value) or value < least:
        limit = "" if least == -math.inf else f" >= {least:g}"
        raise ValueError(f"{name} is {value!r} (accepted: a finite number{limit})")
    return float(value)


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether this is a finite float, or an int that a float can hold."""
    if type(value) is int:
        return abs(value) <= sys.float_info.max
    return type(value) is float and math.isfinite(value)


def text(record: Mapping[str, Any], name: str, words: Sequence[str] | None = None) -> str:
    """Return a text, one of `words` where these are given."""
    value = record.get(name)
    if not isinstance(value, str) or (words is not None and value not in words):
        accepted = "a text" if words is None else ", ".join(words)
        raise ValueError(f"{name} is {value!r} (accepted: {accepted})")
    return value


def image(record: Mapping[str, Any], about: About) -> None:
    """Check index and label, which every kind of line has."""
    index = whole(record, "index", about.images)
    whole(record, "label")
    if about.asked is not None and index not in about.asked:
        raise ValueError(f"image {index} was never asked for")


def spans(indices: Any) -> str:
    """Return indices as people write them: `0-9,12`."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def indices_of(spelled: Any, images: int) -> frozenset[int]:
    """Return the indices that `spans` spelled; `ValueError` unless they are below `images`."""
    if not isinstance(spelled, str):
        raise ValueError(f"{spelled!r} is no list of images (accepted: such as 0-9,12)")
    indices: list[int] = []
    for part in spelled.split(",") if spelled else []:
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise ValueError(f"{part!r} is no list of images (accepted: such as 0-9,12)")
        low, high = int(first), int(last or first)
        if not low <= high < images:
            raise ValueError(f"{part!r} is no list of images (accepted: 0 to {images - 1})")
        indices.extend(range(low, high + 1))
        if len(indices) > images:
            raise ValueError("a list of images names one twice")
    return frozenset(indices)
