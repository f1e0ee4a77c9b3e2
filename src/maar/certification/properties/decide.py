"""sat, unsat, timeout or unknown: the steps in order over every box of a property."""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

from maar.certification.network import require_provable
from maar.certification.properties import STEPS
from maar.certification.properties.question import Answer, Question, Runner, Subject, Witness
from maar.certification.properties.witness import confirm
from maar.core.errors import UsageError
from maar.core.spec import Case, Condition, Property
from maar.networks.checking import check, spell, trace

ROWS = 1024

Verdict = Literal["sat", "unsat", "timeout", "unknown"]


@dataclass(frozen=True)
class Decision:
    """`sat` comes with a witness; `by` is the last step that was needed."""

    verdict: Verdict
    by: str | None
    seconds: float
    witness: Witness | None = None
    reason: str = ""
    """Why a complete step left the question open before its time was up."""


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
    begin = time.monotonic()
    questions = [
        replace(question, seed=seed, runner=runner) for question in _questions(net, shape, prop)
    ]
    end = begin + timeout
    reasons: list[str] = []

    def decision(verdict: Verdict, by: str | None, witness: Witness | None = None) -> Decision:
        is_open = verdict in ("timeout", "unknown")
        reason = reasons[-1] if reasons and is_open else ""
        return Decision(verdict, by, time.monotonic() - begin, witness, reason)

    if not questions:
        return decision("unsat", None)
    # The last step again and again, for boxes whose share of the time was too short.
    for number, name in enumerate(itertools.chain(steps, itertools.repeat(steps[-1])), 1):
        left: list[Question] = []
        cut_short = False
        for position, question in enumerate(questions):
            now = time.monotonic()
            if now >= end:
                return decision("timeout", None)
            # Each box gets its share of the time that is left.
            share = (end - now) / (len(questions) - position)
            question = replace(question, deadline=now + share)
            answer = _ask(name, question)
            if answer.witness is not None:
                return decision("sat", name, answer.witness)
            cut_short |= question.is_late()
            reasons += [answer.reason] if answer.reason else []
            left.append(question.narrowed(answer.proved))
        questions = [question for question in left if question.open]
        if not questions:
            return decision("unsat", name)
        if number >= len(steps) and not cut_short:
            break
    return decision("unknown", None)


def _ask(name: str, question: Question) -> Answer:
    if all(len(question.subject.rows[k]) for k in question.open):
        return STEPS[name](question)
    # Every output meets a condition without rows, so every input will do.
    lb, ub = question.box()
    return Answer(witness=confirm(question, (lb + ub) / 2))


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
