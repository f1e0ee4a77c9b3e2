"""`maar.load`: the network behind a run's folder, an ONNX file or a name of the zoo."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maar.core.eps import Eps
from maar.core.errors import UsageError
from maar.core.own import is_own, path_of
from maar.zoo import PREFIX, entries, entry, is_zoo

if TYPE_CHECKING:
    from torch import nn

    from maar.config import Config

MODEL = "model"
"""The weights at the end of a run."""


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
class LoadedNetwork:
    """A network of an ONNX file or of the zoo."""

    network: nn.Sequential
    """An ordinary module, in evaluation mode, on images in [0, 1]."""
    name: str
    data: str | None
    """The data set that it was trained on, if that is known."""
    eps: Eps | None
    """The radius that it was trained for, if that is known."""


@dataclass(frozen=True)
class Run:
    """A training run on disk."""

    path: Path
    weights: str = MODEL
    """Which weights `network` has: model, stage-1-last, stage-1-best, ..."""

    @cached_property
    def network(self) -> nn.Sequential:
        """The trained network: an ordinary module, in evaluation mode, on images in [0, 1]."""
        from maar.training.run import load_network

        return load_network(self.path, self.weights)[0]

    @property
    def config(self) -> Config:
        """The configuration that it was trained with."""
        from maar.config import load

        return load(self.path)

    @cached_property
    def result(self) -> dict[str, Any]:
        """The content of result.json; empty if the run is not finished."""
        file = self.path / "result.json"
        return json.loads(file.read_text()) if file.exists() else {}

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """One entry for each finished epoch."""
        file = self.path / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def load(
    name: str | Path,
    *,
    weights: str = MODEL,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    data: str | None = None,
) -> Run | LoadedNetwork:
    """Load a network by name.

    Args:
        name: The folder of a run, an ONNX file, `zoo:NAME`, or `FILE.py:NAME`.
        weights: Which weights of a run: "model", or a stage's such as "stage-1-last". For
            `FILE.py:NAME`: a .pt or .safetensors file with its state_dict.
        mean: For ONNX files that take the normalised image: the mean of each channel.
        std: For ONNX files that take the normalised image: the deviation of each channel.
        data: For `FILE.py:NAME`: the data set whose shape and classes it is built for.

    Returns:
        A `Run`, or a `LoadedNetwork`; both have `.network`.
    """
    named = read_network(str(name), weights=weights, mean=mean, std=std, data=data)
    if named.is_run:
        return Run(Path(name), weights)
    return LoadedNetwork(named.net, named.name, named.data, named.eps)


def is_weights_file(network: str) -> bool:
    """Whether this is written as a file of torch's or of safetensors."""
    return network.lower().endswith((".pt", ".pth", ".bin", ".ckpt", ".pt2", ".safetensors"))


def is_onnx(network: str) -> bool:
    """Whether this is written as an ONNX file, plain or packed."""
    return network.lower().endswith((".onnx", ".onnx.gz"))


def read_network(
    network: str,
    *,
    weights: str = MODEL,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    data: str | None = None,
) -> Named:
    """Read the network alone. `data`, for a user's own Python file: what it is for."""
    if is_own(network):
        return _own(network, weights, mean, std, data)
    if is_weights_file(network):
        from maar.networks.state import way_out

        raise way_out(Path(network))
    if is_onnx(network):
        if weights != MODEL:
            raise UsageError("weights is for runs: an ONNX file has one set of weights")
        return _onnx(network, mean, std)
    if mean is not None or std is not None:
        what = "a network of the zoo" if is_zoo(network) else "a run's network"
        raise UsageError(f"mean and std are for ONNX files: {what} has them inside")
    if not is_zoo(network):
        return _run(network, weights)
    if weights != MODEL:
        raise UsageError("weights is for runs: a network of the zoo has one set of weights")
    return _zoo(network)


def _onnx(network: str, mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> Named:
    from maar.exchange.onnx_in import read_with_shape

    path = Path(network)
    net, shape = read_with_shape(path, mean=mean, std=std)
    stem = Path(path.name.removesuffix(".gz")).stem
    return Named(net, path.name, Path("certs") / stem, shape)


def _own(
    network: str,
    weights: str,
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
    data: str | None,
) -> Named:
    """A user's own module, with the weights of a file or its own."""
    import torch
    from torch import nn

    from maar.api.converting import convert
    from maar.data import info
    from maar.networks.build import check_mean_std
    from maar.networks.layers import Normalize
    from maar.networks.own_file import own_module
    from maar.networks.state import load_state

    if data is None:
        raise UsageError(f"data is needed with {network}: it gives the shape of an input")
    about = info(data)
    check_mean_std(about.shape[0], mean, std)
    channels = about.shape[0]
    front = (mean or (0.0,) * channels, std or (1.0,) * channels)

    def build() -> tuple[nn.Module, bool]:
        return own_module(network, about.shape, about.n_classes, *front)

    (module, takes), (other, _) = _seeded(0, build), _seeded(1, build)
    if weights != MODEL:
        load_state(module, Path(weights))
    elif any(
        not torch.equal(one, two)
        for one, two in zip(module.state_dict().values(), other.state_dict().values(), strict=True)
    ):
        raise UsageError(
            f"{network} has random weights: give --weights FILE.pt or FILE.safetensors"
        )
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        module = nn.Sequential(*module)  # of a subclass, its layers
    module = module.eval()
    if mean is not None and std is not None and not takes:
        module = nn.Sequential(Normalize(mean, std), module).eval()
    example = _seeded(0, lambda: torch.rand(4, *about.shape))
    net = convert(module, example).eval()
    path, name = path_of(network), network.rpartition(":")[2]
    return Named(net, f"{path.name}:{name}", Path("certs") / path.stem, about.shape, data)


def _seeded(seed: int, make: Callable[[], Any]) -> Any:
    """Make something that depends on the seed alone, without touching the global random state."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


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
            f"zoo:NAME, nor FILE.py:NAME{hint}"
        )
    from maar.training.run import load_network

    net, config = load_network(path, weights)
    name = path.resolve().name if weights == MODEL else f"{path.resolve().name} ({weights})"
    return Named(net, name, path, None, config.data, config.eps, True, config.valid)
