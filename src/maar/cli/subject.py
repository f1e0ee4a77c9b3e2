"""What RUN|FILE.onnx|zoo:NAME names: a network, and the data and eps to ask about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from maar.core.eps import Eps
from maar.core.errors import UsageError
from maar.zoo import PREFIX, entries, entry, is_zoo

if TYPE_CHECKING:
    from torch import nn

PerChannel = Annotated[
    tuple[float, ...] | None, tyro.conf.arg(metavar="C ...", help_behavior_hint="")
]
"""A number for each channel, or nothing: the flags --mean and --std."""
MODEL = "model"
"""The weights at the end of a run."""


NETWORK = "RUN|FILE.onnx|zoo:NAME"
"""How the help texts write it."""


@dataclass(frozen=True)
class Named:
    """A network, and what its name says about it."""

    net: nn.Sequential
    name: str
    folder: Path
    """Where results go if nothing else is said: below the run, or below certs/."""
    shape: tuple[int, ...] | None = None
    """Of the images; None for a run: its data set has it."""
    data: str | None = None
    """What it was trained with, as eps; an ONNX file does not say it."""
    eps: Eps | None = None
    is_run: bool = False
    valid: int = 0
    """Images that the run took out of the training set for validation."""


@dataclass(frozen=True)
class Subject:
    """A network ready to be asked about."""

    net: nn.Sequential
    name: str
    data: str
    eps: Eps
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
) -> Subject:
    """Read it; `data` and `eps` are the network's own where they are None."""
    if is_onnx(network):
        for flag, value in (("data", data), ("eps", eps)):
            if value is None:
                raise UsageError(f"--{flag} is needed: an ONNX file does not say it")
    radius = None if eps is None else Eps(eps)
    named = read_network(network, weights=weights, mean=mean, std=std)
    data, radius = data or named.data, named.eps if radius is None else radius
    assert data is not None
    assert radius is not None
    is_own = named.is_run and (weights, data, radius) == (MODEL, named.data, named.eps)
    source = {
        "network": network if is_zoo(network) else str(Path(network).resolve()),
        "weights": weights,
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
        is_own,
        named.valid,
        source,
    )


def is_onnx(network: str) -> bool:
    """Whether this is written as an ONNX file, plain or packed."""
    return network.lower().endswith((".onnx", ".onnx.gz"))


def read_network(
    network: str,
    *,
    weights: str = MODEL,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
) -> Named:
    """The network alone."""
    if is_onnx(network):
        if weights != MODEL:
            raise UsageError("--weights is for runs: an ONNX file has one set of weights")
        return _onnx(network, mean, std)
    if mean is not None or std is not None:
        what = "a network of the zoo" if is_zoo(network) else "a run's network"
        raise UsageError(f"--mean and --std are for ONNX files: {what} has them inside")
    if not is_zoo(network):
        return _run(network, weights)
    if weights != MODEL:
        raise UsageError("--weights is for runs: a network of the zoo has one set of weights")
    return _zoo(network)


def _onnx(network: str, mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> Named:
    from maar.exchange.onnx_in import read_with_shape

    path = Path(network)
    net, shape = read_with_shape(path, mean=mean, std=std)
    stem = Path(path.name.removesuffix(".gz")).stem
    return Named(net, path.name, Path("certs") / stem, shape)


def _zoo(network: str) -> Named:
    found = entry(network)
    from maar.zoo.weights import load_zoo

    net, shape = load_zoo(found)
    folder = Path("certs") / f"zoo-{found.name}"
    return Named(net, PREFIX + found.name, folder, shape, found.data, found.eps)


def _run(network: str, weights: str) -> Named:
    path = Path(network)
    if not path.is_dir():
        hint = f"; did you mean {PREFIX}{network}?" if network in entries() else ""
        raise UsageError(
            f"{network!r} is neither the folder of a run, nor a FILE.onnx that is there, nor "
            f"zoo:NAME{hint}"
        )
    from maar.training.run import load_network

    net, config = load_network(path, weights)
    name = path.resolve().name if weights == MODEL else f"{path.resolve().name} ({weights})"
    return Named(net, name, path, None, config.data, config.eps, True, config.valid)


def _anywhere(data: str) -> str:
    """The name of a data set with the path in it made absolute."""
    kind, colon, path = data.partition(":")
    return f"{kind}:{Path(path).resolve()}" if colon else data
