"""A counterexample counts only if it is one for the network in real numbers and in float32.

in the box       its decimals, as they are printed, lie in the box that the file gives
in real numbers  interval bounds of that very point, with rounding accounted for; a point that
                 meets a condition exactly, by rational numbers
in float32       a plain forward pass; and onnxruntime on the original file, where it is there
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from maar.certification.properties.exact import exactly
from maar.certification.properties.question import Question, Witness
from maar.core.spec import Condition
from maar.domains.bound import Corners
from maar.domains.interval import Interval

INTERVAL = Interval(rounding=True)


@torch.no_grad()
def confirm(question: Question, point: Tensor) -> Witness | None:
    """The point moved into the exact box as a witness, or None if it is not one for sure."""
    case, shape = question.subject.case, (1, *question.subject.shape)
    pairs = zip(point.double().flatten().tolist(), case.low, case.high, strict=True)
    texts = [_text(value, low, high) for value, low, high in pairs]
    x = [text for text in texts if text is not None]
    if len(x) < len(texts):
        return None
    near = torch.tensor([float(text) for text in x], dtype=torch.float64).view(shape)
    z = question.subject.net(near.float())[0]
    outputs = [z.tolist()]
    if question.runner is not None:
        outputs.append(question.runner(near.float().numpy())[0].tolist())
    met = [k for k, c in enumerate(case.conditions) if all(_meets(c, y) for y in outputs)]
    if not met:
        return None
    real = highest(question, near)
    if any(bool((real[list(question.subject.rows[k])] < 0).all()) for k in met):
        return Witness(tuple(x), tuple(outputs[0]))
    exact = exactly(question.subject.outputs, [Fraction(text) for text in x])
    if exact is not None and any(_meets(case.conditions[k], exact) for k in met):
        return Witness(tuple(x), tuple(outputs[0]))
    return None


def _text(value: float, low: Fraction, high: Fraction) -> str | None:
    """A decimal in [low, high], near `value` if that is possible."""
    value = min(max(value, float(low)), float(high))
    for candidate in (repr(value), *map(repr, np.nextafter(value, [-np.inf, np.inf]).tolist())):
        if low <= Fraction(candidate) <= high:
            return candidate
    return None


def highest(question: Question, near: Tensor) -> Tensor:
    """Upper bounds of every row at the real point that `near` is rounded from."""
    if not question.subject.rows[-1].stop:
        return near.new_empty(0)
    down, up = torch.tensor(-torch.inf), torch.tensor(torch.inf)
    # The point's decimals are at most half an ulp from their nearest float64.
    box = Corners(torch.nextafter(near, down.double()), torch.nextafter(near, up.double()))
    ub = INTERVAL(question.subject.never_below, box).ub[0]
    return torch.where(ub.isfinite(), ub, torch.inf)


def _meets(condition: Condition, y: Sequence[float] | Sequence[Fraction]) -> bool:
    """Whether A y <= b, exactly, and A y < b in strict rows."""
    if not all(math.isfinite(value) for value in y):
        return False
    exact = [Fraction(value) for value in y]
    for row, b, strict in zip(
        condition.A.tolist(), condition.b_in.tolist(), condition.is_strict(), strict=True
    ):
        total = sum(Fraction(a) * value for a, value in zip(row, exact, strict=True) if a)
        if total > b or (strict and total == b):
            return False
    return True
