"""What flows through an ONNX graph while it is read, and what an operator sees of its node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from maar.networks.checking import spell
from maar.networks.supported import Shape, shape_after


@dataclass(frozen=True, eq=False)
class Link:
    """What comes out of `layer`, which follows `parent`; the input image has neither."""

    parent: Link | None
    layer: nn.Module | None
    shape: Shape  # of one image, without the batch axis
    nesting: int = 0
    """How many residual blocks lie inside each other in `layer`."""

    depth: int = field(init=False)
    """How many links come before."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", 0 if self.parent is None else self.parent.depth + 1)


Value = Link | np.ndarray


@dataclass
class Node:
    """One node of the graph with its inputs computed."""

    inputs: list[Value | None]
    attributes: dict[str, Any]
    batch: int | None
    """The batch size that the file fixes for its input, if it does."""
    sole: Callable[[Link], bool]
    """Whether this node is the only one that uses a value."""
    taken: set[Link]
    """Links that already stand inside a Residual."""
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
        value = self.constant(position)
        if value.dtype != np.float32:
            raise ValueError(f"input {position} is of type {value.dtype}, must be float32")
        return value

    def has(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def take(self, name: str, default: Any) -> Any:
        """An attribute; those that no operator takes are refused in the end."""
        return self.attributes.pop(name, default)

    def pair(self, name: str, default: tuple[int, int] | None) -> tuple[int, int]:
        """An attribute of one positive number for the height and one for the width."""
        value = self.take(name, default)
        if value is None or len(value) != 2 or min(value) < 1:
            raise ValueError(f"{name} = {value} must be two positive numbers")
        return int(value[0]), int(value[1])


def then(link: Link, layer: nn.Module) -> Link:
    """`layer` after `link`."""
    try:
        return Link(link, layer, shape_after(layer, link.shape))
    except ValueError as reason:
        raise ValueError(f"does not fit an input of shape {spell(link.shape)}: {reason}") from None


def layers_between(start: Link | None, end: Link) -> list[Link]:
    """The links after `start` up to `end`, in order."""
    found: list[Link] = []
    link: Link | None = end
    while link is not start and link is not None and link.layer is not None:
        found.append(link)
        link = link.parent
    return found[::-1]
