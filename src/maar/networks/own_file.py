"""A user's own network: `path/to/file.py:NAME`.

NAME is a function that takes what every builder of maar takes, (shape, classes, mean, std), a
function or class without arguments, or a module itself. The file is run as Python.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from maar.core.errors import MaarError, UsageError
from maar.core.own import is_own, one_line, own
from maar.networks.layers import Residual

is_own_file = is_own


def own_builder(name: str) -> Callable[..., nn.Sequential]:
    """Return the builder that `path/to/file.py:NAME` names; it gives a plain Sequential."""
    thing = own("network", name)
    return lambda *args: _sequential(name, _made(name, thing, args))


def own_module(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> tuple[nn.Module, bool]:
    """Return the module that a name leads to, of any kind, and whether it took mean and std."""
    thing, args = own("network", name), (shape, classes, mean, std)
    takes = not isinstance(thing, nn.Module) and callable(thing) and _binds(thing, args)
    return _made(name, thing, args), takes


def _made(name: str, thing: Any, args: tuple[Any, ...]) -> nn.Module:
    if isinstance(thing, nn.Module):
        return thing
    if not callable(thing):
        raise UsageError(f"network {name!r} is a {type(thing).__name__}, not a function or class")
    if not _binds(thing, args):
        args = ()
        if not _binds(thing, args):
            raise UsageError(
                f"network {name!r} must take (shape, classes, mean, std), or nothing: write a "
                "function that gives it its arguments"
            )
    try:
        net = thing(*args)
    except MaarError:
        raise
    except Exception as error:
        raise UsageError(f"network {name!r} fails: {one_line(error)}") from error
    if not isinstance(net, nn.Module):
        raise UsageError(f"network {name!r} must return an nn.Module, not a {type(net).__name__}")
    return net


def _binds(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    try:
        inspect.signature(function).bind(*args)
    except (TypeError, ValueError):
        return False
    return True


def _sequential(name: str, net: nn.Module) -> nn.Sequential:
    # A Sequential with a forward of its own may do anything with its layers.
    if not isinstance(net, nn.Sequential) or type(net).forward is not nn.Sequential.forward:
        raise UsageError(
            f"network {name!r} must return an nn.Sequential, not a {type(net).__name__}"
        )
    return plain(net)


def plain(net: nn.Sequential) -> nn.Sequential:
    """The same network without nesting: Sequentials inside it opened, Identities dropped."""
    layers: list[nn.Module] = []
    for layer in net:
        if type(layer) is nn.Sequential:
            layers += plain(layer)
        elif isinstance(layer, Residual):
            layers.append(Residual(plain(layer.body), plain(layer.shortcut)))
        elif not isinstance(layer, nn.Identity):
            layers.append(layer)
    return nn.Sequential(*layers)
