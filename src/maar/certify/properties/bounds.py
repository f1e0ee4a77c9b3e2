"""Bounds of the rows over the whole box: interval, CROWN, alpha-CROWN, cheap to dear."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from maar.bounds.alpha_crown import AlphaCrown
from maar.bounds.bound import Corners
from maar.bounds.crown import Crown
from maar.bounds.interval import Interval
from maar.bounds.reduced import TooLarge
from maar.certify.properties.question import Answer, Question
from maar.certify.verdict import proves
from maar.certify.verifiers.alpha_crown import inner_slopes

INTERVAL = Interval(rounding=True)
CROWN = Crown(rounding=True, upper=False)
ALPHA_CROWN = AlphaCrown(rounding=True)


@dataclass(frozen=True)
class BoundsStep:
    """All in float64, with rounding accounted for. `max_inner`: see the alpha_crown verifier."""

    max_inner: int = 1_000_000

    def __call__(self, question: Question) -> Answer:
        """The conditions of which some row is positive on the whole box."""
        proved: frozenset[int] = frozenset()
        left = question
        for bound in (self._interval, self._crown):
            lb = bound(left)
            proved |= left.proved(_positive(left, lb))
            left = question.narrowed(proved)
            if not left.open or left.is_late():
                return Answer(proved)
        lb = self._alpha_crown(left)
        return Answer(proved | left.proved(_positive(left, lb)))

    @torch.no_grad()
    def _interval(self, question: Question) -> Tensor:
        return INTERVAL(question.subject.graph, Corners(*question.box()), chosen(question)).lb[0]

    @torch.no_grad()
    def _crown(self, question: Question) -> Tensor:
        return CROWN(question.subject.graph, Corners(*question.box()), chosen(question)).lb[0]

    def _alpha_crown(self, question: Question) -> Tensor:
        graph, box, C = question.subject.graph, Corners(*question.box()), chosen(question)
        with torch.no_grad():
            known = CROWN(graph, box, C).pre
        if inner_slopes(known) <= self.max_inner:
            with contextlib.suppress(TooLarge):
                return ALPHA_CROWN(graph, box, C, known).lb[0]
        return replace(ALPHA_CROWN, slopes="last")(graph, box, C, known).lb[0]


def chosen(question: Question) -> Tensor:
    """C that picks the open rows, [1, open, rows]."""
    count = question.subject.rows[-1].stop
    return torch.eye(count, dtype=torch.float64)[question.open_rows()][None]


def _positive(question: Question, lb: Tensor) -> Iterator[int]:
    rows = zip(question.open_rows(), lb.tolist(), strict=True)
    return (row for row, bound in rows if proves(bound))


BOUNDS = BoundsStep()
