"""sat, unsat, timeout or unknown: steps take turns on the questions of a property."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

from maar.certification.network import require_provable
from maar.certification.properties import STEPS
from maar.certification.properties.board import Board, Entry
from maar.certification.properties.question import Question, Runner, Subject, Witness
from maar.core import clock
from maar.core.errors import UsageError
from maar.core.spec import Case, Condition, Property
from maar.networks.checking import check, spell, trace

ROWS = 1024
# With so few inputs that have a width, boxes are cut first; with more than MANY, never.
FEW, MANY = 10, 128

Verdict = Literal["sat", "unsat", "timeout", "unknown"]


@dataclass(frozen=True)
class Decision:
    """`sat` comes with a witness; `by` is the last step that was needed."""

    verdict: Verdict
    by: str | None
    seconds: float
    witness: Witness | None = None
    reason: str = ""
    """Why the question is still open."""
    log: tuple[Entry, ...] = ()
    """What each step did."""


def decide(
    net: nn.Sequential,
    shape: tuple[int, ...],
    prop: Property,
    *,
    timeout: float = math.inf,
    runner: Runner | None = None,
    steps: Sequence[str] = tuple(STEPS),
    seed: int = 0,
) -> Decision:
    """Whether an input of the property's boxes gives an unsafe output.

    `runner` is another program that computes the network, asked before a witness counts.
    """
    if not steps:
        raise UsageError(f"no steps (accepted: a list of {', '.join(STEPS)})")
    found = {name: STEPS[name] for name in steps}  # an unknown one is refused
    assert found
    begin = clock.now()
    questions = _questions(net, shape, prop)
    board = Board(
        [replace(question, seed=seed, runner=runner) for question in questions], begin + timeout
    )
    if not board.is_settled():
        _race(board, _racers(board, steps))

    def decision(verdict: Verdict, reason: str = "") -> Decision:
        by = board.by if verdict in ("sat", "unsat") else None
        seconds = clock.now() - begin
        return Decision(verdict, by, seconds, board.witness, reason, tuple(board.log))

    if board.is_settled():
        return decision("sat" if board.witness is not None else "unsat")
    is_late = board.is_late()
    return decision("timeout" if is_late else "unknown", _reason(board, is_late))


@dataclass
class _Racer:
    """Steps one after the other, the share of the time that they get, and how far they are."""

    turns: Iterator[float]
    weight: float
    seconds: float = 0.0
    progress: float = 0.0

    def expected(self) -> float:
        """Seconds until it is through, if it goes on like this."""
        return self.seconds * (1 - self.progress) / self.progress if self.progress else math.inf


# How much more time the racer gets that is expected to end first.
LEADER = 4.0


def _racers(board: Board, steps: Sequence[str]) -> list[_Racer]:
    """Splitting, attacks and everything else, the first one first.

    With few inputs splitting begins; images are never cut, unless nothing else is asked for.
    """
    case_widths = (question.subject.case for question in board.questions)
    free = max(int((case.lb < case.ub).sum()) for case in case_widths)
    others = [name for name in steps if name not in ("splitting", "strong_attack")]
    racers = [_Racer(_chain(board, others), 1.0)] if others else []
    if "strong_attack" in steps:
        racers.append(_Racer(_chain(board, ["strong_attack"]), 0.25))
    if "splitting" in steps and (free <= MANY or len(steps) == 1):
        splitting = _Racer(_chain(board, ["splitting"]), 4.0 if free <= FEW else 1.0)
        racers.insert(0 if free <= FEW else len(racers), splitting)
        board.is_split = True
    return racers


def _chain(board: Board, steps: Sequence[str]) -> Iterator[float]:
    for name in steps:
        yield from STEPS[name](board)


def _race(board: Board, racers: list[_Racer]) -> None:
    """Turns until the property is settled, time is up, or nobody goes on."""
    while racers and not board.is_settled() and not board.is_late():
        leader = min(racers, key=_Racer.expected)
        lead = LEADER if math.isfinite(leader.expected()) else 1.0

        def used(racer: _Racer, leader: _Racer = leader, lead: float = lead) -> float:
            return racer.seconds / racer.weight / (lead if racer is leader else 1.0)

        racer = min(racers, key=used)
        begin = clock.now()
        try:
            with clock.until(board.end):
                racer.progress = next(racer.turns)
        except (StopIteration, clock.Late):
            racers.remove(racer)
        racer.seconds += clock.now() - begin


def _reason(board: Board, is_late: bool) -> str:
    """What is open, and what the last turns came to."""
    count = sum(len(question.open) for question in board.questions)
    text = f"{count} {'condition is' if count == 1 else 'conditions are'} open"
    if not is_late and board.reasons:
        return f"{text}; {board.reasons[-1]}"
    last = {entry.step: entry.text for entry in board.log}
    parts = (f"{step}: {text}" for step, text in last.items() if step in ("branching", "splitting"))
    return "; ".join([text, *parts])


def _questions(net: nn.Sequential, shape: tuple[int, ...], prop: Property) -> list[Question]:
    check(net, shape)
    require_provable(net, doubles=True)
    out = trace(net, shape)[-1].shape if len(net) else shape
    if len(out) != 1:
        raise UsageError(f"the network gives {spell(out)}, not a list of outputs")
    if math.prod(shape) != prop.inputs or out[0] != prop.outputs:
        raise UsageError(
            f"the property is about {prop.inputs} inputs and {prop.outputs} outputs, the network "
            f"has {math.prod(shape)} ({spell(shape)}) and {out[0]}"
        )
    net = copy.deepcopy(net).cpu().eval().requires_grad_(False)
    double = copy.deepcopy(net).double()
    net = net.float()  # for attacks, whose points `confirm` looks at again
    cases = [part for case in prop.cases for part in _in_parts(case)]
    return [Question.of(Subject(net, double, shape, case)) for case in cases]


def _in_parts(case: Case) -> Iterator[Case]:
    """The same box with at most `ROWS` rows of conditions at a time, or one condition of more.

    The unsafe set is their union. Memory grows with the square of the rows.
    """
    part: list[Condition] = []
    rows = 0
    for condition in case.conditions:
        if part and rows + len(condition.b) > ROWS:
            yield replace(case, conditions=tuple(part))
            part, rows = [], 0
        part.append(condition)
        rows += len(condition.b)
    yield replace(case, conditions=tuple(part))
