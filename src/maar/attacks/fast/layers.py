"""The layers of a network as the two maps that an attack needs, forward and gradient, by hand.

Weights are constants in an attack, so no layer but the ReLU has anything to remember. Compared
with autograd this saves memory traffic: ReLUs, masks and relaxations work in place, everything
stays in one memory format, and a flattening costs no copy because the weights behind it are put
in the order of the format once per attack.

A layer's `forward` may overwrite its argument only if told so at its making (`owns`); `backward`
always may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maar.attacks.fast.first_conv import InputGradient
from maar.domains.affine import dilation_of, per_channel
from maar.regions.latent_zonotope import check_bounds_fit

# Told of each error group's number and of the loss's gradient at the place where it enters.
Visit = Callable[[int, Tensor], None]


def in_format(v: Tensor) -> Tensor:
    """v in the memory format of an attack: channels last, if it is an image on a CPU.

    oneDNN's convolutions are up to twice as fast in it. The strides are those of the format even
    where `contiguous` would leave them, with one channel: convolutions choose by strides.
    """
    target = empty_in_format(v)
    return v if v.stride() == target.stride() else target.copy_(v)


def empty_in_format(like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor to be filled, in the memory format of an attack."""
    if like.dim() == 4 and like.device.type == "cpu":
        return torch.empty_like(like, dtype=dtype, memory_format=torch.channels_last)
    return torch.empty_like(like, dtype=dtype, memory_format=torch.contiguous_format)


class Layer:
    """A differentiable map of batches."""

    fresh = True
    """Whether the output is a new tensor that nobody needs any more, free to be overwritten."""

    def forward(self, v: Tensor) -> Tensor:
        raise NotImplementedError

    def backward(self, g: Tensor, visit: Visit) -> Tensor:
        raise NotImplementedError

    def rescale(self, scale: Tensor, shift: Tensor) -> bool:
        """Take over the per-channel map behind this layer, if it can."""
        return False


class Chain(Layer):
    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers

    def forward(self, v: Tensor) -> Tensor:
        for layer in self.layers:
            v = layer.forward(v)
        return v

    def backward(self, g: Tensor, visit: Visit) -> Tensor:
        for layer in reversed(self.layers):
            g = layer.backward(g, visit)
        return g


class Both(Layer):
    """Residual: the sum of two branches."""

    def __init__(self, body: Chain, shortcut: Chain) -> None:
        self.body, self.shortcut = body, shortcut

    def forward(self, v: Tensor) -> Tensor:
        return self.body.forward(v) + self.shortcut.forward(v)

    def backward(self, g: Tensor, visit: Visit) -> Tensor:
        return self.body.backward(g.clone(), visit).add_(self.shortcut.backward(g, visit))


class Conv(Layer):
    def __init__(self, conv: nn.Conv2d, first: bool, dtype: torch.dtype) -> None:
        self.weight = in_format(conv.weight.detach().to(dtype))
        self.bias = None if conv.bias is None else conv.bias.to(dtype)
        self.geometry: tuple[Any, Any, Any, int]
        self.geometry = (conv.stride, conv.padding, dilation_of(conv), conv.groups)
        self.first = first
        self.input: Tensor | None = None
        self.gradient: InputGradient | None = None

    def rescale(self, scale: Tensor, shift: Tensor) -> bool:
        self.weight = self.weight * scale.view(-1, 1, 1, 1)
        self.bias = shift if self.bias is None else self.bias * scale + shift
        return True

    def forward(self, v: Tensor) -> Tensor:
        if self.input is None and self.first:
            self.gradient = InputGradient.of(self.weight, *self.geometry, v)
        self.input = v  # for its shape
        return F.conv2d(v, self.weight, self.bias, *self.geometry)

    def backward(self, g: Tensor, visit: Visit) -> Tensor:
        if self.gradient is not None:
            return self.gradient(g)
        stride, padding, dilation, groups = self.geometry
        given = (g, self.input, self.weight, None, stride, padding, dilation, False, (0, 0), groups)
        only_input = (True, False, False)
        return torch.ops.aten.convolution_backward(*given, only_input)[0]


