"""Points at which the network is said to be wrong: computed again, in float64 and by others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from maar.certification.audit.lines import digest
from maar.core import limits
from maar.core.errors import MaarError
from maar.core.unpacking import read_npz
from maar.records.verdicts import Record

Runner = Callable[[np.ndarray], np.ndarray]
"""Another program's forward pass, [1, *shape] to [1, classes], float32."""

# Of the largest score: what two float32 programs, or float32 and float64, may differ by.
FLOAT32 = 1e-5
# The same for two ways to sum in float64.
FLOAT64 = 1e-9


@dataclass(frozen=True)
class Scores:
    """The network's answers at a point: in float64 here, in float32 by another program."""

    exact: np.ndarray
    other: np.ndarray

    def differ(self) -> bool:
        """Whether the two can be of the same network."""
        return not np.abs(self.exact - self.other).max() <= 1e-4 * self.size()

    def size(self) -> float:
        """How large the scores are, at least 1."""
        return max(1.0, float(np.abs(self.exact).max()))


@dataclass(frozen=True, eq=False)
class Limits:
    """Which inputs count as near: a radius and a range, numbers or one for each place."""

    eps: float
    """The largest radius."""
    each: np.ndarray | float
    low: np.ndarray | float = 0.0
    high: np.ndarray | float = 1.0

    @staticmethod
    def of(eps: float) -> Limits:
        """The usual ones: one radius, pixels in [0, 1]."""
        return Limits(eps, eps)

    def corners(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The ends of the box around x [N, *shape], in float64."""
        each, low, high = (torch.as_tensor(a, dtype=torch.float64) for a in self._arrays)
        x = x.double()
        return torch.maximum(x - each, low), torch.minimum(x + each, high)

    def faults(self, x: np.ndarray, point: np.ndarray) -> list[str]:
        """Return why a point is not near x; empty if it is."""
        wide, there = x.astype(np.float64), point.astype(np.float64)
        wrong = []
        if not bool(((there >= self.low) & (there <= self.high)).all()):
            span = "[0, 1]" if isinstance(self.low, float) else "their range"
            wrong.append(
                f"the counterexample has pixels in [{point.min():.6g}, {point.max():.6g}], "
                f"outside {span}"
            )
        # Differences of float32 numbers in [0, 1] are exact in float64, others up to one rounding.
        away = np.abs(there - wide)
        if not isinstance(self.low, float):
            away = np.where(away > 0, np.nextafter(away, np.inf), 0.0)
        over = away - self.each
        if bool((over > 0).any()):
            worst = int(over.argmax())
            allowed = float(np.broadcast_to(self.each, away.shape).flat[worst])
            wrong.append(f"the counterexample is {away.flat[worst]:.9g} away, eps is {allowed:.9g}")
        return wrong

    @property
    def _arrays(self) -> tuple[np.ndarray | float, ...]:
        return self.each, self.low, self.high


class Judge:
    """The network, asked twice."""

    def __init__(self, net: nn.Sequential, runner: Runner) -> None:
        self.net = copy.deepcopy(net).cpu().eval().double().requires_grad_(False)
        self.runner = runner

    def scores(self, x: np.ndarray) -> Scores:
        """At one point [*shape], float32."""
        exact = self.net(torch.from_numpy(x.astype(np.float64))[None])[0].numpy()
        other = np.asarray(self.runner(x[None])[0], np.float64)
        return Scores(exact, other)


def lead(z: np.ndarray, y: int) -> tuple[int, float]:
    """The class ahead of all others but y, and z_k - z_y: above zero the answer is wrong."""
    others = z.copy()
    others[y] = -np.inf
    k = int(others.argmax())
    return k, float(z[k] - z[y])


def wrong_about(scores: Scores, y: int) -> str:
    """Why the network is not wrong here after all; empty if it is.

    In float64 another class must be ahead; a float32 program may see a tie where float64 does not.
    """
    k, ahead = lead(scores.exact, y)
    if not ahead > 0:
        return f"class {y} is ahead by {-ahead:.3g} in float64"
    k, ahead = lead(scores.other, y)
    if not ahead > -FLOAT32 * scores.size():
        return f"class {y} is ahead of {k} by {-ahead:.3g} in onnxruntime"
    return ""


def check_misclassified(scores: Scores, y: int) -> list[str]:
    """An image that is wrong by itself. A tie in float32 may have gone either way."""
    _, ahead = lead(scores.exact, y)
    if abs(ahead) <= FLOAT32 * scores.size():
        return []
    why = wrong_about(scores, y)
    return [f"misclassified, but {why}"] if why else []


def check_falsified(
    record: Record, path: Path, x: np.ndarray, y: int, near: Limits, judge: Judge
) -> list[str]:
    """The file of a counterexample, and the point in it."""
    try:
        arrays = _arrays(path)
    except FileNotFoundError:
        return [f"falsified, but counterexamples/{path.name} is missing"]
    except (MaarError, OSError, ValueError, KeyError) as error:
        return [f"falsified, but counterexamples/{path.name} is damaged ({error})"]
    wrong = []
    if "counterexample" in record and record["counterexample"] != digest(path.read_bytes()):
        wrong.append(f"{path.name} is not the file that the line names")
    if not np.array_equal(arrays["x"], x):
        wrong.append(f"x in {path.name} is not the image")
    if int(arrays["label"]) != y:
        wrong.append(f"label in {path.name} is {int(arrays['label'])}, that of the image {y}")
    point = arrays["x_adv"]
    if point.dtype != np.float32 or point.shape != x.shape or not np.isfinite(point).all():
        return [*wrong, f"the counterexample is no float32 image of shape {x.shape}"]
    wrong += near.faults(x, point)
    scores = judge.scores(point)
    why = wrong_about(scores, y)
    if why:
        wrong.append(f"the counterexample is none: {why}")
        return wrong
    return wrong + _check_claims(record, arrays, scores, y)


def breaks(path: Path, x: np.ndarray, y: int, near: Limits, judge: Judge) -> bool:
    """Return whether a file of another verdict's image holds a counterexample after all."""
    try:
        point = _arrays(path)["x_adv"]
    except (MaarError, OSError, ValueError, KeyError):
        return False
    if point.dtype != np.float32 or point.shape != x.shape or not np.isfinite(point).all():
        return False
    return not near.faults(x, point) and not wrong_about(judge.scores(point), y)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    content = read_npz(path, limits.COUNTEREXAMPLE_BYTES)
    arrays = {name: content[name] for name in ("x", "x_adv", "label", "target")}
    for name in ("label", "target"):
        if arrays[name].shape != () or arrays[name].dtype.kind not in "iu":
            raise ValueError(f"{name} is no whole number")
    return arrays


def _check_claims(record: Record, arrays: dict[str, Any], scores: Scores, y: int) -> list[str]:
    """Margin and target, as the line and the file have them."""
    wrong = []
    target, ahead = lead(scores.exact, y)
    for where, said in (("the line", record.get("target")), ("the file", int(arrays["target"]))):
        if said != target and not _tied(scores, said, target):
            wrong.append(f"{where} says that class {said} is ahead, it is {target}")
    margin = record.get("margin")
    if not isinstance(margin, int | float) or abs(margin + ahead) > FLOAT64 * scores.size():
        wrong.append(f"the line has margin {margin}, it is {-ahead:.9g}")
    return wrong


def _tied(scores: Scores, one: Any, other: int) -> bool:
    if not isinstance(one, int) or not 0 <= one < len(scores.exact):
        return False
    return abs(scores.exact[one] - scores.exact[other]) <= FLOAT64 * scores.size()
