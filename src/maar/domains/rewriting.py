"""Piecewise-linear operations as affine maps and ReLUs, exactly in real numbers.

    leaky(x)    a x + (1 - a) relu(x)            a in [0, 1], which keeps intervals exact
                relu(x) - a relu(-x)             any other a
    clip(x)     l + relu(x - l) - relu(x - h)
    |x|         2 relu(x) - x
    max(x, y)   y + relu(x - y)
    min(x, y)   x - relu(x - y)

and a maximum over a window is one over pairs, again and again. Where intervals of the parts would
be looser than those of the operation, the last node has the operation's own rule as `direct`. A
coefficient such as 1 - a is within one rounding of itself, which every domain accounts for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from maar.core.errors import UsageError
from maar.domains.linear_map import Mapped
from maar.networks.maps import Abs, Add, Clip, Combine, Maximum, Minimum, Move, WindowMax
from maar.networks.windows import max_pool_windows


class Adds(Protocol):
    """Append a node to the graph that is being made; returns its value."""

    def __call__(self, op: nn.Module, *inputs: int, direct: Direct | None = None) -> int: ...


Ends = Callable[..., tuple[Tensor, Tensor]]
"""(lb, ub) of each value, in order, to bounds of the operation on them, without any rounding."""
Direct = tuple[Ends, tuple[int, ...]]


def _leaky(add: Adds, layer: nn.LeakyReLU, x: int) -> int:
    return _sloped(add, layer.negative_slope, x, 0 <= layer.negative_slope <= 1)


def _prelu(add: Adds, layer: nn.PReLU, x: int, shape: torch.Size) -> int:
    slope = layer.weight.view(-1, *[1] * (len(shape) - 1))
    return _sloped(add, slope, x, bool(((slope >= 0) & (slope <= 1)).all()))


def _sloped(add: Adds, slope: float | Tensor, x: int, is_between: bool) -> int:
    if is_between:
        return add(Combine((slope, 1 - slope)), x, add(nn.ReLU(), x))
    below = add(nn.ReLU(), add(Combine((-1.0,)), x))
    return add(Combine((1.0, -slope)), add(nn.ReLU(), x), below)


def _clip(add: Adds, low: float | None, high: float | None, x: int) -> int:
    if low is not None and high is not None and low > high:
        raise UsageError(f"a clip to [{low}, {high}] is empty")
    direct = (_clip_ends(low, high), (x,))
    above = x
    if low is not None:
        above = add(nn.ReLU(), x if low == 0 else add(Combine((1.0,), -low), x))
    if high is None:
        return above if not low else add(Combine((1.0,), low), above, direct=direct)
    over = add(nn.ReLU(), add(Combine((1.0,), -high), x))
    return add(Combine((1.0, -1.0), low or 0.0), above, over, direct=direct)


def _clip_ends(low: float | None, high: float | None) -> Ends:
    def ends(lb: Tensor, ub: Tensor) -> tuple[Tensor, Tensor]:
        if low is not None:
            down, up = _rounded(low, lb)
            lb, ub = torch.maximum(lb, down), torch.maximum(ub, up)
        if high is not None:
            down, up = _rounded(high, lb)
            lb, ub = torch.minimum(lb, down), torch.minimum(ub, up)
        return lb, ub

    return ends


def _rounded(number: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """The number as a float below and one above it."""
    near = torch.tensor(number, dtype=like.dtype, device=like.device)
    inf = torch.full_like(near, torch.inf)
    down = near if float(near) <= number else torch.nextafter(near, -inf)
    up = near if float(near) >= number else torch.nextafter(near, inf)
    return down, up


def _abs(add: Adds, x: int) -> int:
    return add(Combine((2.0, -1.0)), add(nn.ReLU(), x), x, direct=(_abs_ends, (x,)))


def _abs_ends(lb: Tensor, ub: Tensor) -> tuple[Tensor, Tensor]:
    return torch.maximum(lb, -ub).clamp(min=0), torch.maximum(-lb, ub)


def _maximum(add: Adds, x: int, y: int) -> int:
    over = add(nn.ReLU(), add(Combine((1.0, -1.0)), x, y))
    return add(Add(), y, over, direct=(_max_ends, (x, y)))


def _max_ends(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    return torch.maximum(a, c), torch.maximum(b, d)


def _minimum(add: Adds, x: int, y: int) -> int:
    over = add(nn.ReLU(), add(Combine((1.0, -1.0)), x, y))
    return add(Combine((1.0, -1.0)), x, over, direct=(_min_ends, (x, y)))


def _min_ends(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    return torch.minimum(a, c), torch.minimum(b, d)


def _window_max(add: Adds, index: Tensor, x: int) -> int:
    values = [add(Mapped(Move(taps)), x) for taps in index]
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        last = values[-1:] if len(values) % 2 else []
        values = [*(_maximum(add, a, b) for a, b in pairs), *last]
    return values[0]


def _max_pool(add: Adds, layer: Any, x: int, shape: torch.Size) -> int:
    for index, _ in max_pool_windows(layer, tuple(shape)):
        x = _window_max(add, index, x)
    return x


Rewrite = Callable[[Adds, Any, tuple[int, ...], torch.Size], int]

REWRITES: dict[type[nn.Module], Rewrite] = {
    nn.LeakyReLU: lambda add, layer, x, shape: _leaky(add, layer, x[0]),
    nn.PReLU: lambda add, layer, x, shape: _prelu(add, layer, x[0], shape),
    nn.ReLU6: lambda add, layer, x, shape: _clip(add, 0.0, 6.0, x[0]),
    nn.Hardtanh: lambda add, layer, x, shape: _clip(add, layer.min_val, layer.max_val, x[0]),
    Clip: lambda add, layer, x, shape: _clip(add, layer.low, layer.high, x[0]),
    Abs: lambda add, layer, x, shape: _abs(add, x[0]),
    Maximum: lambda add, layer, x, shape: _maximum(add, *x),
    Minimum: lambda add, layer, x, shape: _minimum(add, *x),
    nn.MaxPool1d: lambda add, layer, x, shape: _max_pool(add, layer, x[0], shape),
    nn.MaxPool2d: lambda add, layer, x, shape: _max_pool(add, layer, x[0], shape),
    nn.MaxPool3d: lambda add, layer, x, shape: _max_pool(add, layer, x[0], shape),
    WindowMax: lambda add, layer, x, shape: _window_max(add, layer.index, x[0]),
}
