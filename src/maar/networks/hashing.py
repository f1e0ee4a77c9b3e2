"""The hash that binds a certificate to a network."""

from __future__ import annotations

import hashlib
import json

import torch
from torch import nn

from maar.networks.assembling import as_classifier
from maar.networks.checking import check
from maar.networks.layers import Residual
from maar.networks.maps import Dag
from maar.networks.operations import OPERATIONS, is_odd

ODD = ("padding_mode", "ceil_mode", "count_include_pad", "divisor_override")
"""Options that count where they are not the usual ones."""


def weights_hash(net: nn.Sequential) -> str:
    """SHA-256 of what the network computes: its layers, their options, every parameter and buffer.

    Two networks that give the same classes by one Softmax more or less have the same hash. The
    same on every device, in training and evaluation mode, and for networks whose layers are
    merely named differently.
    """
    net = as_classifier(net)
    check(net)
    digest = hashlib.sha256()
    _update(digest, net)
    return digest.hexdigest()


def _update(digest: hashlib._Hash, net: nn.Sequential | nn.ModuleList) -> None:
    # Lengths and shapes go in too, so that no two networks write the same bytes.
    digest.update(f"[{len(net)}".encode())
    for layer in net:
        names = OPERATIONS[type(layer)].options
        if is_odd(layer):
            names = (*names, *ODD)
        options = {name: getattr(layer, name) for name in names if hasattr(layer, name)}
        digest.update(json.dumps([type(layer).__name__, options]).encode())
        if isinstance(layer, Residual):
            _update(digest, layer.body)
            _update(digest, layer.shortcut)
            continue
        if isinstance(layer, Dag):
            _update(digest, layer.layers)
            continue
        for name, tensor in layer.state_dict().items():
            digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().tobytes())
    digest.update(b"]")
