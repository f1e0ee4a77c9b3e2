"""Networks: plain `nn.Sequential`s with Normalize as layer 0, and what one does with them.

    net = make("convmed_2_2_100", shape=(1, 28, 28), classes=10, mean=[0.1307], std=[0.3081])
    split(net, index)    (prefix, suffix) before layer `index`; relu_indices(net) lists the ReLUs
    check(net)           refuses a layer that the bounds cannot handle
    describe(net, shape) one row per layer, for tables
    weights_hash(net)    what a certificate is bound to

Importing this package costs no torch: names come from the registry, functions on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from maar.core.registry import Registry

if TYPE_CHECKING:
    from maar.networks.build import make
    from maar.networks.checking import check
    from maar.networks.hashing import weights_hash
    from maar.networks.layers import Normalize, Residual
    from maar.networks.splitting import relu_indices, split
    from maar.networks.summary import describe

__all__ = [
    "NETWORKS",
    "Normalize",
    "Residual",
    "check",
    "describe",
    "make",
    "relu_indices",
    "split",
    "weights_hash",
]

_ROOM = "maar.networks.architectures"

NETWORKS = Registry(
    "network",
    {
        "convmed_2_2_100": f"{_ROOM}.convmed:convmed_2_2_100",
        "convmed_2_2_100_bn": f"{_ROOM}.convmed:convmed_2_2_100_bn",
        "convmed_2_4_250": f"{_ROOM}.convmed:convmed_2_4_250",
        "convmedbig_2_2_4_250": f"{_ROOM}.convmedbig:convmedbig_2_2_4_250",
        "convmedbig_2_2_4_250_bn": f"{_ROOM}.convmedbig:convmedbig_2_2_4_250_bn",
        "convmedbig_2_2_4_250_k334": f"{_ROOM}.convmedbig:convmedbig_2_2_4_250_k334",
        "mlp": f"{_ROOM}.mlp:mlp",
        "cnn5": f"{_ROOM}.cnn5:cnn5",
        "cnn5_64_bn": f"{_ROOM}.cnn5:cnn5_64_bn",
        "cnn7": f"{_ROOM}.cnn7:cnn7",
        "resnet_small": f"{_ROOM}.resnet_small:resnet_small",
    },
    group="maar.networks",
)

_WHERE = {
    "Normalize": "layers",
    "Residual": "layers",
    "check": "checking",
    "describe": "summary",
    "make": "build",
    "relu_indices": "splitting",
    "split": "splitting",
    "weights_hash": "hashing",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