class Dense(Layer):
    """Linear, behind a Flatten if `flattens`."""

    def __init__(self, linear: nn.Linear, flattens: bool, dtype: torch.dtype) -> None:
        self.weight = linear.weight.detach().to(dtype)
        self.bias = None if linear.bias is None else linear.bias.to(dtype)
        self.flattens = flattens
        self.image: torch.Size | None = None
        self.channels_last = False

    def rescale(self, scale: Tensor, shift: Tensor) -> bool:
        self.weight = self.weight * scale[:, None]
        self.bias = shift if self.bias is None else self.bias * scale + shift
        return True

    def forward(self, v: Tensor) -> Tensor:
        if self.flattens and self.image is None:
            self.channels_last = v.dim() == 4 and v.permute(0, 2, 3, 1).is_contiguous()
            if self.channels_last:
                weight = self.weight.unflatten(1, v.shape[1:])
                self.weight = weight.permute(0, 2, 3, 1).flatten(1)
        if self.channels_last:
            v = v.permute(0, 2, 3, 1)
        self.image = v.shape
        return F.linear(v.flatten(1) if self.flattens else v, self.weight, self.bias)

    def backward(self, g: Tensor, visit: Visit) -> Tensor:
        assert self.image is not None
        g = (g @ self.weight).view(self.image)
        return g.permute(0, 3, 1, 2) if self.channels_last else g


class Relu(Layer):
    fresh = False  # the output is the mask of the gradient

    def __init__(self, owns: bool) -> None:
        self.owns = owns
        self.output = torch.empty(0)

    def forward(self, v: Tensor) -> Tensor:
        self.output = v.relu_() if self.owns else v.relu()
        return self.output

    def backward(self, g: Tensor, visit: Visit) -> Tensor:
        return torch.ops.aten.threshold_backward.grad_input(g, self.output, 0, grad_input=g)


class Band(Layer):
    """The relaxation of a ReLU in a latent zonotope, lam * v + mu * (1 + e), with d = 1 + e."""

    def __init__(self, group: int, lam: Tensor, mu: Tensor, owns: bool) -> None:
        self.group, self.owns = group, owns
        self.lam, self.mu = in_format(lam), in_format(mu)
        self.d = torch.empty(0)

    def forward(self, v: Tensor) -> Tensor:
        check_bounds_fit(self.lam, v)
        v = v.mul_(self.lam) if self.owns else v * self.lam
        return v.addcmul_(self.mu, self.d)

    def backward(self, g: Tensor, visit: Visit) -> Tensor:
        visit(self.group, g)
        return g.mul_(self.lam)


class Scale(Layer):
    """Normalize, or BatchNorm by its running statistics, where no neighbour takes it over."""

    def __init__(self, scale: Tensor, shift: Tensor) -> None:
        self.scale, self.shift = scale, shift

    def forward(self, v: Tensor) -> Tensor:
        return torch.addcmul(per_channel(self.shift, v.dim()), v, per_channel(self.scale, v.dim()))

    def backward(self, g: Tensor, visit: Visit) -> Tensor:
        return g.mul_(per_channel(self.scale, g.dim()))


class Pool(Layer):
    def __init__(self, pool: nn.AvgPool2d) -> None:
        self.pool = pool
        self.input = torch.empty(0)

    def forward(self, v: Tensor) -> Tensor:
        self.input = v  # for its shape
        return self.pool(v)

    def backward(self, g: Tensor, visit: Visit) -> Tensor:
        pool = self.pool
        window: Any = [_pair(size) for size in (pool.kernel_size, pool.stride, pool.padding)]
        options = (pool.ceil_mode, pool.count_include_pad, pool.divisor_override)
        return torch.ops.aten.avg_pool2d_backward(g, self.input, *window, *options)


def _pair(size: Any) -> tuple[int, int]:
    return tuple(size) if isinstance(size, (tuple, list)) else (size, size)


class Flat(Layer):
    """A Flatten without a Linear to take it over."""

    def __init__(self, fresh: bool) -> None:
        self.shape = torch.Size()
        self.fresh = fresh

    def forward(self, v: Tensor) -> Tensor:
        self.shape = v.shape
        return v.flatten(1)

    def backward(self, g: Tensor, visit: Visit) -> Tensor:
        return in_format(g.view(self.shape))
