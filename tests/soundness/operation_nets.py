"""Random graphs over every operation of the table, with its options, and boxes for them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maar.networks import operations
from maar.networks.assembling import Builder
from maar.networks.maps import (
    Abs,
    Add,
    Clip,
    Combine,
    Concat,
    MatMul,
    Maximum,
    Minimum,
    Move,
    Product,
    Reciprocal,
    Reduce,
    Reshape,
    Scale,
    WindowMax,
)
from maar.networks.windows import axis_windows, positions

Shape = tuple[int, ...]
SMOOTH = (nn.Sigmoid, nn.Tanh, Product, Reciprocal)


@dataclass
class Maker:
    """A network that grows by random layers."""

    rng: random.Random
    builder: Builder
    smooth: bool

    def number(self, *shape: int, scale: float = 1.0) -> Tensor:
        generator = torch.Generator().manual_seed(self.rng.randrange(2**31))
        return scale * torch.randn(shape, generator=generator)

    def shape(self, value: int) -> Shape:
        return self.builder.shapes[value]

    def same(self, value: int) -> int | None:
        """Another value of the same shape, perhaps itself."""
        wanted = self.shape(value)
        others = [v for v, shape in enumerate(self.builder.shapes) if shape == wanted]
        return self.rng.choice(others)


def _conv(m: Maker, v: int, transposed: bool) -> nn.Module:
    shape, r = m.shape(v), m.rng
    rank = len(shape) - 1
    pick = r.randint
    groups = r.choice([g for g in (1, 2) if shape[0] % g == 0])
    stride = [pick(1, 2) for _ in range(rank)]
    dilation = [pick(1, 2) for _ in range(rank)]
    kernel = [pick(1, 3) for _ in range(rank)]
    padding = [pick(0, 1) for _ in range(rank)]
    out = groups * pick(1, 2)
    if transposed:
        kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 1]
        extra = [min(pick(0, 1), s - 1) for s in stride]
        return kind(shape[0], out, kernel, stride, padding, extra, groups, True, dilation)
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    if r.random() < 0.2:
        return kind(shape[0], out, kernel, 1, "same", dilation, groups)
    mode = r.choice(["zeros", "zeros", "reflect", "circular", "replicate"])
    if mode != "zeros":
        padding = [min(p, s - 1) for p, s in zip(padding, shape[1:], strict=True)]
    return kind(shape[0], out, kernel, stride, padding, dilation, groups, padding_mode=mode)


def _pool(m: Maker, v: int, kinds: tuple[type[nn.Module], ...]) -> nn.Module:
    rank, r = len(m.shape(v)) - 1, m.rng
    kernel = [min(r.randint(1, 3), n) for n in m.shape(v)[1:]]
    stride = [r.randint(1, 2) for _ in kernel]
    padding = [r.randint(0, k // 2) for k in kernel]
    ceil = r.random() < 0.3
    if kinds[0] is nn.MaxPool1d:
        return kinds[rank - 1](kernel, stride, padding, r.randint(1, 2), ceil_mode=ceil)
    counted = r.random() < 0.5
    return kinds[rank - 1](kernel, stride, padding, ceil, counted)


def _batch_norm(m: Maker, v: int) -> nn.Module:
    shape = m.shape(v)
    kind = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[len(shape) - 1]
    layer = kind(shape[0])
    layer.running_mean = m.number(shape[0])
    layer.running_var = 0.2 + m.number(shape[0]).abs()
    return layer


def _move(m: Maker, v: int) -> nn.Module:
    size = torch.Size(m.shape(v)).numel()
    out = tuple(m.rng.randint(1, 3) for _ in range(m.rng.randint(1, 3)))
    count = torch.Size(out).numel()
    index = torch.tensor([m.rng.randint(-1, size - 1) for _ in range(count)])
    return Move(index.view(out))


def _permute(m: Maker, v: int) -> nn.Module:
    shape = m.shape(v)
    order = m.rng.sample(range(len(shape)), len(shape))
    return Move(torch.arange(torch.Size(shape).numel()).view(shape).permute(order))


def _reshape(m: Maker, v: int) -> nn.Module:
    size = torch.Size(m.shape(v)).numel()
    first = m.rng.choice([d for d in range(1, size + 1) if size % d == 0])
    return Reshape(m.rng.choice([(first, size // first), (size,), (1, first, size // first)]))


def _scale(m: Maker, v: int) -> nn.Module:
    parts: list[Tensor | None] = []
    for k in range(3):
        shape = tuple(m.rng.choice([1, n]) for n in m.shape(v))
        part = m.number(*shape)
        part = part.sign() * (0.3 + part.abs()) if k == 1 else part
        parts.append(part if m.rng.random() < 0.6 else None)
    return Scale(*parts)


def _matmul(m: Maker, v: int) -> nn.Module:
    shape, out = m.shape(v), m.rng.randint(1, 3)
    if len(shape) > 1 and m.rng.random() < 0.5:
        return MatMul(m.number(out, shape[-2]), left=True)
    return MatMul(m.number(shape[-1], out))


def _reduce(m: Maker, v: int) -> nn.Module:
    rank = len(m.shape(v))
    axes = m.rng.sample(range(rank), m.rng.randint(1, rank))
    keep = m.rng.random() < 0.5 or len(axes) == rank
    return Reduce(axes, keep, m.rng.random() < 0.5)


def _window_max(m: Maker, v: int) -> nn.Module:
    shape = m.shape(v)
    axis = m.rng.randrange(len(shape))
    kernel = min(m.rng.randint(1, 3), shape[axis])
    pads = (m.rng.randint(0, kernel - 1), m.rng.randint(0, kernel - 1))
    return WindowMax(axis_windows(shape, axis, positions(shape[axis], kernel, 2, pads)))


def _prelu(m: Maker, v: int) -> nn.Module:
    layer = nn.PReLU(m.rng.choice([1, m.shape(v)[0]]))
    with torch.no_grad():
        layer.weight.copy_(m.number(layer.num_parameters, scale=0.8))
    return layer


def _hardtanh(m: Maker, v: int) -> nn.Module:
    return nn.Hardtanh(-m.rng.random(), m.rng.choice([0.1, 0.5, 1.0]))


def _clip(m: Maker, v: int) -> nn.Module:
    ends = [None, 0.0, -0.1, -0.7], [None, 0.1, 0.6, 2.0]
    return Clip(*(m.rng.choice(end) for end in ends))


ONE: dict[str, Callable[[Maker, int], nn.Module]] = {
    "conv": lambda m, v: _conv(m, v, False),
    "transposed": lambda m, v: _conv(m, v, True),
    "linear": lambda m, v: nn.Linear(m.shape(v)[-1], m.rng.randint(1, 4)),
    "relu": lambda m, v: nn.ReLU(),
    "flatten": lambda m, v: nn.Flatten(),
    "batch norm": _batch_norm,
    "average": lambda m, v: _pool(m, v, (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)),
    "adaptive": lambda m, v: (
        nn.AdaptiveAvgPool1d,
        nn.AdaptiveAvgPool2d,
        nn.AdaptiveAvgPool3d,
    )[len(m.shape(v)) - 2](m.rng.randint(1, 3)),
    "move": _move,
    "permute": _permute,
    "reshape": _reshape,
    "scale": _scale,
    "matmul": _matmul,
    "reduce": _reduce,
    "leaky": lambda m, v: nn.LeakyReLU(m.rng.choice([0.01, 0.3, 1.0, 1.7, -0.2])),
    "prelu": _prelu,
    "relu6": lambda m, v: nn.ReLU6(),
    "hardtanh": _hardtanh,
    "clip": _clip,
    "abs": lambda m, v: Abs(),
    "max pool": lambda m, v: _pool(m, v, (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)),
    "window max": _window_max,
    "sigmoid": lambda m, v: nn.Sigmoid(),
    "tanh": lambda m, v: nn.Tanh(),
}
TWO: dict[str, Callable[[Maker, int], nn.Module]] = {
    "add": lambda m, v: Add(),
    "combine": lambda m, v: Combine((m.rng.choice([1.0, -0.3]), m.rng.choice([-1.0, 0.7])), 0.1),
    "concat": lambda m, v: Concat(m.rng.randrange(len(m.shape(v)))),
    "maximum": lambda m, v: Maximum(),
    "minimum": lambda m, v: Minimum(),
    "product": lambda m, v: Product(),
}
RANKED = ("conv", "transposed", "batch norm", "average", "adaptive", "max pool")
SMOOTH_NAMES = ("sigmoid", "tanh", "product")


def random_graph(seed: int, smooth: bool = False) -> tuple[nn.Sequential, Tensor, Tensor]:
    """A network in evaluation mode, and a batch of three boxes, the last one a point."""
    rng = random.Random(seed)
    # The first layer of some graphs is one that has a type for each number of axes.
    first = RANKED[seed % 6] if seed < 18 else ""
    rank = 1 + seed // 6 if first else rng.randint(0, 2)
    space = tuple(rng.randint(2, 4 if rank < 3 else 3) for _ in range(rank))
    shape = (2 * rng.randint(1, 2), *space)
    torch.manual_seed(seed)
    m = Maker(rng, Builder([shape]), smooth)
    names = [n for n in (*ONE, *TWO) if smooth or n not in SMOOTH_NAMES]
    end = 0
    while len(m.builder.steps) < 12:
        value = rng.choice([end, end, end, rng.randrange(len(m.builder.shapes))])
        value = end if seed < 18 else value  # (so that the first layer is not left out)
        name = first or rng.choice(names)
        try:
            if name in ONE:
                made = m.builder.add(ONE[name](m, value), value)
            else:
                made = m.builder.add(TWO[name](m, value), value, m.same(value))
        except (ValueError, IndexError, RuntimeError, ZeroDivisionError):
            continue
        if torch.Size(m.builder.shapes[made]).numel() > 200:
            continue
        end, first = made, ""
    size = torch.Size(m.builder.shapes[end]).numel()
    end = m.builder.add(nn.Linear(size, 3), m.builder.add(nn.Flatten(), end))
    net = m.builder.network(end).eval()
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            layer.eval()
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(seed))
    radius = rng.choice([0.01, 0.1, 0.5]) * torch.tensor([1.0, 0.3, 0.0])
    radius = radius.view(-1, *[1] * len(shape))
    return net, x - radius, x + radius


def kinds_used(net: nn.Module) -> set[type[nn.Module]]:
    """The operations of a network."""
    return {type(layer) for layer in net.modules()} & set(operations.OPERATIONS)
