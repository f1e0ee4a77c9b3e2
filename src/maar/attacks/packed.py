"""Products with one matrix, many times: laid out once in the order in which oneDNN reads it.

A product of a small batch with a large matrix spends much of its time on bringing the matrix into
that order, which is lost again after each. An attack multiplies by the same weights in every step.
Milliseconds for a batch of 100 and a matrix of 250 x 8192, two threads: 3.2 -> 2.4, and 3.6 -> 2.3
with the matrix transposed; to lay out both takes 6.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

# Smaller ones stay in the cache as they are.
LARGE = 1 << 20
# Products with a matrix and its transpose that are worth the layout.
MANY = 5

Product = Callable[[Tensor], Tensor]


def product_with(weight: Tensor, bias: Tensor | None, rows: int) -> Product | None:
    """x -> x @ weight.T + bias for x of so many rows, or None where it would not be faster."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or weight.numel() < LARGE:
        return None
    if weight.requires_grad or not _is_there():
        return None
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, laid_out, bias, "none", [], "")


@cache
def _is_there() -> bool:
    """Whether this build of PyTorch has the operators, which are made for its compiler."""
    if not torch.backends.mkldnn.is_available():
        return False
    x, weight = torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    try:
        laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, 2)
        found = torch.ops.mkldnn._linear_pointwise(x, laid_out, None, "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.equal(found, weight.T)
