"""A user's own network: `path/to/file.py:function`.

The function takes what every builder of maar takes, (shape, classes, mean, std), and returns an
`nn.Sequential`. The file is run as Python: it is the user's own.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from maar.core.errors import MaarError, UsageError, nearest
from maar.networks.layers import Residual


def is_own_file(name: str) -> bool:
    """Whether `name` is written as a Python file with or without a function."""
    return name.endswith(".py") or ".py:" in name


def own_builder(name: str) -> Callable[..., nn.Sequential]:
    """The builder that `path/to/file.py:function` names; every way this can fail is one line."""
    path, _, function = name.rpartition(":") if ".py:" in name else (name, "", "")
    module = _load(Path(path))
    own = [
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and key[0] != "_"
    ]
    there = f"functions there: {', '.join(own) or 'none'}"
    if not function:
        raise UsageError(f"network {name!r} names no function; write {path}:FUNCTION ({there})")
    if not callable(getattr(module, function, None)):
        raise UsageError(f"no function {function!r} in {path}{nearest(function, own)} ({there})")
    return lambda *args: _call(name, getattr(module, function), args)


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"network file {str(path)!r} does not exist")
    spec = importlib.util.spec_from_file_location(f"maar_own_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses and pickling look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"network file {path} fails: {_one_line(error)}") from error
    return module


def _call(name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> nn.Sequential:
    try:
        inspect.signature(function).bind(*args)
    except TypeError:
        raise UsageError(f"network {name!r} must take (shape, classes, mean, std)") from None
    try:
        net = function(*args)
    except MaarError:
        raise
    except Exception as error:
        raise UsageError(f"network {name!r} fails: {_one_line(error)}") from error
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


def _one_line(error: Exception) -> str:
    """Return the error and the line of the user's code that raised it, in one line."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} (line {error.lineno})"
    text = (str(error).splitlines() or [""])[0]
    line = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({Path(line.filename).name}, line {line.lineno})"
