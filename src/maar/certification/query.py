"""The question put to a verifier: can this image's answer change within its ball?"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from maar.certificates.notes import Notes
from maar.certification.network import Network
from maar.domains.bound import margins
from maar.regions import Ball
from maar.regions.perturbation import Perturbation


@dataclass(frozen=True, eq=False)
class Query:
    """Is z_y - z_k > 0 for every class k of `targets`, on the whole ball of radius eps around x?

    `seed` is the image's own source of chance, so that its verdict does not depend on the images
    before it. `memory` goes with the query from verifier to verifier: what a cheap one has
    computed a dear one need not compute again.

    `deadline`, on the clock of `time.monotonic`: a verifier that can run long asks `left` how long
    it may, and answers UNKNOWN with what it has when time is up.
    """

    network: Network
    x: Tensor
    """[1, *shape], float32 in [0, 1]."""
    y: int
    eps: float
    targets: tuple[int, ...]
    """Classes still open."""
    seed: int = 0
    memory: dict[Any, Any] = field(default_factory=dict, repr=False)
    deadline: float = math.inf
    moves: Perturbation | None = None
    """Where the input may move, unless it is by eps everywhere within [0, 1]."""
    notes: Notes | None = field(default=None, repr=False)
    """Where verifiers leave what a certificate needs; None where none is asked for."""

    @staticmethod
    def of(
        network: Network,
        x: Tensor,
        y: int,
        eps: float,
        seed: int = 0,
        moves: Perturbation | None = None,
        notes: Notes | None = None,
    ) -> Query:
        """The whole question: every class but y is open."""
        targets = tuple(k for k in range(network.classes) if k != y)
        return Query(network, x, y, eps, targets, seed, moves=moves, notes=notes)

    def narrowed(self, targets: Iterable[int]) -> Query:
        """The same question about fewer classes."""
        return replace(self, targets=tuple(targets))

    def left(self, most: float = math.inf) -> float:
        """Seconds left until the deadline: at least 0, at most `most`."""
        return max(0.0, min(most, self.deadline - time.monotonic()))

    def ball(self, dtype: torch.dtype = torch.float32) -> Ball:
        """The ball; its corners are rounded outwards, its points inwards."""
        return self.around(self.x.to(dtype))

    def around(self, x: Tensor) -> Ball:
        """The balls of this question's size around other inputs."""
        return Ball(x, self.eps) if self.moves is None else self.moves.ball(x)

    def margins(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The rows z_y - z_k of the open classes, [1, open, classes]."""
        whole = margins(torch.tensor([self.y]), self.network.classes, dtype)
        return whole[:, [k - (k > self.y) for k in self.targets]]

    def label(self) -> Tensor:
        """y as the attacks want it, [1]."""
        return torch.tensor([self.y])
