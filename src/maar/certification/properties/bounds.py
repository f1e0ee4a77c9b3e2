"""Bounds of the rows over the whole box: interval, CROWN, alpha-CROWN, cheap to dear."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from maar.certification.properties.question import Answer, Question
from maar.certification.verdict import proves
from maar.certification.verifiers.alpha_crown import inner_slopes
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Box, Corners, Pair
from maar.domains.crown import Crown
from maar.domains.graph import Graph
from maar.domains.interval import Interval
from maar.domains.reduced.network import TooLarge

INTERVAL = Interval(rounding=True)
CROWN = Crown(rounding=True, upper=False)
ALPHA_CROWN = AlphaCrown(rounding=True)


@dataclass(frozen=True)
class BoundsStep:
    """All in float64, with rounding accounted for. `max_inner`: see the alpha_crown verifier."""

    max_inner: int = 1_000_000

    def __call__(self, question: Question) -> Answer:
        """The conditions of which some row is positive on the whole box."""
        graph, box = question.subject.graph, Corners(*question.box())
        left = question
        known: tuple[Pair, ...] = ()
        for bound in (INTERVAL, CROWN):
            with torch.no_grad():
                found = bound(graph, box, chosen(left))
            left = left.narrowed(left.proved(_positive(left, found.lb[0])))
            known = found.pre
            if not left.open or left.is_late():
                return _without(question, left)
        lb = self._alpha_crown(graph, box, chosen(left), known)
        return _without(question, left.narrowed(left.proved(_positive(left, lb))))

    def _alpha_crown(self, graph: Graph, box: Box, C: Tensor, known: tuple[Pair, ...]) -> Tensor:
        if inner_slopes(known) <= self.max_inner:
            with contextlib.suppress(TooLarge):
                return ALPHA_CROWN(graph, box, C, known).lb[0]
        return replace(ALPHA_CROWN, slopes="last")(graph, box, C, known).lb[0]


def _without(question: Question, left: Question) -> Answer:
    return Answer(proved=frozenset(question.open) - frozenset(left.open))


def chosen(question: Question) -> Tensor:
    """C that picks the open rows, [1, open, rows]."""
    count = question.subject.rows[-1].stop
    return torch.eye(count, dtype=torch.float64)[question.open_rows()][None]


def _positive(question: Question, lb: Tensor) -> Iterator[int]:
    rows = zip(question.open_rows(), lb.tolist(), strict=True)
    return (row for row, bound in rows if proves(bound))


BOUNDS = BoundsStep()
