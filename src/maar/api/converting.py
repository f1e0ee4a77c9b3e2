"""`maar.convert`: a module as the network that maar sees, over the same parameters."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from maar.core.errors import RunError, UsageError
from maar.networks.checking import check
from maar.networks.operations import NO_OPS, OPERATIONS

RANDOM = 8
"""Random inputs on which the network is compared with the module."""


def convert(model: nn.Module, example: Tensor | None = None) -> nn.Sequential:
    """Return the network that maar computes with, over the model's own parameters.

    Nested `nn.Sequential`s of supported layers are opened; layers that do nothing in evaluation
    mode are left out; `inplace=True` is dropped. Any other module is followed by torch.export, for
    which `example`, a batch of inputs, is needed. An operation that is not supported is an error
    that names it and the line it comes from. With `example` the outputs are compared with the
    model's, on it and on random inputs.
    """
    layers: list[Any] = []
    _open(model, layers)
    net = nn.Sequential(*layers)
    try:
        check(net)
    except UsageError:
        if example is None and type(model) in (nn.Sequential, *OPERATIONS):
            raise
        if example is None:
            raise UsageError(
                f"a {type(model).__name__} is followed by torch.export, which needs an example: "
                "maar.convert(model, x[:1])"
            ) from None
        from maar.networks.from_torch import from_torch

        net = from_torch(model, example)
    if example is not None:
        check(net, tuple(example.shape[1:]))
    net.train(model.training)
    if example is not None:
        _compare(model, net, example)
    return net


def _open(module: nn.Module, layers: list[Any]) -> None:
    if type(module) is nn.Sequential:
        for child in module:
            _open(child, layers)
    elif getattr(module, "inplace", False) and isinstance(module, INPLACE):
        layers.append(_out_of_place(module))
    elif not isinstance(module, NO_OPS):
        layers.append(module)


INPLACE = (nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.Hardtanh)


def _out_of_place(layer: nn.Module) -> nn.Module:
    if isinstance(layer, nn.LeakyReLU):
        return nn.LeakyReLU(layer.negative_slope)
    if type(layer) is nn.Hardtanh:
        return nn.Hardtanh(layer.min_val, layer.max_val)
    return type(layer)()


def _compare(model: nn.Module, net: nn.Sequential, example: Tensor) -> None:
    import torch

    modes = {module: module.training for module in model.modules()}
    model.eval()
    net.eval()
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand((RANDOM, *example.shape[1:]), generator=generator).to(example)
    if example.numel():
        low, high = example.min(), example.max()
        inputs = torch.cat([example, low + (high - low) * inputs, inputs])
    try:
        with torch.no_grad():
            theirs, ours = model(inputs), net(inputs)
    finally:
        for module, training in modes.items():
            module.training = training
        net.train(model.training)
    theirs, ours = theirs.flatten(1) if theirs.dim() > 1 else theirs[:, None], ours.flatten(1)
    if theirs.shape != ours.shape or not torch.allclose(theirs, ours, rtol=1e-4, atol=1e-5):
        raise RunError("the converted network does not compute what the model does")
