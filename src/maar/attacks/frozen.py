"""Weights without gradients for the time of an attack."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def frozen(net: nn.Module) -> Iterator[None]:
    """Switch `requires_grad` off for every parameter of `net`; restored however the block ends.

    autograd then neither records nor computes anything for the weights, and their
    `.grad` is left alone.
    """
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
