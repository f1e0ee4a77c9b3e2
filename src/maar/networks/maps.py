"""Operations on one image's values that torch has no layer for: moves, scales, sums, wiring.

All take batches; shapes, axes and indices are of one image, without the batch axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Move(nn.Module):
    """y_i = x[index_i] of the flattened x, or 0 where index_i = -1.

    Transposing, slicing, padding with zeros, repeating and enlarging are all of this form.
    """

    index: Tensor

    def __init__(self, index: Tensor) -> None:
        super().__init__()
        self.register_buffer("index", index.to(torch.int64).contiguous())

    def forward(self, x: Tensor) -> Tensor:
        flat = self.index.flatten()
        moved = x.flatten(1).index_select(1, flat.clamp(min=0))
        if bool((flat < 0).any()):
            moved = moved.masked_fill(flat < 0, 0.0)
        return moved.view(len(x), *self.index.shape)

    @property
    def is_injective(self) -> bool:
        """Whether no element of x comes twice."""
        used = self.index[self.index >= 0]
        return len(used.unique()) == used.numel()

    def extra_repr(self) -> str:
        return f"shape={tuple(self.index.shape)}"


class Reshape(nn.Module):
    """The same numbers in another shape."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), *self.shape)

    def extra_repr(self) -> str:
        return f"shape={self.shape}"


class Scale(nn.Module):
    """x * factor / divisor + shift, element by element; the numbers broadcast over one image."""

    factor: Tensor | None
    divisor: Tensor | None
    shift: Tensor | None

    def __init__(
        self,
        factor: Tensor | None = None,
        divisor: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> None:
        super().__init__()
        for name, tensor in (("factor", factor), ("divisor", divisor), ("shift", shift)):
            hold(self, name, tensor)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.factor is None else x * self.factor
        x = x if self.divisor is None else x / self.divisor
        return x if self.shift is None else x + self.shift


class MatMul(nn.Module):
    """x @ weight, or weight @ x, over the last axes."""

    weight: Tensor

    def __init__(self, weight: Tensor, left: bool = False) -> None:
        super().__init__()
        hold(self, "weight", weight)
        self.left = left

    def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(self.weight, x) if self.left else torch.matmul(x, self.weight)


class Reduce(nn.Module):
    """The sum or the mean over some axes."""

    def __init__(self, axes: Sequence[int], keep: bool = False, mean: bool = True) -> None:
        super().__init__()
        self.axes, self.keep, self.mean = tuple(axes), keep, mean

    def forward(self, x: Tensor) -> Tensor:
        axes = [axis + 1 for axis in self.axes]
        if not axes:
            return x
        return x.mean(axes, self.keep) if self.mean else x.sum(axes, keepdim=self.keep)

    def extra_repr(self) -> str:
        return f"axes={self.axes}, keep={self.keep}, mean={self.mean}"


class Add(nn.Module):
    """The sum of two values: where a Residual's branches meet."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


class Combine(nn.Module):
    """A weighted sum of values and a number; a coefficient may be a tensor over one image."""

    def __init__(self, coefficients: Sequence[float | Tensor], shift: float = 0.0) -> None:
        super().__init__()
        self.coefficients = tuple(coefficients)
        self.shift = shift

    def forward(self, *values: Tensor) -> Tensor:
        total = values[0] * self.coefficients[0]
        for value, coefficient in zip(values[1:], self.coefficients[1:], strict=True):
            total = total + value * coefficient
        return total + self.shift if self.shift else total

    def extra_repr(self) -> str:
        return f"coefficients={self.coefficients}, shift={self.shift}"


class Concat(nn.Module):
    """Values side by side along an axis."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, *values: Tensor) -> Tensor:
        return torch.cat(values, self.axis + 1)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class Clip(nn.Module):
    """x held between two numbers; None: no end on that side."""

    def __init__(self, low: float | None, high: float | None) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x: Tensor) -> Tensor:
        return x if self.low is None and self.high is None else x.clamp(self.low, self.high)

    def extra_repr(self) -> str:
        return f"low={self.low}, high={self.high}"


class Abs(nn.Module):
    """|x|."""

    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


class Maximum(nn.Module):
    """The larger of two values, element by element."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.maximum(left, right)


class Minimum(nn.Module):
    """The smaller of two values, element by element."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.minimum(left, right)


class WindowMax(nn.Module):
    """y_i = the maximum over k of x[index_ki]: pooling with any pads, and ReduceMax."""

    index: Tensor

    def __init__(self, index: Tensor) -> None:
        super().__init__()
        self.register_buffer("index", index.to(torch.int64).contiguous())

    def forward(self, x: Tensor) -> Tensor:
        taps = x.flatten(1)[:, self.index.flatten()].view(len(x), *self.index.shape)
        return taps.amax(1)

    def extra_repr(self) -> str:
        return f"windows of {len(self.index)}, shape={tuple(self.index.shape[1:])}"


class Product(nn.Module):
    """The product of two values, element by element."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left * right


class Reciprocal(nn.Module):
    """1 / x, for x that is proved to keep its sign."""

    def forward(self, x: Tensor) -> Tensor:
        return 1 / x


class Dag(nn.Module):
    """Layers wired together: step k applies layer k to the values `inputs[k]`.

    Value 0 is the input, and step k makes value k + 1; the last value is the output.
    """

    def __init__(self, layers: Sequence[nn.Module], inputs: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.inputs = tuple(tuple(each) for each in inputs)

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for layer, inputs in zip(self.layers, self.inputs, strict=True):
            values.append(layer(*(values[i] for i in inputs)))
        return values[-1]

    def extra_repr(self) -> str:
        return f"inputs={self.inputs}"


def hold(module: nn.Module, name: str, tensor: Tensor | None) -> None:
    """Register a parameter as such, so that it stays alive, and any other tensor as a buffer."""
    if isinstance(tensor, nn.Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)
