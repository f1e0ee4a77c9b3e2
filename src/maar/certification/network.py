"""A network made ready for certification: checked, frozen, compiled once per precision."""

from __future__ import annotations

import copy
from functools import cache, cached_property

import torch
from torch import nn

from maar.core.errors import RunError, UsageError
from maar.domains.affine import SCALING, enclosed_scale
from maar.domains.graph import Graph, compile_network
from maar.domains.linear_map import scale_weight
from maar.networks import weights_hash
from maar.networks.assembling import as_classifier
from maar.networks.checking import check, spell, trace
from maar.networks.maps import Scale

# What bounds are computed in: the faster first, then the one whose rounding hardly matters.
PRECISIONS = (torch.float32, torch.float64)


class Network:
    """The subject of every query. A private copy on the CPU, so that nobody changes it later."""

    def __init__(self, net: nn.Sequential, shape: tuple[int, ...]) -> None:
        net = as_classifier(net)
        check(net, shape)
        require_provable(net)
        out = trace(net, shape)[-1].shape if len(net) else shape
        if len(out) != 1 or out[0] < 2:
            raise UsageError(f"the network gives {spell(out)}, not scores of two or more classes")
        self.net = copy.deepcopy(net).cpu().eval().requires_grad_(False)
        self.shape = tuple(shape)
        self.classes = out[0]
        self.graph = cache(self._compile)

    @cached_property
    def hash(self) -> str:
        """Hash of the weights that verdicts are bound to."""
        return weights_hash(self.net)

    @cached_property
    def exact(self) -> nn.Sequential:
        """The same weights, computed with in float64."""
        return copy.deepcopy(self.net).double()

    def _compile(self, dtype: torch.dtype) -> Graph:
        return compile_network(self.net, self.shape, dtype)


def require_provable(net: nn.Sequential, *, doubles: bool = False) -> None:
    """Refuse numbers about which nothing can be proved: NaN, infinity, a scale out of range."""
    for name, tensor in net.state_dict().items():
        if not tensor.is_floating_point():
            continue  # BatchNorm's counter of batches
        if tensor.dtype != torch.float32 and not (doubles and tensor.dtype == torch.float64):
            # Rounding them would make another network than the one that was asked about.
            raise UsageError(f"weight {name} is of type {tensor.dtype} (accepted: torch.float32)")
        wrong = int((~tensor.isfinite()).sum())
        if wrong:
            raise RunError(
                f"the network cannot be certified: {wrong} of {tensor.numel()} numbers of "
                f"{name} are NaN or infinite"
            )
    for path, layer in net.named_modules():
        if isinstance(layer, SCALING):
            enclosed_scale(layer, torch.float32, path)
        elif isinstance(layer, Scale):
            scale_weight(layer)
