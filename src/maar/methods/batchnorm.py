"""BatchNorm while a point is searched: an attack must not leave its mark on the statistics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextlib.contextmanager
def population_statistics(net: nn.Module) -> Iterator[None]:
    """Let every BatchNorm use its running statistics, and leave them alone, within the block."""
    switched = [m for m in net.modules() if isinstance(m, _BatchNorm) and m.training]
    for module in switched:
        module.eval()
    try:
        yield
    finally:
        for module in switched:
            module.train()
