"""Read a network of the zoo; its file must be the one that the index is about."""

from __future__ import annotations

from torch import nn

from maar.core.errors import RunError
from maar.core.files import sha256_file
from maar.training.run import read_weights
from maar.zoo import Entry


def load_zoo(entry: Entry) -> tuple[nn.Sequential, tuple[int, ...]]:
    """The network in evaluation mode, and the shape of the images that it takes."""
    if not entry.path.is_file():
        raise RunError(f"zoo:{entry.name}: {entry.path} is missing; install maar again")
    if sha256_file(entry.path) != entry.sha256:
        raise RunError(f"zoo:{entry.name}: {entry.path} is damaged; install maar again")
    net, facts = read_weights(entry.path)
    return net, tuple(facts["shape"])
