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
    broadcasts to `x` (one radius per pixel). A vector is always per image. `low` and
    `high` are numbers, or tensors that broadcast to `x` and may be infinite.
    """

    def __init__(
        self,
        x: Tensor,
        eps: float | Tensor,
        low: float | Tensor = 0.0,
        high: float | Tensor = 1.0,
    ) -> None:
        if isinstance(low, Tensor) or isinstance(high, Tensor):
            self._in_range(x, eps, torch.as_tensor(low), torch.as_tensor(high))
            return
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

    def _in_range(self, x: Tensor, eps: float | Tensor, low: Tensor, high: Tensor) -> None:
        """The same with a range for each place, which may be infinite."""
        if not bool(((x >= low) & (x <= high) & x.isfinite()).all()):
            raise UsageError("x has values outside the range of its features")
        self.x, self.eps = x, _radius(x, eps).expand(x.shape)
        # Numbers of any size: the roundings of eps, of eps +- slack and of the sum are at most
        # u eps, u (eps + slack) and u (|x| + eps + slack), below 5 u max(eps, |x|) in all, u being
        # half of finfo.eps; below the normal numbers, three halves of the least subnormal one.
        info = torch.finfo(x.dtype)
        slack = 4 * info.eps * torch.maximum(self.eps, x.abs()).clamp_min(info.tiny)
        self.eps_out = torch.where(self.eps > 0, self.eps + slack, self.eps)
        # (a radius below the normal numbers was raised to the least of them)
        eps_in = torch.where(self.eps > info.tiny, (self.eps - slack).clamp_min(0), 0)
        # The range in x's precision: outwards for the bound, inwards for points.
        far_low, far_high = _rounded(low, x.dtype, down=True), _rounded(high, x.dtype, down=False)
        low, high = _rounded(low, x.dtype, down=False), _rounded(high, x.dtype, down=True)
        Box.__init__(
            self,
            torch.maximum(x - self.eps_out, far_low),
            torch.minimum(x + self.eps_out, far_high),
        )
        # (x itself is in the range: the inner ends never pass it)
        self._inside = Box(
            torch.minimum(torch.maximum(x - eps_in, low), x),
            torch.maximum(torch.minimum(x + eps_in, high), x),
        )

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


def _rounded(exact: Tensor, dtype: torch.dtype, *, down: bool) -> Tensor:
    """Return float64 numbers in another precision, rounded to the side asked for."""
    near = exact.to(dtype)
    over = near.to(exact.dtype) > exact if down else near.to(exact.dtype) < exact
    way = torch.tensor(-torch.inf if down else torch.inf, dtype=dtype, device=near.device)
    return torch.where(over, torch.nextafter(near, way), near)


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    try:
        return torch.broadcast_shapes(shape, to) == to
    except RuntimeError:
        return False
