"""The L-infinity ball around an image, clipped to the pixel range.

Real numbers x +- eps are seldom floats, so the set exists twice: `lb`, `ub` are
rounded outward and enclose the whole real ball (a bound over them proves
something about every real point), while `point` is rounded inward and never
leaves it (a counterexample is one for the real ball). The two differ by a few
units in the last place.
"""

from __future__ import annotations

import torch
from torch import Tensor

from maar.core.errors import UsageError
from maar.regions.box import Box


class Ball(Box):
    """[max(low, x - eps), min(high, x + eps)].

    `eps` is a number, a vector with one radius per image, or a tensor that
    broadcasts to `x` (one radius per pixel). A vector is always per image.
    """

    def __init__(self, x: Tensor, eps: float | Tensor, low: float = 0.0, high: float = 1.0) -> None:
        least, most = (float(end) for end in x.aminmax()) if x.numel() else (low, high)
        if not low <= least <= most <= high:
            raise UsageError(
                f"x has pixels in [{least:g}, {most:g}];"
                f" the ball is clipped to [{low:g}, {high:g}] and needs x inside it"
            )
        self.x = x
        self.eps = _radius(x, eps)
        # Three roundings stand between eps and x +- eps (eps itself, eps +- slack, the sum), each
        # at most half an ulp of max(eps, |low|, |high|): two ulps cover them.
        scale = self.eps.clamp_min(max(1.0, abs(low), abs(high)))
        slack = 2 * torch.finfo(x.dtype).eps * scale
        self.eps_out = torch.where(self.eps > 0, self.eps + slack, self.eps)
        eps_in = (self.eps - slack).clamp_min(0)
        super().__init__(
            (x - self.eps_out).clamp_min_(low),
            (x + self.eps_out).clamp_max_(high),
        )
        self._inside = Box((x - eps_in).clamp_min_(low), (x + eps_in).clamp_max_(high))

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        return self._inside.ends

    def select(self, index: Tensor) -> Ball:
        part = super().select(index)
        assert isinstance(part, Ball)
        part.x = self.x[index]
        part._inside = self._inside.select(index)
        if self.eps.dim() == self.x.dim() and len(self.eps) == len(self.x):  # one row per image
            part.eps = self.eps[index]
            part.eps_out = self.eps_out[index]
        return part


def _radius(x: Tensor, eps: float | Tensor) -> Tensor:
    """eps as a tensor that broadcasts to x, checked."""
    given = torch.as_tensor(eps, dtype=torch.float64, device=x.device)
    if not bool(((given >= 0) & given.isfinite()).all()):
        raise UsageError(f"eps = {eps!r} is not a radius (accepted: finite numbers >= 0)")
    per_image = given.dim() == 1
    fits = len(given) == len(x) if per_image else _broadcasts(given.shape, x.shape)
    if not fits:
        raise UsageError(
            f"eps has shape {tuple(given.shape)} for images {tuple(x.shape)} (accepted: a number,"
            f" one radius per image ({len(x)},), or one per pixel {tuple(x.shape)})"
        )
    if per_image:
        given = given.view(-1, *([1] * (x.dim() - 1)))
    radius = given.to(x.dtype)
    # A radius so small that it rounds to 0 must stay one, or lb = ub = x would exclude points.
    return torch.where(given > 0, radius.clamp_min(torch.finfo(x.dtype).tiny), radius)


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    try:
        return torch.broadcast_shapes(shape, to) == to
    except RuntimeError:
        return False
