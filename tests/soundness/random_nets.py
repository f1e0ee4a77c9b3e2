"""Random small networks and boxes: every supported layer with its options, in any order.

`cases()` is the hypothesis strategy. Only structure is drawn number by number, so that a failure
shrinks to a small network; weights come from a drawn seed.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from maar.domains.bound import Corners
from maar.networks.layers import Normalize, Residual

# 0: a point. 10: pixels are about 1, so everything is unstable.
RADII = (0.0, 1e-4, 0.03, 0.2, 10.0)


@dataclass(frozen=True)
class Case:
    """A network in evaluation mode, a batch of boxes for it, and labels. All float32."""

    net: nn.Sequential
    lb: Tensor
    ub: Tensor
    y: Tensor
    seed: int = 0

    @property
    def shape(self) -> torch.Size:
        return self.lb.shape[1:]

    @property
    def classes(self) -> int:
        with torch.no_grad():
            return self.net(self.lb[:1]).flatten(1).shape[1]

    def box(self, dtype: torch.dtype = torch.float32) -> Corners:
        return Corners(self.lb.to(dtype), self.ub.to(dtype))

    def net_in(self, dtype: torch.dtype) -> nn.Sequential:
        return copy.deepcopy(self.net).to(dtype)

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def __repr__(self) -> str:
        widest = [float(w) for w in (self.ub - self.lb).flatten(1).amax(1)]
        return f"Case({self.net}, shape {tuple(self.shape)}, widths {widest}, seed {self.seed})"


def make_case(
    net: nn.Sequential,
    shape: tuple[int, ...],
    radii: tuple[float, ...],
    seed: int,
    scale: float = 1.0,
) -> Case:
    """Give `net` random weights, and a box of its own radius to each image of the batch."""
    generator = torch.Generator().manual_seed(seed)
    randomise(net, scale, generator)
    x = torch.rand(len(radii), *shape, generator=generator)
    radius = torch.tensor(radii).view(-1, *[1] * len(shape))
    # Pixels differ too: the radius itself, less, or none at all.
    part = torch.rand(x.shape, generator=generator)
    radius = radius * torch.where(part < 0.1, 0.0, torch.where(part < 0.5, part, 1.0))
    net.eval()
    case = Case(net, x - radius, x + radius, torch.zeros(len(x), dtype=torch.long), seed)
    y = torch.randint(case.classes, (len(x),), generator=generator)
    return Case(net, case.lb, case.ub, y, seed)


@torch.no_grad()
def randomise(net: nn.Module, scale: float, generator: torch.Generator) -> None:
    """Weights that keep activations of ordinary size; statistics unlike those of a fresh layer."""

    def normal(tensor: Tensor, deviation: float) -> None:
        tensor.copy_(deviation * torch.randn(tensor.shape, generator=generator))

    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            normal(layer.weight, scale / math.sqrt(layer.weight[0].numel()))
            if layer.bias is not None:
                normal(layer.bias, 0.3 * scale)
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            normal(layer.running_mean, 0.5)
            spread = torch.rand(layer.running_var.shape, generator=generator)
            layer.running_var.copy_(0.1 + 2 * spread)
            if layer.affine:
                normal(layer.weight, 1.0)  # negative ones too
                normal(layer.bias, 0.5)


@st.composite
def cases(draw, radii: tuple[float, ...] = RADII, most_images: int = 3) -> Case:
    """A random network with its random boxes."""
    shape = (draw(st.integers(1, 3)), draw(st.integers(2, 5)), draw(st.integers(2, 5)))
    net = nn.Sequential(*_network(draw, shape))
    images = draw(st.integers(1, most_images))
    chosen = tuple(draw(st.sampled_from(radii)) for _ in range(images))
    scale = draw(st.sampled_from([1.0, 0.3, 2.0]))
    return make_case(net, shape, chosen, draw(st.integers(0, 2**16)), scale)


def _network(draw, shape: tuple[int, int, int]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    if draw(st.booleans()):
        mean = [0.5 - 0.3 * k for k in range(shape[0])]
        layers.append(Normalize(mean, [0.25 + 0.1 * k for k in range(shape[0])]))
    for _ in range(draw(st.integers(0, 4))):
        layer = _image_layer(draw, shape)
        shape = _after(layer, shape)
        layers.append(layer)
    layers.append(nn.Flatten())
    features = math.prod(shape)
    for _ in range(draw(st.integers(0, 2))):
        width = draw(st.integers(1, 6))
        layers.append(nn.Linear(features, width, bias=draw(st.booleans())))
        features = width
        layers += _flat_layers(draw, features)
    # Sometimes no last Linear; but a margin needs two outputs, and a dtype needs weights.
    weighted = any(True for layer in layers for _ in layer.parameters())
    if draw(st.integers(0, 9)) != 9 or features == 1 or not weighted:
        layers.append(nn.Linear(features, draw(st.integers(2, 4))))
    return layers


def _flat_layers(draw, features: int) -> list[nn.Module]:
    kind = draw(st.sampled_from(["relu", "relu", "bn relu", "residual", "nested", "none"]))
    if kind == "none":
        return []
    if kind == "bn relu":
        return [nn.BatchNorm1d(features, affine=draw(st.booleans())), nn.ReLU()]
    if kind == "residual":
        inner = nn.Sequential(nn.Linear(features, 3), nn.ReLU(), nn.Linear(3, features))
        outer = nn.Sequential(nn.Linear(features, features), nn.ReLU())
        shortcut = draw(st.sampled_from([None, nn.Sequential(nn.ReLU()), outer]))
        return [nn.ReLU(), Residual(inner, shortcut)]
    if kind == "nested":
        return [nn.Sequential(nn.Identity(), nn.Sequential(nn.ReLU(), nn.Dropout(0.5)))]
    return [nn.ReLU()]


def _image_layer(draw, shape: tuple[int, int, int]) -> nn.Module:
    kinds = ["conv", "conv", "relu", "relu", "bn", "pool", "residual", "residual"]
    kind = draw(st.sampled_from(kinds))
    if kind == "conv":
        return _conv(draw, shape)
    if kind == "bn":
        return nn.BatchNorm2d(shape[0], affine=draw(st.booleans()))
    if kind == "pool":
        size = tuple(min(side, draw(st.integers(1, 3))) for side in shape[1:])
        padding = tuple(draw(st.integers(0, k // 2)) for k in size)
        return nn.AvgPool2d(size, draw(st.integers(1, 2)), padding)
    if kind == "residual":
        return _residual(draw, shape)
    return nn.ReLU()


def _conv(draw, shape: tuple[int, int, int]) -> nn.Conv2d:
    groups = draw(st.sampled_from([g for g in (1, 2, 3) if shape[0] % g == 0]))
    padding = (draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    kernel = tuple(
        min(draw(st.integers(1, 3)), (side + 2 * p - 1) // d + 1)
        for side, p, d in zip(shape[1:], padding, dilation, strict=True)
    )
    out = groups * draw(st.integers(1, 2))
    bias = draw(st.booleans())
    return nn.Conv2d(shape[0], out, kernel, stride, padding, dilation, groups, bias=bias)


def _residual(draw, shape: tuple[int, int, int]) -> Residual:
    """The identity or another convolution beside the body; ReLUs in none, one or both branches."""
    out = draw(st.sampled_from([shape[0], 2]))
    stride = draw(st.integers(1, 2))
    body: list[nn.Module] = [nn.Conv2d(shape[0], out, 3, stride, 1)]
    if draw(st.booleans()):
        body.append(nn.BatchNorm2d(out))
    if draw(st.booleans()):
        body += [nn.ReLU(), nn.Conv2d(out, out, 3, 1, 1, bias=False)]
    if stride == 1 and out == shape[0] and draw(st.booleans()):
        return Residual(nn.Sequential(*body))
    shortcut: list[nn.Module] = [nn.Conv2d(shape[0], out, 1, stride)]
    if draw(st.booleans()):
        shortcut.append(nn.ReLU())
    return Residual(nn.Sequential(*body), nn.Sequential(*shortcut))


def _after(layer: nn.Module, shape: tuple[int, ...]) -> tuple[int, int, int]:
    with torch.no_grad():
        out = layer.eval()(torch.zeros(1, *shape)).shape[1:]
    return out[0], out[1], out[2]
