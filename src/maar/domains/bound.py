"""The interface of a bound: a function from a network and a box to an enclosure of all outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from maar.core.errors import UsageError
from maar.domains.graph import Graph, trace

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


@dataclass(frozen=True)
class Corners:
    """The plainest box."""

    lb: Tensor
    ub: Tensor
    dual: Pair | None = None
    """Of an L2 ball within the box: its centre, and its radius, rounded up."""


@dataclass(frozen=True)
class Problem:
    """The quantity to bound: C f(x) over a box (f(x) itself without C), [N, rows, classes].

    `known` has bounds on ReLU inputs that another bound has already found, or None.
    """

    graph: Graph
    box: Box
    C: Tensor | None = None
    known: Sequence[Pair | None] | None = None

    def check(self) -> None:
        """Refuse a C or `known` that does not belong to the network and the box."""
        images, classes = len(self.box.lb), self.graph.shapes[-1].numel()
        if self.C is not None and (
            self.C.dim() != 3 or self.C.shape[0] != images or self.C.shape[2] != classes
        ):
            raise UsageError(
                f"C has shape {tuple(self.C.shape)} (accepted: ({images}, rows, {classes}),"
                " images x rows x outputs)"
            )
        if self.known is not None and len(self.known) != len(self.graph.relus):
            raise UsageError(
                f"known has {len(self.known)} entries, but the network has"
                f" {len(self.graph.relus)} ReLUs (accepted: one pair or None for each)"
            )

    def require_exact(self) -> None:
        """Refuse a C that the type of the weights cannot hold: it would be another C."""
        if self.C is not None and not bool((self.C.to(self.graph.dtype) == self.C).all()):
            raise UsageError(
                f"C has numbers that are no {self.graph.dtype}, which the network is computed in "
                "(with rounding, accepted: numbers that are)"
            )

    def known_at(self, k: int) -> Pair | None:
        """Return the bounds on the input of ReLU k that came in, if any."""
        return self.known[k] if self.known else None

    def images(self) -> Iterator[Problem]:
        """The same, one image at a time; every output gets a row where there was no C."""
        count = self.graph.shapes[-1].numel()
        for n in range(len(self.box.lb)):
            cut = slice(n, n + 1)
            if self.C is None:
                C = torch.eye(count, dtype=self.graph.dtype, device=self.box.lb.device)[None]
            else:
                C = self.C[cut]
            known = self.known and [pair and (pair[0][cut], pair[1][cut]) for pair in self.known]
            dual = getattr(self.box, "dual", None)
            dual = dual and (dual[0][cut], dual[1])
            yield Problem(self.graph, Corners(self.box.lb[cut], self.box.ub[cut], dual), C, known)


class Bound(ABC):
    """A bound domain. `sound` is False for an estimate: certification refuses those."""

    name: ClassVar[str]
    sound: ClassVar[bool] = True

    def __call__(
        self,
        net: nn.Module | Graph,
        box: Box,
        C: Tensor | None = None,
        known: Sequence[Pair | None] | None = None,
    ) -> Enclosure:
        """Enclose C f(x) over the box; C is [N, rows, classes], every output without it.

        What is `known` of the ReLUs' inputs is intersected with, never thrown away. (The Cauchy
        estimate takes it as it is: to intersect with an estimate would only blur it.)
        """
        problem = Problem(self.graph_of(net, box), box, C, known)
        problem.check()
        if getattr(self, "rounding", False):
            problem.require_exact()
        return self.enclose(problem)

    def graph_of(self, net: nn.Module | Graph, box: Box) -> Graph:
        """A network traced for the box's shape; a graph is passed through."""
        return net if isinstance(net, Graph) else trace(net, box.lb.shape[1:])

    @abstractmethod
    def enclose(self, problem: Problem) -> Enclosure:
        """Solve a problem over a traced network."""


def margins(y: Tensor, classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The specification of robustness: rows z_y - z_k for each k != y, [N, classes-1, classes]."""
    others = torch.arange(classes, device=y.device).expand(len(y), -1)
    others = others[others != y[:, None]].view(len(y), classes - 1)
    one_hot = torch.eye(classes, dtype=dtype, device=y.device)
    return one_hot[y][:, None, :] - one_hot[others]


def intersect(old: Pair, new: Pair | None) -> Pair:
    """The tighter of each bound; both are sound, so is the intersection."""
    if new is None:
        return old
    return torch.maximum(old[0], new[0].to(old[0])), torch.minimum(old[1], new[1].to(old[1]))
