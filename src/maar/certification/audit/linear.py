"""CROWN of the auditor's own, in float64: nothing of `maar.domains` is in it.

Rows a . h are carried from a layer's output to its input by the layer's own transpose, as torch's
gradients have it; a ReLU is replaced by a line below or above. One image at a time. Rounding is not
accounted for: what it may do in float64 is far below `SLACK`, by which a bound must be positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_input

from maar.certification.audit.points import Limits
from maar.networks.layers import Normalize, Residual
from maar.networks.operations import is_odd

SLACK = 1e-7
BUDGET = 1 << 24
"""Numbers in the rows of one pass."""
STEPS = 20

LAYERS = (
    nn.Conv2d,
    nn.Linear,
    nn.ReLU,
    nn.Flatten,
    nn.AvgPool2d,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    Normalize,
    Residual,
    nn.Sequential,
)
"""Layers for which these bounds are right."""


def is_bounded(net: nn.Sequential) -> bool:
    """Whether the auditor's own bounds can pass every layer."""
    return all(type(layer) in LAYERS and not is_odd(layer) for layer in net.modules())


Key = tuple[int, ...]
"""Where a layer stands: its index, inside a Residual followed by 0 (body) or 1 (shortcut), ..."""
Path = tuple[tuple[Sequence[nn.Module], Key], ...]
"""The layers between the input and some place, outermost Sequential first."""
Pair = tuple[Tensor, Tensor]


