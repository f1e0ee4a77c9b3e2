"""The parts of every training method: `Stage`, `Batch` and `Method`.

The trainer knows these three and nothing else about a method:

    method.initialise(net, generator)            once, before the first step
    for stage in method.stages(net, eps, epochs)  layers before stage.frozen do not move
        for each step                            numbers from stage.eps and stage.schedules
            total = sum(method.loss(batch).values())     terms(batch, outputs(batch))
        after each epoch                         method.judge(batch) on the validation images
    method.finish(net, batches)                  once, after the last step

A method is a frozen dataclass: its fields are its knobs, in TOML under `[method]` and on the
command line. It holds no state, so that a stopped run can be continued exactly: what it must
remember within a stage goes into `batch.memo` and must follow from the weights and the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from maar.core.eps import Eps
from maar.core.errors import UsageError
from maar.core.settings import Settings
from maar.methods.schedules import Schedule

# Epochs after which every schedule is at its end.
END = 1e9


@dataclass(frozen=True)
class Stage:
    """A part of the training with one frozen prefix. A method may subclass it to carry more."""

    name: str
    """What is attacked or bounded here, for people: "input", "relu 1"."""
    epochs: int
    """How long it lasts."""
    eps: Schedule
    """The radius that the loss trains for, as a function of the epochs since the stage began."""
    frozen: int = 0
    """Layers net[:frozen] keep their weights and statistics; the region lies at their output."""
    lr_scale: float = 1.0
    """Factor on the configured learning rate."""
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    """Further numbers for the loss by name, such as kappa or the weight of a regulariser."""


@dataclass(eq=False)
class Batch:
    """All that a loss may look at: images, network, and the numbers of this very step."""

    net: nn.Sequential
    """The whole network, frozen prefix included. In training mode within `Method.loss`."""
    x: Tensor
    """Images in [0, 1], augmented."""
    y: Tensor
    """Labels."""
    eps: float
    """The radius at this step; within `Method.judge` the configured one."""
    stage: Stage
    generator: torch.Generator
    """The only source of chance: it belongs to this step and gives the same after a resume."""
    at: Mapping[str, float] = field(default_factory=dict)
    """Values of `stage.schedules` at this step."""
    index: Tensor | None = None
    """Which training images these are; None within `Method.judge`."""
    memo: dict[str, Any] = field(default_factory=dict)
    """Lives as long as the stage, empty after a resume: for what would be computed repeatedly."""
    notes: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Numbers to show beside the loss terms, each as (sum, how many); see `note` and `ratio`."""

    def note(self, **values: Tensor) -> None:
        """Record numbers, such as one per image, for the metrics: an epoch shows their mean."""
        for name, value in values.items():
            self.ratio(**{name: (value, torch.ones_like(value))})

    def ratio(self, **parts: tuple[Tensor, Tensor]) -> None:
        """Record shares (of these, out of those), given as masks: an epoch shows sum over sum.

        `ratio(verified_error=(correct & broken, correct))` is right also where the batches have
        different numbers of correct images, which a mean of their shares would not be.
        """
        for name, (part, whole) in parts.items():
            self.notes[name] = part.detach().float().sum(), whole.detach().float().sum()


@dataclass(eq=False)
class Outputs:
    """The logits that a loss is made of.

    A method that wraps another one, as MAAR does, adds its terms on these: the attack, the passes
    through the network and the chance in them are then shared.
    """

    batch: Batch
    worst: Sequence[tuple[float, Tensor]] = ()
    """(weight, logits at the worst points): several where a loss mixes several regions."""
    _nat: Tensor | None = None

    @property
    def nat(self) -> Tensor:
        """Logits of the images as they are, computed when first asked for."""
        nat = self.batch.net(self.batch.x) if self._nat is None else self._nat
        self._nat = nat
        return nat


@dataclass(frozen=True)
class Method(Settings):
    """A way to train. Subclasses fill in the class variables and `loss`."""

    name: ClassVar[str]
    """As in the registry, on the command line and in TOML; also the file's name."""
    paper: ClassVar[str]
    year: ClassVar[int]
    idea: ClassVar[str]
    """One line for `maar methods`."""
    score: ClassVar[str] = "accuracy"
    """Which of the numbers of `judge` is to be highest in the best checkpoint of a stage."""
    revision: ClassVar[int] = 1
    """One more whenever the same settings begin to mean another training: a run that was begun
    before is not continued then, nor taken for one of today."""
    has_worst: ClassVar[bool] = True
    """Whether its outputs have worst points, which another method can go around."""

    def initialise(self, net: nn.Sequential, generator: torch.Generator) -> None:
        """Change the fresh weights before the first step, where a method asks for its own."""

    def stages(self, net: nn.Sequential, eps: Eps, epochs: int) -> list[Stage]:
        """The stages in their order. The trainer divides each into epochs and steps."""
        raise NotImplementedError

    def outputs(self, batch: Batch) -> Outputs:
        """The logits that `terms` takes, those at the worst points among them."""
        return Outputs(batch)

    def terms(self, batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
        """Named terms, each a scalar, of these logits."""
        raise NotImplementedError

    def __call__(
        self,
        net: nn.Module,
        x: Tensor,
        y: Tensor,
        eps: float | str,
        *,
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """Return the named, differentiable terms of the loss on one batch, for any training loop.

        Schedules are at their end. A method of several stages has no such loss: train it with
        `maar.train`, or give it `max_stages=1`.
        """
        if not isinstance(net, nn.Sequential):
            raise UsageError(
                f"model is a {type(net).__name__} (accepted: a plain nn.Sequential, such as "
                "maar.convert gives)"
            )
        stages = self.stages(net, Eps(eps), epochs=1)
        if len(stages) > 1:
            raise UsageError(
                f"{self.name} trains in {len(stages)} stages and has no single loss (accepted: "
                "maar.train, or max_stages=1)"
            )
        (stage,) = stages
        if generator is None:
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        return self.loss(
            Batch(
                net=net,
                x=x,
                y=y,
                eps=stage.eps(END),
                stage=stage,
                generator=generator,
                at={name: schedule(END) for name, schedule in stage.schedules.items()},
            )
        )

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Named terms, each a scalar; the trainer descends on their sum."""
        return self.terms(batch, self.outputs(batch))

    def finish(self, net: nn.Sequential, batches: Iterable[Batch]) -> dict[str, float]:
        """Change the trained weights once, where a method does so; numbers of it for the result.

        `net` is in evaluation mode; the batches are the training images as they are, at eps. What
        is done must follow from these alone, so that a run that was stopped here ends the same.
        """
        return {}

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        """Named results per image (1 good, 0 bad) in evaluation mode, for validation and test."""
        with torch.no_grad():
            return {"accuracy": batch.net(batch.x).argmax(1) == batch.y}
