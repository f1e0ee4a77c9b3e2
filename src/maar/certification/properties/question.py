"""The question about one box of a property, and a witness that answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from maar.core.spec import Case
from maar.domains.graph import Graph, trace

Runner = Callable[[np.ndarray], np.ndarray]
"""Another program that computes the network: [1, *shape] float32 to [1, outputs]."""


class Subject:
    """The network followed by every row A y - b of a case's conditions.

    A condition is met where all of its rows are <= 0, so it is out of reach as soon as one of them
    is proved positive on the whole box. `net` and `double` (the same weights in float64) are frozen
    and shared by all cases.
    """

    def __init__(
        self, net: nn.Sequential, double: nn.Sequential, shape: tuple[int, ...], case: Case
    ) -> None:
        self.net, self.double, self.shape, self.case = net, double, shape, case
        ends = np.cumsum([len(condition.b) for condition in case.conditions]).tolist()
        self.rows = [range(a, b) for a, b in zip([0, *ends], ends, strict=False)]
        """The rows of each condition."""

    @cached_property
    def signed(self) -> nn.Sequential:
        """The network and the rows, in float32: for attacks."""
        return nn.Sequential(*self.net, self._linear(self.case, inner=False).float())

    @cached_property
    def exact(self) -> nn.Sequential:
        """The same weights in float64, and rows that are never above the true ones."""
        return self._exact(inner=False)

    @cached_property
    def never_below(self) -> nn.Sequential:
        """The same with rows that are never below the true ones."""
        return self._exact(inner=True)

    @cached_property
    def graph(self) -> Graph:
        """`exact` for bounds of one box at a time."""
        graph = trace(self.exact, self.shape)
        graph.constant = True  # nobody else has these weights
        return graph

    @cached_property
    def outputs(self) -> Graph:
        """The network alone, in float64, for bounds of many boxes of several cases."""
        return trace(self.double, self.shape)

    @cached_property
    def batched(self) -> Graph:
        """`exact` for bounds of many boxes at once."""
        return trace(self.exact, self.shape)

    def _exact(self, *, inner: bool) -> nn.Sequential:
        return nn.Sequential(*self.double, self._linear(self.case, inner))

    @staticmethod
    def _linear(case: Case, inner: bool) -> nn.Linear:
        A = np.concatenate([condition.A for condition in case.conditions])
        b = np.concatenate([c.b_in if inner else c.b for c in case.conditions])
        layer = nn.Linear(A.shape[1], A.shape[0], device="meta").to_empty(device="cpu").double()
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(A))
            layer.bias.copy_(torch.from_numpy(-b))
        return layer.requires_grad_(False)


@dataclass(frozen=True, eq=False)
class Question:
    """Can an input of the subject's box meet one of the `open` conditions?"""

    subject: Subject
    open: tuple[int, ...]
    """Conditions not yet proved out of reach."""
    seed: int = 0
    runner: Runner | None = None
    """Asked before a witness counts."""

    @staticmethod
    def of(subject: Subject) -> Question:
        """The whole question."""
        return Question(subject, tuple(range(len(subject.rows))))

    def narrowed(self, proved: Iterable[int]) -> Question:
        """The same question without what is proved."""
        proved = set(proved)
        return replace(self, open=tuple(k for k in self.open if k not in proved))

    def box(self) -> tuple[Tensor, Tensor]:
        """The corners in float64, rounded outwards, [1, *shape]."""
        case, shape = self.subject.case, (1, *self.subject.shape)
        return torch.from_numpy(case.lb).view(shape), torch.from_numpy(case.ub).view(shape)

    def open_rows(self) -> list[int]:
        """The rows of the open conditions."""
        return [row for k in self.open for row in self.subject.rows[k]]

    def proved(self, positive: Iterable[int]) -> frozenset[int]:
        """The open conditions of which one of these rows, positive on the whole box, is a part."""
        positive = set(positive)
        return frozenset(k for k in self.open if not positive.isdisjoint(self.subject.rows[k]))


@dataclass(frozen=True)
class Witness:
    """An input that meets a condition, as decimals, and the float32 outputs there."""

    x: tuple[str, ...]
    y: tuple[float, ...]

    def __str__(self) -> str:
        """As VNN-COMP writes it."""
        pairs = [f"(X_{i} {text})" for i, text in enumerate(self.x)]
        pairs += [f"(Y_{k} {value!r})" for k, value in enumerate(self.y)]
        return f"({chr(10).join(pairs)})"
