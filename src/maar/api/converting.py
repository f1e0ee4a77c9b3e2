"""`maar.convert`: a module as the network that maar sees, over the same parameters."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from maar.networks.checking import check

NO_OPS = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def convert(model: nn.Module, example: Tensor | None = None) -> nn.Sequential:
    """Return the network that maar computes with, over the model's own parameters.

    Nested `nn.Sequential`s are opened; layers that do nothing in evaluation mode are left out;
    `inplace=True` is dropped. A layer that is not supported is an error that names it. With
    `example`, a batch of inputs, shapes are checked and the outputs compared with the model's.
    """
    layers: list[Any] = []
    _open(model, layers)
    net = nn.Sequential(*layers)
    check(net, None if example is None else tuple(example.shape[1:]))
    net.train(model.training)
    if example is not None:
        _compare(model, net, example)
    return net


def _open(module: nn.Module, layers: list[Any]) -> None:
    if type(module) is nn.Sequential:
        for child in module:
            _open(child, layers)
    elif isinstance(module, nn.ReLU) and module.inplace:
        layers.append(nn.ReLU())
    elif not isinstance(module, NO_OPS):
        layers.append(module)


def _compare(model: nn.Module, net: nn.Sequential, example: Tensor) -> None:
    import torch

    from maar.core.errors import RunError

    training = model.training
    model.eval()
    net.eval()
    try:
        with torch.no_grad():
            theirs, ours = model(example), net(example)
    finally:
        model.train(training)
        net.train(training)
    if theirs.shape != ours.shape or not torch.allclose(theirs, ours, rtol=1e-4, atol=1e-5):
        raise RunError("the converted network does not compute what the model does")
