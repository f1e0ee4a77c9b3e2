"""`make`: from a name, a user's own file or an ONNX file to a checked network."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from maar.core.errors import UsageError
from maar.core.registry import Registry
from maar.networks import NETWORKS
from maar.networks.checking import LayerError, check
from maar.networks.operations import Shape
from maar.networks.own_file import is_own_file, own_builder

# By name, not by import: exchange stands on networks, not the other way round.
READERS = Registry("network file", {".onnx": "maar.exchange.onnx_in:read_onnx"})


def make(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    seed: int | None = None,
) -> nn.Sequential:
    """Build the network `name` for images of `shape` in [0,1] and `classes` classes.

    `name` is a registered name, `path/to/file.py:function` or `FILE.onnx`. `mean` and `std` (one
    number per channel) become the Normalize in front; without them a built-in network gets
    mean 0 and std 1, and an ONNX file none. `seed` draws the weights without touching the global
    random state. The result is checked layer by layer and followed once by an image of `shape`.
    """
    if not shape or min(shape) < 1:
        raise UsageError(f"shape = {shape!r} must be the positive sizes of one image")
    if classes < 2:
        raise UsageError(f"classes = {classes!r} must be at least 2")
    check_mean_std(shape[0], mean, std)
    try:
        net = _build(name, tuple(shape), classes, mean, std, seed)
        check(net, tuple(shape), classes)
    except LayerError as error:
        raise UsageError(f"network {name!r}: {error}") from None
    return net


def _build(
    name: str,
    shape: Shape,
    classes: int,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    seed: int | None,
) -> nn.Sequential:
    suffix = Path(name).suffix.lower()
    if suffix in READERS:
        return READERS[suffix](name, mean=mean, std=std)
    build = own_builder(name) if is_own_file(name) else _registered(name)
    mean = tuple([0.0] * shape[0] if mean is None else mean)
    std = tuple([1.0] * shape[0] if std is None else std)
    with _seeded(seed):
        return build(shape, classes, mean, std)


def _registered(name: str):
    try:
        return NETWORKS[name]
    except UsageError as error:
        raise UsageError(f"{error}, or your own: FILE.py:FUNCTION or FILE.onnx") from None


def check_mean_std(
    channels: int, mean: Sequence[float] | None, std: Sequence[float] | None
) -> None:
    """Refuse a mean and std that are not both absent or both one number per channel."""
    if (mean is None) != (std is None):
        raise UsageError("mean and std go together: give both or neither")
    if mean is None or std is None:
        return
    for key, numbers in (("mean", mean), ("std", std)):
        if len(numbers) != channels or not all(map(math.isfinite, numbers)):
            raise UsageError(f"{key} = {list(numbers)!r} needs {channels} numbers, one per channel")
    if min(std) <= 0:
        raise UsageError(f"std = {list(std)!r} must be positive")


@contextlib.contextmanager
def _seeded(seed: int | None):
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
