"""From steps that were read one by one to a network: a chain of layers, blocks and wired parts.

Where all of a network passes through one value, the chain is cut. A part between two cuts is one
layer, a Residual if two chains meet in a sum, or else a Dag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from maar.core import limits
from maar.core.errors import UsageError
from maar.networks.layers import Residual
from maar.networks.maps import Add, Dag, Move, Reshape
from maar.networks.operations import Shape, shape_after


@dataclass
class Step:
    """One layer and the values that it takes."""

    layer: nn.Module
    inputs: tuple[int, ...]


@dataclass
class Builder:
    """The steps so far. Value 0 is the input; step k makes value k + 1."""

    shapes: list[Shape]
    steps: list[Step] = field(default_factory=list)

    def add(self, layer: nn.Module, *inputs: int) -> int:
        """Append a layer; a ValueError says why it does not fit."""
        shapes = [self.shapes[value] for value in inputs]
        self.shapes.append(shape_after(layer, *shapes))
        self.steps.append(Step(layer, inputs))
        return len(self.steps)

    def network(self, output: int) -> nn.Sequential:
        """The part of the steps that the output depends on, as a network."""
        return nn.Sequential(*_chain(_needed(self.steps, output), 0))


def _needed(steps: Sequence[Step], output: int) -> list[Step]:
    """The steps that the output depends on, renumbered."""
    wanted = {output}
    for value in range(output, 0, -1):
        if value in wanted:
            wanted.update(steps[value - 1].inputs)
    now, kept = {0: 0}, list[Step]()
    for value in range(1, output + 1):
        if value in wanted:
            step = steps[value - 1]
            kept.append(Step(step.layer, tuple(now[i] for i in step.inputs)))
            now[value] = len(kept)
    return kept


def _chain(steps: Sequence[Step], nesting: int) -> list[nn.Module]:
    """Cut the steps where everything passes through one value."""
    last = list(range(len(steps) + 1))  # of each value: the last value that is made from it
    for k, step in enumerate(steps):
        for value in step.inputs:
            last[value] = k + 1
    layers: list[nn.Module] = []
    start, reach = 0, 0
    for value in range(len(steps) + 1):
        if value > start and reach <= value:
            layers.append(_part(steps[start:value], start, nesting))
            start = value
        reach = max(reach, last[value])
    return layers


def _part(steps: Sequence[Step], start: int, nesting: int) -> nn.Module:
    """The steps between two cuts as one layer; `start` is the value that they begin with."""
    steps = [Step(step.layer, tuple(value - start for value in step.inputs)) for step in steps]
    if len(steps) == 1 and len(steps[0].inputs) == 1:
        return steps[0].layer
    *before, end = steps
    if type(end.layer) is Add:
        branches = [_ancestors(before, value) for value in end.inputs]
        if branches[0].isdisjoint(branches[1]):
            if nesting == limits.RESIDUAL_DEPTH:
                raise UsageError(
                    f"more than {nesting} residual blocks inside each other (accepted: up to "
                    f"{limits.RESIDUAL_DEPTH})"
                )
            parts = [_chain(_needed(before, value), nesting + 1) for value in end.inputs]
            if len(parts[0]) < len(parts[1]):
                parts.reverse()
            return Residual(*(nn.Sequential(*part) for part in parts))
    return Dag([step.layer for step in steps], [step.inputs for step in steps])


def _ancestors(steps: Sequence[Step], value: int) -> set[int]:
    """The values behind 0 that a value is made from, itself included."""
    found, waiting = set[int](), [value]
    while waiting:
        value = waiting.pop()
        if value and value not in found:
            found.add(value)
            waiting += steps[value - 1].inputs
    return found


def as_classifier(net: nn.Sequential) -> nn.Sequential:
    """The scores whose largest is the class: no Softmax at the end, and two scores for one logit.

    A single logit z, or its sigmoid, stands for the scores 0 and z. The layers are the network's.
    """
    layers = list(net)
    while layers and isinstance(layers[-1], nn.Softmax | nn.LogSoftmax):
        if layers[-1].dim not in (1, -1):
            break
        layers.pop()
    kept = layers
    while kept and isinstance(kept[-1], nn.Sigmoid | nn.Flatten | Reshape):
        kept = kept[:-1]
    last = kept[-1] if kept else None
    if isinstance(last, nn.Linear) and last.out_features == 1:
        layers = [*kept, Move(torch.tensor([-1, 0]))]
    if len(layers) == len(net) and layers[-1:] == list(net)[-1:]:
        return net
    return nn.Sequential(*layers).train(net.training)
