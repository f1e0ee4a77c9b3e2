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

    @staticmethod
    def stack(parts: Sequence[Enclosure]) -> Enclosure:
        """Join enclosures of single images into that of a batch."""
        pre = zip(*(part.pre for part in parts), strict=True)
        return Enclosure(
            torch.cat([part.lb for part in parts]),
            torch.cat([part.ub for part in parts]),
            tuple((torch.cat([p[0] for p in k]), torch.cat([p[1] for p in k])) for k in pre),
        )


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


@dataclass(frozen=True)
class Corners:
    """The plainest box."""

    lb: Tensor
    ub: Tensor


def one_image(
    graph: Graph, box: Box, C: Tensor | None, known: Sequence[Pair | None] | None, n: int
) -> tuple[Corners, Tensor, list[Pair | None] | None]:
    """Image n of a batch: its box, its specification (every output if none) and what is known."""
    if C is None:
        count = graph.shapes[-1].numel()
        spec = torch.eye(count, dtype=graph.dtype, device=box.lb.device)[None]
    else:
        spec = C[n : n + 1]
    cut = None
    if known is not None:
        cut = [None if pair is None else (pair[0][n : n + 1], pair[1][n : n + 1]) for pair in known]
    return Corners(box.lb[n : n + 1], box.ub[n : n + 1]), spec, cut


def intersect(old: Pair, new: Pair | None) -> Pair:
    """The tighter of each bound; both are sound, so is the intersection."""
    if new is None:
        return old
    return torch.maximum(old[0], new[0].to(old[0])), torch.minimum(old[1], new[1].to(old[1]))
