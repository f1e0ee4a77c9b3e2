"""Linear functions of one value of the network, many at a time.

A row is a linear function a . h of a value h of one image. Rows of a convolutional value
start at single neurons and reach only a small window of the value below; such rows are
kept as windows ("patches") until the window is no smaller than the value itself. A dense
backward pass through a convolution costs the whole layer per row, a window only itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Rows:
    """R rows. Dense: A is [R, *shape]. Windows: A is [R, channels, height, width].

    `image` is the image of each row, or None where the batch holds one image only.
    `corner` is the place of a window's top left element in the value, [R, 2]; it may lie
    outside the value (in the padding), where nothing is multiplied. None means dense.
    `unit` says that each row is plus or minus one neuron. `terms` bounds the number of
    non-zero coefficients of a row, where somebody knows better than the size of A.
    """

    A: Tensor
    image: Tensor | None
    corner: Tensor | None = None
    unit: bool = False
    terms: int | None = None

    def __len__(self) -> int:
        return len(self.A)

    def with_A(self, A: Tensor) -> Rows:
        """The same places with other coefficients."""
        return replace(self, A=A, unit=False, terms=None)

    def __neg__(self) -> Rows:
        return replace(self, A=-self.A)

    def look_up(self, field: Tensor) -> Tensor:
        """The part of `field` ([N, *shape]) that each row's coefficients multiply.

        Dense rows get the whole field of their image; outside the value the field is zero.
        """
        if self.corner is None:
            return field if self.image is None else field[self.image]
        height, width = self.A.shape[-2:]
        # Windows may hang over every edge by at most their own size.
        padded = F.pad(field, (width, width, height, height))
        views = padded.unfold(2, height, 1).unfold(3, width, 1).permute(0, 2, 3, 1, 4, 5)
        # A window wholly outside sees only the padding, wherever outside it is.
        y = (self.corner[:, 0] + height).clamp(0, views.shape[1] - 1)
        x = (self.corner[:, 1] + width).clamp(0, views.shape[2] - 1)
        if self.image is not None:
            return views[self.image, y, x]
        # Many rows stand at the same place (one per channel): cut each window out once.
        place, which = torch.unique(y * views.shape[2] + x, return_inverse=True)
        return views[0, place // views.shape[2], place % views.shape[2]].index_select(0, which)

    def gated(self, A: Tensor, gate: Tensor) -> Rows:
        """New coefficients that are zero wherever the boolean field `gate` is false."""
        count = gate.flatten(1).sum(1) if self.corner is None else gate.sum(1, keepdim=True)
        if self.corner is not None:
            window = (min(A.shape[2], gate.shape[2]), min(A.shape[3], gate.shape[3]))
            pad = (window[0] // 2, window[1] // 2)
            # The most that any window of this size can hold, those over the edge included.
            count = F.avg_pool2d(count.to(A), window, 1, pad, divisor_override=1).round()
        terms = min(int(count.max()) if len(A) else 0, A[0].numel() if len(A) else 0)
        return replace(self, A=A, unit=False, terms=terms)

    def dot(self, field: Tensor) -> Tensor:
        """a . field for each row, [R]."""
        if self.corner is None and self.image is None:
            return self.A.flatten(1) @ field.flatten()
        return (self.A * self.look_up(field)).flatten(1).sum(1)

    def dot_abs(self, field: Tensor) -> Tensor:
        """|a| . field for each row, [R]."""
        return self.with_A(self.A.abs()).dot(field)

    def places(self) -> tuple[Tensor, Tensor]:
        """The line [R, height] and column [R, width] in the value of each window element."""
        assert self.corner is not None
        device, (height, width) = self.A.device, self.A.shape[-2:]
        y = self.corner[:, 0, None] + torch.arange(height, device=device)
        x = self.corner[:, 1, None] + torch.arange(width, device=device)
        return y, x

    def masked(self, shape: torch.Size) -> Rows:
        """Zero what a window has outside the value: nothing is there but padding."""
        if self.corner is None:
            return self
        y, x = self.places()
        inside_y, inside_x = (y >= 0) & (y < shape[1]), (x >= 0) & (x < shape[2])
        if bool(inside_y.all() & inside_x.all()):
            return self
        mask = (inside_y[:, :, None] & inside_x[:, None, :]).unsqueeze(1)
        return self.with_A(self.A * mask)

    def dense(self, shape: torch.Size) -> Rows:
        """Write windows out over the whole value."""
        if self.corner is None:
            return self
        rows = self.masked(shape)
        count, channels = self.A.shape[:2]
        y, x = self.places()
        # What hangs over an edge is zero, so it may be added anywhere: to the rim.
        y, x = y.clamp(0, shape[1] - 1), x.clamp(0, shape[2] - 1)
        place = (y[:, :, None] * shape[2] + x[:, None, :]).flatten(1).unsqueeze(1)
        whole = self.A.new_zeros((count, channels, shape[1] * shape[2]))
        whole = whole.scatter_add(2, place.expand(-1, channels, -1), rows.A.flatten(2))
        return Rows(whole.view(count, *shape), self.image)

    def settle(self, shape: torch.Size) -> Rows:
        """Turn windows that are no smaller than the value into dense rows."""
        if self.corner is None:
            return self
        if self.A.shape[-1] * self.A.shape[-2] < shape[-1] * shape[-2]:
            return self
        return self.dense(shape)

    def columns(self, index: Tensor, shape: torch.Size) -> Tensor:
        """The coefficients at the flat places `index` of the value, [R, len(index)]."""
        if self.corner is None:
            return self.A.flatten(1)[:, index]
        _, channels, height, width = self.A.shape
        area = shape[1] * shape[2]
        channel, rest = index // area, index % area
        y = (rest // shape[2])[None, :] - self.corner[:, :1]
        x = (rest % shape[2])[None, :] - self.corner[:, 1:]
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        place = (channel * height * width + y * width + x).clamp(0, channels * height * width - 1)
        return self.A.flatten(1).gather(1, place) * inside


def picked(rows: Rows) -> tuple[Tensor, Tensor]:
    """Return the channel or neuron that each unit row picks, and its sign."""
    A = rows.A.flatten(1)
    return A.abs().argmax(1), A.sum(1, keepdim=True)


def neurons(shape: torch.Size, index: Tensor, image: Tensor | None, dtype: torch.dtype) -> Rows:
    """Rows that pick single neurons of a value: a one-element window, or a dense unit row."""
    if len(shape) == 3:
        area = shape[1] * shape[2]
        A = torch.zeros(len(index), shape[0], 1, 1, dtype=dtype, device=index.device)
        A[torch.arange(len(index), device=index.device), index // area] = 1
        rest = index % area
        return Rows(A, image, torch.stack([rest // shape[2], rest % shape[2]], 1), True)
    A = torch.zeros(len(index), shape.numel(), dtype=dtype, device=index.device)
    A[torch.arange(len(index), device=index.device), index] = 1
    return Rows(A.view(len(index), *shape), image, None, True)


def add(left: Rows, right: Rows, shape: torch.Size) -> Rows:
    """The sum of two sets of rows over the same value, as where two branches part."""
    if left.corner is None or right.corner is None:
        left, right = left.dense(shape), right.dense(shape)
        return left.with_A(left.A + right.A)
    if left.A.shape[-1] * left.A.shape[-2] < right.A.shape[-1] * right.A.shape[-2]:
        left, right = right, left
    assert left.corner is not None
    assert right.corner is not None
    shift = right.corner - left.corner
    spare = torch.tensor(left.A.shape[-2:], device=shift.device) - torch.tensor(
        right.A.shape[-2:], device=shift.device
    )
    if len(shift) and bool((shift == shift[0]).all() & (shift[0] >= 0).all()):
        top, leftmost = shift[0].tolist()
        bottom, rightmost = (spare - shift[0]).tolist()
        if bottom >= 0 and rightmost >= 0:
            return left.with_A(left.A + F.pad(right.A, (leftmost, rightmost, top, bottom)))
    return add(left.dense(shape), right.dense(shape), shape)
