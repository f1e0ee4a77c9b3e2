"""What a bound is: a function from a network and a box to an enclosure of all its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from maar.bounds.graph import Graph, trace

Pair = tuple[Tensor, Tensor]


class Box(Protocol):
    """Anything with a lower and an upper corner: `regions.Ball`, `regions.LatentBox`, ..."""

    @property
    def lb(self) -> Tensor: ...

    @property
    def ub(self) -> Tensor: ...


@dataclass(frozen=True)
class Enclosure:
    """lb <= C f(x) <= ub for every x of the box, [N, rows]; and what was found on the way.

    `pre` has the bounds on the input of each ReLU, in the order of the graph, [N, *shape].
    """

    lb: Tensor
    ub: Tensor
    pre: tuple[Pair, ...]


class Bound(Protocol):
    """A bound domain. `sound` is False for an estimate: certification refuses those."""

    name: ClassVar[str]
    sound: ClassVar[bool]

    def __call__(
        self,
        net: nn.Module | Graph,
        box: Box,
        C: Tensor | None = None,
        known: Sequence[Pair | None] | None = None,
    ) -> Enclosure:
        """Enclose C f(x) (or f(x) without C) over the box.

        C is [N, rows, classes]. `known` gives bounds on ReLU inputs that another bound has
        already found; they are intersected with, never thrown away.
        """
        ...


def margins(y: Tensor, classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The specification of robustness: rows z_y - z_k for each k != y, [N, classes-1, classes]."""
    others = torch.arange(classes, device=y.device).expand(len(y), -1)
    others = others[others != y[:, None]].view(len(y), classes - 1)
    one_hot = torch.eye(classes, dtype=dtype, device=y.device)
    return one_hot[y][:, None, :] - one_hot[others]


def as_graph(net: nn.Module | Graph, box: Box) -> Graph:
    """A network traced for the box's shape; a graph is passed through."""
    return net if isinstance(net, Graph) else trace(net, box.lb.shape[1:])


def intersect(old: Pair, new: Pair | None) -> Pair:
    """The tighter of each bound; both are sound, so is the intersection."""
    if new is None:
        return old
    return torch.maximum(old[0], new[0].to(old[0])), torch.minimum(old[1], new[1].to(old[1]))
