"""What a network really does, without maar's rules: by plain forward passes.

`values` runs torch's own modules and notes every ReLU's input. `hard_points` are points of a box
at which bounds are likely to be broken. `exactly` computes in rational numbers.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np
import torch
from random_nets import Case
from torch import Tensor, nn

from maar.attacks import PGD
from maar.networks.layers import Normalize, Residual
from maar.regions import Box


def values(net: nn.Module, x: Tensor) -> tuple[list[Tensor], Tensor]:
    """The input of each ReLU in the order in which they run, and the output, flat."""
    pre: list[Tensor] = []
    hooks = [
        layer.register_forward_hook(lambda _, given, __: pre.append(given[0]))
        for layer in net.modules()
        if isinstance(layer, nn.ReLU)
    ]
    try:
        out = net(x)
    finally:
        for hook in hooks:
            hook.remove()
    return pre, out.flatten(1)


def hard_points(case: Case, neurons: int = 6) -> Tensor:
    """Points of the box, [points, N, *shape], float32: corners, random and attacked ones.

    The corner that the gradient of a neuron points to is its true extreme wherever the network
    is linear on the box, and close to it elsewhere.
    """
    generator = case.generator()
    box = Box(case.lb, case.ub)
    uniform = torch.rand(6, *case.lb.shape, generator=generator)
    points = [case.lb, case.ub, box.point((torch.zeros_like(case.lb),))]
    points += [torch.lerp(case.lb, case.ub, e) for e in uniform[:3]]
    points += [torch.where(e < 0.5, case.lb, case.ub) for e in uniform[3:]]
    attack = PGD(steps=4, step_size=0.5, loss="margin")
    points.append(box.point(attack(case.net, box, case.y, generator=generator)))
    for start in (points[2], points[3]):
        x = start.clone().requires_grad_()
        pre, out = values(case.net, x)
        for value in [*pre, out]:
            flat = value.flatten(1)
            chosen = torch.randperm(flat.shape[1], generator=generator)[:neurons]
            for column in flat[:, chosen].unbind(1):
                if not column.requires_grad:
                    continue
                (slope,) = torch.autograd.grad(column.sum(), x, retain_graph=True)
                points.append(torch.where(slope > 0, case.lb, case.ub))
                points.append(torch.where(slope > 0, case.ub, case.lb))
    return torch.stack(points)


def exactly(net: nn.Sequential, x: Tensor) -> tuple[list[np.ndarray], np.ndarray]:
    """As `values` for one image [*shape], in rational numbers; arrays of Fraction.

    Only the square root of BatchNorm is not rational: it is taken to 60 digits.
    """
    pre: list[np.ndarray] = []

    def run(module: nn.Module, value: np.ndarray) -> np.ndarray:
        if isinstance(module, nn.Sequential):
            for layer in module:
                value = run(layer, value)
            return value
        if isinstance(module, Residual):
            return run(module.body, value) + run(module.shortcut, value)
        if isinstance(module, nn.ReLU):
            pre.append(value)
            return np.maximum(value, Fraction(0))
        if isinstance(module, nn.Flatten):
            return value.reshape(-1)
        if isinstance(module, nn.Identity | nn.Dropout):
            return value
        if isinstance(module, Normalize):
            return (value - _channels(module.mean, value)) / _channels(module.std, value)
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            return _batch_norm(module, value)
        return _matrix(module, value)

    out = run(net, fractions(x))
    return pre, out.reshape(-1)


def fractions(tensor: Tensor) -> np.ndarray:
    """The very numbers of a tensor, as an array of Fraction."""
    flat = [Fraction(float(v)) for v in tensor.detach().flatten()]
    return np.array(flat, dtype=object).reshape(tuple(tensor.shape))


def _channels(numbers: Tensor, value: np.ndarray) -> np.ndarray:
    return fractions(numbers).reshape(-1, *[1] * (value.ndim - 1))


def _batch_norm(layer: nn.BatchNorm1d | nn.BatchNorm2d, value: np.ndarray) -> np.ndarray:
    assert layer.running_mean is not None
    assert layer.running_var is not None
    variance = _channels(layer.running_var, value) + Fraction(layer.eps)
    value = (value - _channels(layer.running_mean, value)) / np.vectorize(_root)(variance)
    if layer.affine:
        value = value * _channels(layer.weight, value) + _channels(layer.bias, value)
    return value


def _root(value: Fraction) -> Fraction:
    digits = 10**60
    return Fraction(isqrt(value.numerator * digits**2 // value.denominator), digits)


def _matrix(layer: nn.Module, value: np.ndarray) -> np.ndarray:
    """Conv2d, AvgPool2d and Linear as the matrix that torch itself makes of unit inputs."""
    size = value.size
    basis = torch.eye(size, dtype=torch.float64).view(size, *value.shape)
    with torch.no_grad():
        zero = layer(torch.zeros(1, *value.shape, dtype=torch.float64))
        if isinstance(layer, nn.AvgPool2d):
            window = layer.kernel_size
            count = window[0] * window[1] if isinstance(window, tuple) else window**2
            # (whole numbers divided by the window's size in rational numbers)
            columns, constant, divisor = (layer(basis) * count).round(), zero, Fraction(count)
        else:
            assert isinstance(layer, nn.Conv2d | nn.Linear)
            bias, layer.bias = layer.bias, None
            columns, divisor = layer(basis), Fraction(1)
            layer.bias = bias
            constant = zero
    flat = columns.flatten(1)
    out = fractions(constant[0].flatten())
    inputs = value.reshape(-1)
    for i, j in flat.nonzero().tolist():
        out[j] += Fraction(float(flat[i, j])) * inputs[i] / divisor
    return out.reshape(tuple(constant.shape[1:]))
