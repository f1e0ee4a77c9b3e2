"""BatchNorm where more than the images passes the network: attacks, worst points, bounds.

    clean        all of these use the statistics of the clean batch (SABR, TAPS)
    last         worst points have statistics of their own, and bounds those of the last pass
                 (De Palma et al.)
    population   all of these use the running statistics

Attacks never leave their mark on the running statistics: clean images make them, and with `last`
worst points do so too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from maar.domains.affine import per_channel, scale_of

Policy = Literal["clean", "last", "population"]


@contextlib.contextmanager
def population_statistics(net: nn.Module) -> Iterator[None]:
    """Let every BatchNorm use its running statistics, and leave them alone, within the block."""
    with _evaluating(_training(net)):
        yield


@dataclass(eq=False)
class Statistics:
    """The passes of one step through a network whose BatchNorm follows a policy.

    Within `fixed()` every BatchNorm is the affine map that the policy says, with a gradient into
    the statistics, and a pass leaves no mark; for an attack, which wants none, `fixed(False)`.
    """

    net: nn.Sequential
    policy: Policy
    seen: dict[_BatchNorm, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def clean(self, x: Tensor) -> Tensor:
        """The logits of the images as they are."""
        return self._recorded(x)

    def worst(self, x: Tensor) -> Tensor:
        """The logits of points that were found within `fixed`."""
        if self.policy == "last":
            return self._recorded(x)
        with self.fixed():
            return self.net(x)

    def _recorded(self, x: Tensor) -> Tensor:
        modules = [] if self.policy == "population" else _training(self.net)
        hooks = [module.register_forward_pre_hook(self._note) for module in modules]
        try:
            return self.net(x)
        finally:
            for hook in hooks:
                hook.remove()

    def _note(self, module: nn.Module, given: tuple[Tensor]) -> None:
        assert isinstance(module, _BatchNorm)
        over = [0, *range(2, given[0].dim())]
        # (as in training: without the correction by n / (n - 1))
        variance, mean = torch.var_mean(given[0], over, correction=0)
        self.seen[module] = mean, variance

    @contextlib.contextmanager
    def fixed(self, gradient: bool = True) -> Iterator[None]:
        """Every BatchNorm is a fixed affine map within the block."""
        modules = _training(self.net)
        changed = [module for module in modules if module in self.seen]
        before = [(module.running_mean, module.running_var) for module in changed]
        for module in changed:
            statistics = self.seen[module]
            if gradient:
                # (PyTorch's own has no gradient in the running statistics)
                module.forward = partial(_normalised, module)
            else:
                statistics = statistics[0].detach(), statistics[1].detach()
            module.running_mean, module.running_var = statistics
        try:
            with _evaluating(modules):
                yield
        finally:
            for module, (mean, variance) in zip(changed, before, strict=True):
                module.running_mean, module.running_var = mean, variance
                module.__dict__.pop("forward", None)


def _normalised(module: _BatchNorm, input: Tensor) -> Tensor:
    scale, shift = scale_of(module)
    return input * per_channel(scale, input.dim()) + per_channel(shift, input.dim())


def _training(net: nn.Module) -> list[_BatchNorm]:
    return [m for m in net.modules() if isinstance(m, _BatchNorm) and m.training]


@contextlib.contextmanager
def _evaluating(modules: list[_BatchNorm]) -> Iterator[None]:
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for module in modules:
            module.train()
