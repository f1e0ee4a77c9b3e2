"""A method with two stages that uses every part of the trainer's contract, and maar with it.

python staged_run.py train CONFIG ...     the command line, with `--method staged`
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from maar.methods import METHODS
from maar.methods.base import Batch, Method, Stage
from maar.methods.schedules import Constant, Ramp


@dataclass(frozen=True)
class Staged(Method):
    """Random noise on the images, then the same behind a frozen first layer."""

    name: ClassVar[str] = "staged"
    paper: ClassVar[str] = "a test"
    year: ClassVar[int] = 2026
    idea: ClassVar[str] = "noise in two stages"

    def initialise(self, net, generator):
        with torch.no_grad():
            net[-1].bias.uniform_(-1, 1, generator=generator)

    def stages(self, net, eps, epochs):
        first_relu = next(i for i, layer in enumerate(net) if isinstance(layer, torch.nn.ReLU))
        return [
            Stage("input", epochs, Ramp(0.0, eps, 1.0)),
            Stage(
                "relu 1",
                epochs,
                Constant(float(eps)),
                frozen=first_relu + 1,
                lr_scale=0.5,
                schedules={"kappa": Ramp(0.0, 1.0, epochs / 2)},
            ),
        ]

    def loss(self, batch: Batch):
        noise = torch.rand(batch.x.shape, generator=batch.generator) * batch.eps
        kappa = batch.at.get("kappa", 1.0)
        # Follows from the frozen prefix alone, as a memo must.
        scale = batch.memo.setdefault("scale", sum(float(p.sum()) for p in prefix(batch)))
        same_everywhere(batch.net)
        z = batch.net(batch.x + noise)
        batch.note(accuracy=z.argmax(1) == batch.y)
        return {
            "noisy": kappa * F.cross_entropy(z, batch.y),
            "clean": (1 - kappa) * F.cross_entropy(batch.net(batch.x), batch.y),
            "scale": torch.tensor(scale * 0.01),
        }


def same_everywhere(net: torch.nn.Module):
    """Processes that train together have the same weights and statistics, to the bit."""
    if torch.distributed.is_initialized():
        mine = torch.cat([value.double().flatten() for value in net.state_dict().values()])
        theirs = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
        try:
            torch.distributed.all_gather(theirs, mine)
        except RuntimeError:
            return  # the other one is gone, as the trainer will notice
        assert len(theirs) == 2
        assert all(torch.equal(one, mine) for one in theirs)


def prefix(batch: Batch):
    """Weights that do not move in this stage."""
    return batch.net[: batch.stage.frozen].parameters()


if __name__ == "__main__":
    from maar.cli.main import main

    METHODS.add("staged", "__main__:Staged")
    sys.exit(main(sys.argv[1:]))
