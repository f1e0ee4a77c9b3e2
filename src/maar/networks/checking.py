"""`check` and `trace`: walk a network layer by layer, by its supported list, without running it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from maar.core.errors import UsageError
from maar.networks.layers import Residual
from maar.networks.maps import Dag
from maar.networks.operations import OPERATIONS, Shape, shape_after


class LayerError(UsageError):
    """A layer of a network is not supported or does not fit."""


@dataclass(frozen=True)
class Step:
    """A layer, where it is ("3", or "3.body.0" inside a Residual), and the shape it gives."""

    index: str
    layer: nn.Module
    shape: Shape


def check(net: nn.Sequential, shape: Shape | None = None, classes: int | None = None) -> None:
    """Raise a `LayerError` at the first layer that is not supported, by index and type.

    With `shape`, also follow an image of that shape through the layers; with `classes`, require
    that many outputs.
    """
    _check(net, "")
    if shape is None:
        return
    steps = trace(net, shape)
    out = steps[-1].shape if steps else shape
    if classes is not None and out != (classes,):
        raise LayerError(
            f"an image of shape {spell(shape)} gives an output of shape {spell(out)}, "
            f"but there are {classes} classes"
        )


def trace(net: nn.Sequential, shape: Shape) -> list[Step]:
    """Every layer in the order of computation with its output shape for an image of `shape`.

    A layer that does not fit its input is a `LayerError` with its index and the shape. The network
    must have passed `check(net)`.
    """
    return _trace(net, shape, "")


def spell(shape: Shape) -> str:
    """A shape as people write it: 3x32x32."""
    return "x".join(map(str, shape))


def _check(net: nn.Module, prefix: str) -> None:
    # A subclass may have a forward of its own; only the plain container surely runs in order.
    if type(net) is not nn.Sequential:
        where = f"layer {prefix.rstrip('.')}" if prefix else "a network"
        raise LayerError(f"{where} must be a plain nn.Sequential, not a {type(net).__name__}")
    _check_layers(net, prefix)


def _check_layers(layers: Iterable[nn.Module], prefix: str) -> None:
    for position, layer in enumerate(layers):
        index = f"{prefix}{position}"
        rule = OPERATIONS.get(type(layer))
        if rule is None:
            names = ", ".join(kind.__name__ for kind in OPERATIONS)
            raise LayerError(
                f"layer {index} is a {type(layer).__name__}, which is not supported "
                f"(supported: {names})"
            )
        # weight_norm and its like change the weights in a hook, unseen by the bounds.
        hooked = layer._forward_hooks or layer._forward_pre_hooks
        if reason := "forward hooks are not supported" if hooked else rule.refuse(layer):
            raise LayerError(f"layer {index} ({layer}): {reason}")
        if isinstance(layer, Residual):
            _check(layer.body, f"{index}.body.")
            _check(layer.shortcut, f"{index}.shortcut.")
        elif isinstance(layer, Dag):
            _check_layers(layer.layers, f"{index}.")


def _trace(net: nn.Sequential, shape: Shape, prefix: str) -> list[Step]:
    steps: list[Step] = []
    for position, layer in enumerate(net):
        index = f"{prefix}{position}"
        if isinstance(layer, Residual):
            body = _trace(layer.body, shape, f"{index}.body.")
            shortcut = _trace(layer.shortcut, shape, f"{index}.shortcut.")
            ends = [part[-1].shape if part else shape for part in (body, shortcut)]
            if ends[0] != ends[1]:
                raise LayerError(
                    f"layer {index} (Residual): the body gives shape {spell(ends[0])}, "
                    f"the shortcut {spell(ends[1])}"
                )
            steps += body + shortcut
            shape = ends[0]
        elif isinstance(layer, Dag):
            shapes = [shape]
            for k, (part, inputs) in enumerate(zip(layer.layers, layer.inputs, strict=True)):
                shapes.append(_shape(f"{index}.{k}", part, *(shapes[i] for i in inputs)))
                steps.append(Step(f"{index}.{k}", part, shapes[-1]))
            shape = shapes[-1]
        else:
            shape = _shape(index, layer, shape)
        steps.append(Step(index, layer, shape))
    return steps


def _shape(index: str, layer: nn.Module, *shapes: Shape) -> Shape:
    try:
        return shape_after(layer, *shapes)
    except ValueError as reason:
        given = " and ".join(map(spell, shapes))
        raise LayerError(
            f"layer {index} ({layer}) does not fit an input of shape {given}: {reason}"
        ) from None
