"""What RUN|FILE.onnx names: a network, and the data and eps to ask about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from maar.eps import Eps
from maar.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

PerChannel = Annotated[
    tuple[float, ...] | None, tyro.conf.arg(metavar="C ...", help_behavior_hint="")
]
"""A number for each channel, or nothing: the flags --mean and --std."""
MODEL = "model"
"""The weights at the end of a run."""


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
    """Read it; `data` and `eps` are the run's own where they are None."""
    found = _read(network, data, eps, weights, mean, std)
    source = {
        "network": str(Path(network).resolve()),
        "weights": weights,
        "mean": mean,
        "std": std,
        "data": _anywhere(found.data),
    }
    return replace(found, source=source)


def _anywhere(data: str) -> str:
    """The name of a data set with the path in it made absolute."""
    kind, colon, path = data.partition(":")
    return f"{kind}:{Path(path).resolve()}" if colon else data


def _read(
    network: str,
    data: str | None,
    eps: str | None,
    weights: str,
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
) -> Subject:
    if not network.lower().endswith(".onnx"):
        if mean is not None or std is not None:
            raise UsageError("--mean and --std are for ONNX files: a run's network has them inside")
        return _run(network, data, eps, weights)
    for flag, value in (("data", data), ("eps", eps)):
        if value is None:
            raise UsageError(f"--{flag} is needed: an ONNX file does not say it")
    if weights != MODEL:
        raise UsageError("--weights is for runs: an ONNX file has one set of weights")
    assert data is not None
    assert eps is not None
    radius = Eps(eps)
    from maar.exchange.onnx_in import read_onnx

    path = Path(network)
    net = read_onnx(path, mean=mean, std=std)
    folder = Path("certs") / path.stem
    return Subject(net, path.name, data, radius, folder, is_run=False, is_own=False)


def _run(network: str, data: str | None, eps: str | None, weights: str) -> Subject:
    path = Path(network)
    if not path.is_dir():
        raise UsageError(
            f"{network!r} is neither the folder of a run nor a FILE.onnx that is there"
        )
    radius = None if eps is None else Eps(eps)
    from maar.train.run import load_network

    net, config = load_network(path, weights)
    data, radius = data or config.data, config.eps if radius is None else radius
    is_own = (weights, data, radius) == (MODEL, config.data, config.eps)
    name = path.resolve().name if weights == MODEL else f"{path.resolve().name} ({weights})"
    return Subject(net, name, data, radius, path, True, is_own, config.valid)
