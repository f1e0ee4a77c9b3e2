"""What flows through an ONNX graph while it is read, and what an operator sees of its node.

A file is read for one image. Every value has the shape that the file gives it then, `full`, and the
shape of maar's own value, `shape`: the same without a leading 1, which is the batch axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from maar.networks.assembling import Builder
from maar.networks.checking import spell
from maar.networks.maps import Reshape
from maar.networks.operations import Shape


@dataclass(frozen=True, eq=False)
class Link:
    """A value that is computed from the image: its number in the builder, and its shapes."""

    number: int
    shape: Shape
    full: Shape


def inner(full: Shape) -> Shape:
    """A shape without the batch axis."""
    return full[1:] if len(full) > 1 and full[0] == 1 else (full or (1,))


Value = Link | np.ndarray


@dataclass
class Node:
    """One node of the graph with its inputs computed."""

    inputs: list[Value | None]
    outputs: int
    attributes: dict[str, Any]
    opset: int
    batch: int | None
    """The batch size above 1 that the file fixes for its input, if it does."""
    dtype: torch.dtype
    """Of the numbers of the network: float32, or float64 where the file's need it."""
    builder: Builder
    sole: Callable[[Link], bool]
    """Whether this node is the only one that uses a value."""
    allot: Callable[[int], None]
    """Ask for the room of a constant of so many elements, before it is computed."""

    def image(self, position: int) -> Link:
        value = self.inputs[position] if position < len(self.inputs) else None
        if not isinstance(value, Link):
            raise ValueError(f"input {position} is a constant, but must come from the image")
        return value

    def constant(self, position: int) -> np.ndarray:
        value = self.inputs[position] if position < len(self.inputs) else None
        if not isinstance(value, np.ndarray):
            raise ValueError(f"input {position} must be a constant")
        return value

    def weight(self, position: int) -> np.ndarray:
        """A constant of floating-point numbers, in the network's type, without rounding."""
        value = self.constant(position)
        wanted = np.float32 if self.dtype == torch.float32 else np.float64
        if value.dtype.kind != "f" or not is_exact(value, wanted):
            kind = str(self.dtype).removeprefix("torch.")
            raise ValueError(f"input {position} is of type {value.dtype}, must be {kind}")
        return value.astype(wanted)

    def numbers(self, position: int) -> list[int]:
        """A constant of whole numbers, as a list."""
        value = self.constant(position)
        if value.dtype.kind not in "iu":
            raise ValueError(f"input {position} must be whole numbers")
        return [int(number) for number in value.reshape(-1)]

    def has(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def take(self, name: str, default: Any) -> Any:
        """An attribute; those that no operator takes are refused in the end."""
        return self.attributes.pop(name, default)

    def axes(self, default: Any = ()) -> list[int]:
        """Axes, which are an attribute in older files and an input in newer ones."""
        return self.numbers(1) if self.has(1) else list(self.take("axes", default))

    def sizes(self, name: str, rank: int, default: tuple[int, ...] | None) -> tuple[int, ...]:
        """An attribute of one positive number for each axis of space."""
        value = self.take(name, default)
        if value is None or len(value) != rank or min(value) < 1:
            count = {1: "one positive number", 2: "two positive numbers"}.get(
                rank, f"{rank} positive numbers"
            )
            raise ValueError(f"{name} = {value} must be {count}")
        return tuple(int(size) for size in value)

    def layer(self, link: Link) -> nn.Module | None:
        """The layer that a value comes out of."""
        return self.builder.steps[link.number - 1].layer if link.number else None

    def then(self, layer: nn.Module, *links: Link, full: Shape | None = None) -> Link:
        """`layer` on some values; `full` is the file's shape of what it gives."""
        try:
            number = self.builder.add(layer, *(link.number for link in links))
        except ValueError as reason:
            shapes = " and ".join(spell(link.shape) for link in links)
            raise ValueError(f"does not fit an input of shape {shapes}: {reason}") from None
        shape = self.builder.shapes[number]
        if full is None:
            first = links[0]
            full = shape if first.full == first.shape else (1, *shape)
        return self.shaped(Link(number, shape, full), full)

    def shaped(self, link: Link, full: Shape) -> Link:
        """The same numbers in another of the file's shapes."""
        wanted = inner(full)
        if wanted == link.shape:
            return Link(link.number, link.shape, full)
        layer = nn.Flatten() if len(wanted) == 1 else Reshape(wanted)
        return Link(self.builder.add(layer, link.number), wanted, full)


def is_exact(value: np.ndarray, kind: Any) -> bool:
    """Whether floating-point numbers are the same in another type. (NaN and inf are.)"""
    if value.dtype == kind or value.dtype == np.float16:
        return True
    with np.errstate(all="ignore"):
        same = value.astype(kind).astype(np.float64) == value
    return bool((same | ~np.isfinite(value)).all())
