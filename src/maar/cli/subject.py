"""What RUN|FILE.onnx|zoo:NAME names: a network, and the data and eps to ask about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from maar.api.loading import MODEL, is_onnx, read_network
from maar.core.eps import Eps
from maar.core.errors import UsageError
from maar.core.own import is_own
from maar.data.address import Address
from maar.zoo import is_zoo

if TYPE_CHECKING:
    from torch import nn

PerChannel = Annotated[
    tuple[float, ...] | None, tyro.conf.arg(metavar="C ...", help_behavior_hint="")
]
"""A number for each channel, or nothing: the flags --mean and --std."""

NETWORK = "RUN|FILE.onnx|zoo:NAME|FILE.py:NAME"
"""How the help texts write it."""


@dataclass(frozen=True)
class Subject:
    """A network ready to be asked about."""

    net: nn.Sequential
    name: str
    data: str
    eps: Any
    """One radius, an `Eps`, or a tuple of them: one for each channel or feature."""
    folder: Path
    """Where results go if nothing else is said: below the run, or below certs/."""
    is_run: bool
    is_own: bool
    """Whether these are a run's final weights, with the data and eps that it was trained with."""
    valid: int = 0
    """Images that the run took out of the training set for validation."""
    source: dict[str, Any] = field(default_factory=dict)
    """What to ask for to get the same again, wherever one stands; for `maar audit`."""


def subject(
    network: str,
    data: str | None,
    eps: str | None,
    *,
    weights: str = MODEL,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    classes: str | None = None,
) -> Subject:
    """Read it; `data` and `eps` are the network's own where they are None."""
    if is_onnx(network) or is_own(network):
        what = "an ONNX file" if is_onnx(network) else "a Python file"
        for flag, value in (("data", data), ("eps", eps)):
            if value is None:
                raise UsageError(f"--{flag} is needed: {what} does not say it")
    radius = None if eps is None else _radius(eps, data or "")
    if classes is not None:
        if data is None:
            raise UsageError("--classes goes with --data")
        data = _with_classes(data, classes)
    named = read_network(network, weights=weights, mean=mean, std=std, data=data)
    data, radius = data or named.data, named.eps if radius is None else radius
    assert data is not None
    assert radius is not None
    is_final = named.is_run and (weights, data, radius) == (MODEL, named.data, named.eps)
    source = {
        "network": network if is_zoo(network) else str(Path(network).resolve()),
        "weights": str(Path(weights).resolve()) if _is_file_of(network, weights) else weights,
        "mean": mean,
        "std": std,
        "data": _anywhere(data),
    }
    return Subject(
        named.net,
        named.name,
        data,
        radius,
        named.folder,
        named.is_run,
        is_final,
        named.valid,
        source,
    )


def _radius(text: str, data: str) -> Any:
    # What is too large for pixels may be right for a table: `make_plan` knows which it is.
    most = math.inf if ":" in data else 1.0
    words = text.split(":")
    return tuple(Eps(word, most) for word in words) if len(words) > 1 else Eps(text, most)


def _is_file_of(network: str, weights: str) -> bool:
    return is_own(network) and weights != MODEL


def _anywhere(data: str) -> str:
    """The name of a data set with the path in it made absolute."""
    return str(Address.of(data).absolute()) if ":" in data else data


def _with_classes(data: str, classes: str) -> str:
    """The name of a data set of the user's own, with the order of its classes."""
    if ":" not in data:
        raise UsageError(f"--classes has no effect: {data} has names for its classes")
    address = Address.of(data)
    if "classes" in address.options:
        raise UsageError(f"--classes has no effect: {data} has classes=")
    return str(address.having(classes=classes))