@dataclass(eq=False)
class Enclosed:
    """One image's ball, walked through: every ReLU's input is bounded."""

    net: nn.Sequential
    low: Tensor
    """[1, *shape]"""
    high: Tensor

    @torch.no_grad()
    def __post_init__(self) -> None:
        self.pre: dict[Key, Pair] = {}
        self.shapes: dict[Key, torch.Size] = {}
        self.out = self._walk(self.net, (), (), (self.low, self.high))

    def _walk(self, layers: nn.Sequential, key: Key, path: Path, box: Pair) -> Pair:
        for i, layer in enumerate(layers):
            here = (*key, i)
            so_far = (*path, (list(layers)[:i], key))
            self.shapes[here] = box[0].shape[1:]
            if isinstance(layer, nn.ReLU):
                box = self._tightened(so_far, box) if self.pre else box
                self.pre[here] = box
                box = box[0].clamp_min(0), box[1].clamp_min(0)
            elif isinstance(layer, Residual):
                left = self._walk(layer.body, (*here, 0), so_far, box)
                right = self._walk(layer.shortcut, (*here, 1), so_far, box)
                box = left[0] + right[0], left[1] + right[1]
            else:
                box = interval(layer, box)
        return box

    def _tightened(self, path: Path, box: Pair) -> Pair:
        """Bound again, by rows, the neurons whose sign the interval leaves open."""
        lb, ub = box[0].flatten().clone(), box[1].flatten().clone()
        unstable = ((lb < 0) & (ub > 0)).nonzero().squeeze(1)
        widest = max(shape.numel() for shape in self.shapes.values())
        for part in unstable.split(max(1, BUDGET // widest)):
            rows = torch.zeros(len(part), lb.numel(), dtype=lb.dtype)
            rows[torch.arange(len(part)), part] = 1
            rows = rows.view(-1, *box[0].shape[1:])
            below, rows, constant = self._to_the_last_relu(path, rows)
            lb[part] = torch.maximum(lb[part], self.lower(below, rows, constant))
            ub[part] = torch.minimum(ub[part], -self.lower(below, -rows, -constant))
        return lb.view_as(box[0]), ub.view_as(box[1])

    def _to_the_last_relu(self, path: Path, rows: Tensor) -> tuple[Path, Tensor, Tensor]:
        """The affine layers at the end of a path, which are the same for rows and -rows."""
        *before, (layers, key) = path
        constant, end = rows.new_zeros(len(rows)), len(layers)
        while end and not isinstance(layers[end - 1], nn.ReLU | Residual):
            end -= 1
            shape = self.shapes[(*key, end)]
            rows, constant = transpose(layers[end], rows, constant, shape)
        return (*before, (layers[:end], key)), rows, constant

    def margins(self, rows: Tensor, slopes: dict[Key, Tensor] | None = None) -> Tensor:
        """Lower bounds of rows over the scores, [R]."""
        return self.lower(((list(self.net), ()),), rows, rows.new_zeros(len(rows)), slopes)

    def lower(
        self,
        path: Path,
        rows: Tensor,
        constant: Tensor,
        slopes: dict[Key, Tensor] | None = None,
    ) -> Tensor:
        """Lower bounds of rows + constant over the value at the end of a path."""
        for layers, key in reversed(path):
            rows, constant = self._carry(layers, key, rows, constant, slopes)
        centre, radius = (self.high + self.low) / 2, (self.high - self.low) / 2
        return constant + (rows * centre - rows.abs() * radius).flatten(1).sum(1)

    def _carry(
        self,
        layers: Sequence[nn.Module],
        key: Key,
        rows: Tensor,
        constant: Tensor,
        slopes: dict[Key, Tensor] | None,
    ) -> tuple[Tensor, Tensor]:
        for i in reversed(range(len(layers))):
            layer, here = layers[i], (*key, i)
            if isinstance(layer, nn.ReLU):
                slope = None if slopes is None else slopes[here]
                rows, constant = relax(rows, constant, *self.pre[here], slope)
            elif isinstance(layer, Residual):
                body, constant = self._carry(list(layer.body), (*here, 0), rows, constant, slopes)
                short, constant = self._carry(
                    list(layer.shortcut), (*here, 1), rows, constant, slopes
                )
                rows = body + short
            else:
                rows, constant = transpose(layer, rows, constant, self.shapes[here])
        return rows, constant


def relax(
    rows: Tensor, constant: Tensor, lb: Tensor, ub: Tensor, slope: Tensor | None
) -> tuple[Tensor, Tensor]:
    """From rows over relu(v) to rows over v: below by `slope` v, above by the chord."""
    # Asked this way round, a NaN for a bound passes for no stable ReLU and stays a NaN.
    stable = (lb >= 0) | (ub <= 0)
    on = (lb >= 0).to(rows.dtype)
    chord = torch.where(stable, on, ub / (ub - lb).clamp_min(1e-300))
    if slope is None:
        slope = (ub > -lb).to(rows.dtype)
    slope = torch.where(stable, on, slope)
    height = torch.where(stable, torch.zeros_like(lb), -lb * chord)
    negative = rows.clamp_max(0)
    constant = constant + (negative * height).flatten(1).sum(1)
    return rows.clamp_min(0) * slope + negative * chord, constant


def transpose(
    layer: nn.Module, rows: Tensor, constant: Tensor, shape: torch.Size
) -> tuple[Tensor, Tensor]:
    """From rows over W v + b to rows over v."""
    bias = layer(rows.new_zeros(1, *shape)).detach()
    constant = constant + (rows * bias).flatten(1).sum(1)
    if isinstance(layer, nn.Conv2d):  # the gradient alone, without a forward pass per row
        size = (len(rows), *shape)
        return conv2d_input(size, layer.weight, rows, *_options(layer)), constant
    with torch.enable_grad():
        anywhere = torch.zeros(len(rows), *shape, dtype=rows.dtype, requires_grad=True)
        (rows,) = torch.autograd.grad(
            layer(anywhere), anywhere, rows, create_graph=rows.requires_grad
        )
    return rows, constant


def interval(layer: nn.Module, box: Pair) -> Pair:
    """A box through an affine layer."""
    centre, radius = (box[0] + box[1]) / 2, (box[1] - box[0]) / 2
    middle = layer(centre)
    if isinstance(layer, nn.Conv2d):
        reach = F.conv2d(radius, layer.weight.abs(), None, *_options(layer))
    elif isinstance(layer, nn.Linear):
        reach = radius @ layer.weight.abs().T
    else:  # pixel by pixel, or an average: all weights of a neuron have one sign
        reach = (layer(radius) - layer(torch.zeros_like(radius))).abs()
    return middle - reach, middle + reach


def _options(conv: nn.Conv2d) -> Any:
    return conv.stride, conv.padding, conv.dilation, conv.groups


def margins_of(net: nn.Sequential, x: Tensor, y: int, near: Limits) -> tuple[Enclosed, Tensor]:
    """The ball around x [1, *shape], and the rows z_y - z_k of the other classes."""
    enclosed = Enclosed(net, *near.corners(x))
    one_hot = torch.eye(enclosed.out[0].shape[1], dtype=torch.float64)
    others = [k for k in range(len(one_hot)) if k != y]
    return enclosed, one_hot[y] - one_hot[others]


@torch.no_grad()
def crown(enclosed: Enclosed, rows: Tensor) -> Tensor:
    """Lower bounds of the rows by CROWN."""
    return enclosed.margins(rows)


def alpha_crown(enclosed: Enclosed, rows: Tensor, start: Tensor) -> Tensor:
    """The same with the lower slopes of the last pass improved by gradient."""
    best = start.clone()
    open_ = (best <= SLACK).nonzero().squeeze(1)
    slopes = {
        key: (ub > -lb).to(rows.dtype).expand(len(open_), *lb.shape[1:]).clone().requires_grad_()
        for key, (lb, ub) in enclosed.pre.items()
    }
    if not slopes:
        return best  # without a ReLU CROWN is exact
    optimiser = torch.optim.Adam(slopes.values(), lr=0.25)
    with torch.enable_grad():
        for _ in range(STEPS):
            found = enclosed.margins(rows[open_], slopes)
            best[open_] = torch.maximum(best[open_], found.detach())
            if bool((best > SLACK).all()):
                break
            optimiser.zero_grad()
            (-found[found.detach() <= SLACK].sum()).backward()
            optimiser.step()
            with torch.no_grad():
                for slope in slopes.values():
                    slope.clamp_(0, 1)
    return best
