"""VNNLIB files, of either version, read and written.

found = read_vnnlib("prop.vnnlib.gz")
write_vnnlib("prop.vnnlib", x, eps, y, classes)
"""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np

from maar.core import limits
from maar.core.errors import UsageError
from maar.core.files import write_text
from maar.core.spec import Property
from maar.exchange import vnnlib1, vnnlib2
from maar.exchange.packed import read_packed

Version = Literal["1.0", "2.0"]
BLANK = re.compile(r"\s*(?:;[^\n]*)?")
OF_VERSION_2 = re.compile(r"\(\s*(vnnlib-version|declare-network)\b")


def read_vnnlib(path: str | Path) -> Property:
    """The property in the file, which may be packed by gzip."""
    content = read_packed(Path(path), "VNNLIB file", limits.VNNLIB_BYTES)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a VNNLIB file: it is not text") from None
    parse = vnnlib2.parse if OF_VERSION_2.match(text, _first_command(text)) else vnnlib1.parse
    return parse(text, str(path))


def _first_command(text: str) -> int:
    """Where the first thing stands that is neither space nor comment."""
    start, end = -1, 0
    while start != end:
        match = BLANK.match(text, end)
        start, end = end, match.end() if match else end
    return end


def write_vnnlib(
    path: str | Path,
    x: np.ndarray,
    eps: float,
    y: int,
    classes: int,
    *,
    version: Version = "1.0",
    comment: str = "",
) -> None:
    """Write the question whether some image within eps of x, clipped to [0, 1], is not of class y.

    The bounds are the exact decimals of x - eps and x + eps, whatever their length: what is proved
    of the file is proved of that ball, and what breaks it lies in the ball.
    """
    if not 0 <= y < classes:
        raise UsageError(f"label {y} is out of range (accepted: 0 to {classes - 1})")
    radius = Fraction(float(eps))
    flat = [Fraction(float(pixel)) for pixel in np.asarray(x).reshape(-1)]
    bounds = [
        (_decimal(max(pixel - radius, Fraction(0))), _decimal(min(pixel + radius, Fraction(1))))
        for pixel in flat
    ]
    write = _version_1 if version == "1.0" else _version_2
    head = "".join(f"; {line}\n" for line in comment.splitlines())
    write_text(Path(path), head + write(bounds, np.shape(x), y, classes))


def _version_1(bounds: list[tuple[str, str]], shape: tuple[int, ...], y: int, classes: int) -> str:
    lines = [f"(declare-const X_{i} Real)" for i in range(len(bounds))]
    lines += [f"(declare-const Y_{k} Real)" for k in range(classes)]
    for i, (low, high) in enumerate(bounds):
        lines += [f"(assert (>= X_{i} {low}))", f"(assert (<= X_{i} {high}))"]
    rivals = [f"    (and (>= Y_{k} Y_{y}))" for k in range(classes) if k != y]
    return "\n".join([*lines, "(assert (or", *rivals, "))"]) + "\n"


def _version_2(bounds: list[tuple[str, str]], shape: tuple[int, ...], y: int, classes: int) -> str:
    sizes = ",".join(map(str, (1, *shape)))
    lines = [
        "(vnnlib-version <2.0>)",
        "(declare-network net",
        f"    (declare-input X float32 [{sizes}])",
        f"    (declare-output Y float32 [1,{classes}])",
        ")",
    ]
    for index, (low, high) in zip(np.ndindex(shape), bounds, strict=True):
        place = ",".join(map(str, (0, *index)))
        lines += [f"(assert (>= X[{place}] {low}))", f"(assert (<= X[{place}] {high}))"]
    rivals = [f"    (>= Y[0,{k}] Y[0,{y}])" for k in range(classes) if k != y]
    return "\n".join([*lines, "(assert (or", *rivals, "))"]) + "\n"


def _decimal(value: Fraction) -> str:
    """A float or a sum of floats as an exact decimal without exponent, which 2.0 does not have."""
    twos = value.denominator.bit_length() - 1
    digits = f"{abs(value.numerator) * 5**twos:0{twos + 1}d}"
    whole, rest = digits[: len(digits) - twos], digits[len(digits) - twos :]
    return f"{'-' if value < 0 else ''}{whole}.{rest.rstrip('0') or '0'}"
