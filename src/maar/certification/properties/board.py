"""The shared state of a property's questions while steps work on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch

from maar.certification.properties.question import Question, Witness
from maar.certification.properties.witness import confirm
from maar.core import clock
from maar.domains.bound import Pair
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced


@dataclass(frozen=True)
class Entry:
    """One turn of a step, for `--verbose`."""

    step: str
    seconds: float
    """When the turn ended, since the beginning."""
    text: str

    def __str__(self) -> str:
        return f"{self.seconds:8.2f} s  {self.step:<13} {self.text}"


@dataclass(eq=False)
class Memory:
    """Bounds of a question's box, kept for later steps."""

    pre: tuple[Pair, ...] = ()
    """Bounds of each ReLU's input."""
    network: Reduced | None = None
    rows: Affine | None = None
    """The rows that were open then, over `network`."""
    place: dict[int, int] = field(default_factory=dict)
    """Where each row of the case is among `rows`."""
    lb: dict[int, float] = field(default_factory=dict)
    """Of each row."""


class Board:
    """The open questions; steps write down here what they prove or find."""

    def __init__(self, questions: Iterable[Question], end: float) -> None:
        self.questions = list(questions)
        self.memory = [Memory() for _ in self.questions]
        self.begin, self.end = clock.now(), end
        self.is_split = False
        """Whether splitting takes part: then no other step's turn may take long."""
        self.witness: Witness | None = None
        self.by: str | None = None
        """The step that settled the property, or the last condition."""
        self.log: list[Entry] = []
        self.reasons: list[str] = []
        """Why a complete step cannot settle a condition."""

    def left(self) -> list[int]:
        """The questions with open conditions."""
        return [n for n, question in enumerate(self.questions) if question.open]

    def is_settled(self) -> bool:
        """Whether the property is."""
        return self.witness is not None or not any(question.open for question in self.questions)

    def is_late(self) -> bool:
        """Whether time is up."""
        return clock.now() >= self.end

    def prove(self, n: int, conditions: Iterable[int], step: str) -> None:
        """Take conditions of a question that are out of reach off the board."""
        conditions = set(conditions) & set(self.questions[n].open)
        if conditions:
            self.questions[n] = self.questions[n].narrowed(conditions)
            self.by = step

    def look(self, n: int, points: torch.Tensor, step: str) -> bool:
        """Whether one of these points is a witness, which is then kept; [P, inputs]."""
        for point in points:
            witness = confirm(self.questions[n], point[None])
            if witness is not None:
                self.witness, self.by = witness, step
                return True
        return False

    def note(self, step: str, text: str) -> None:
        """Write a line for `--verbose`."""
        self.log.append(Entry(step, clock.now() - self.begin, text))


class Step(Protocol):
    """One way to settle questions, in turns.

    Each turn ends with the share of the step's work that is done, in [0, 1]; a step without
    further turns has nothing more to give. A turn looks at `maar.core.clock`.
    """

    def __call__(self, board: Board) -> Iterator[float]: ...
