"""One training step as the trainer takes it, for benchmarks: loss, gradients, optimiser."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from maar.config import TrainConfig
from maar.methods.base import Batch, Method, Stage
from maar.training.optim import make_optimizer
from maar.training.precision import autocast


def step_times(
    method: Method,
    stage: Stage,
    net: nn.Sequential,
    x: Tensor,
    y: Tensor,
    *,
    epoch: float,
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
    exchange: Callable[[Sequence[Tensor]], None] | None = None,
    precision: str = "32",
) -> list[float]:
    """Seconds of each of so many steps at this point of the stage, after two that do not count.

    `exchange` gets the gradients before the optimiser does: processes that share a batch average
    them there.
    """
    net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    x = x.contiguous(memory_format=torch.channels_last)
    for index, layer in enumerate(net):
        layer.requires_grad_(index >= stage.frozen)
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = make_optimizer(TrainConfig(lr=1e-4), trained)
    times: list[float] = []
    memo: dict[str, Any] = {}
    for step in range(repeats + 2):
        start = clock()
        batch = Batch(
            net=net,
            x=x,
            y=y,
            eps=stage.eps(epoch),
            stage=stage,
            generator=torch.Generator().manual_seed(step),
            at={name: schedule(epoch) for name, schedule in stage.schedules.items()},
            index=torch.arange(len(x)),
            memo=memo,
        )
        with autocast(precision, x.device):
            loss = method.loss(batch)
        total = torch.stack(list(loss.values())).sum()
        optimizer.zero_grad()
        total.backward()
        if exchange is not None:
            exchange([p.grad for p in trained if p.grad is not None])
        optimizer.step()
        times.append(clock() - start)
    return times[2:]


def median(times: list[float]) -> float:
    """The middle one; of an even number the later."""
    return sorted(times)[len(times) // 2]
