"""Chance as a pure function of the seed and the position, so that no random state is ever saved.

Every purpose (order of the images, augmentation, attack) has its own generator, made anew from
(seed, purpose, position). A resumed run therefore draws what the uninterrupted one would have.
"""

from __future__ import annotations

import hashlib

import torch


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose; different purposes give unrelated seeds."""
    text = "/".join(map(str, ("maar", seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A CPU generator: it draws the same numbers whatever device the network is on."""
    return torch.Generator().manual_seed(derive(seed, *purpose))
