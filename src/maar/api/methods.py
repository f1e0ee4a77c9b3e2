"""Methods whose Python names or arguments are simpler than those of the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from maar.attacks import pgd
from maar.methods.pgd import PGDTraining


@dataclass(frozen=True, init=False)
class PGD(PGDTraining):
    """Adversarial training: cross-entropy at the worst point that PGD finds in the ball."""

    def __init__(
        self, steps: int = 8, step_size: float = 0.25, restarts: int = 1, *, ramp: float = 0.0
    ) -> None:
        """Set the attack's steps, their length as a share of eps, and its random starts."""
        attack = pgd.PGD(steps=steps, step_size=step_size, restarts=restarts)
        super().__init__(ramp=ramp, attack=attack)
