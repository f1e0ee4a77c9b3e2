"""A caller's model and tensors as the rest of the package takes them, checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from maar.core.eps import Eps
from maar.core.errors import UsageError, unknown
from maar.data.dataset import Arrays, DataSet, Info, make
from maar.networks.checking import check
from maar.regions import Ball
from maar.regions.l2_ball import L2Ball
from maar.regions.perturbation import PIXELS, Range, perturbation

NORMS = ("linf", "l2")


def network_of(model: Any, x: Any = None) -> nn.Sequential:
    """Return the network behind a module, a `Run`, or the name of a run, ONNX file or zoo entry.

    `x`, a batch of its inputs, is needed for a module that is no chain of supported layers.
    """
    if isinstance(model, (str, Path)):
        from maar.api.loading import load

        return load(model).network
    if hasattr(model, "network") and not isinstance(model, nn.Module):
        return model.network
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"model is a {type(model).__name__} (accepted: an nn.Module, a run, or the name of a "
            "run's folder, an ONNX file or zoo:NAME)"
        )
    from maar.api.converting import convert

    return convert(model, _example(x, model))


def _example(x: Any, model: nn.Module) -> Tensor | None:
    """The first input of a batch; None if it is none (which is said later, in better words)."""
    if x is None:
        return None
    x = torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x)
    if x.dim() < 2 or not len(x) or not x.is_floating_point():
        return None
    _refuse_nan(x)
    like = next(model.parameters(), torch.zeros(()))
    return x[:1].detach().to(like)


def _refuse_nan(x: Tensor) -> None:
    if not bool(torch.isfinite(x).all()):
        raise UsageError("x has values that are NaN or infinite (accepted: finite numbers)")


def images_of(x: Any, net: nn.Sequential) -> Tensor:
    """Return a batch rounded to float32 on the CPU, checked against the network."""
    x = torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x)
    if x.dim() < 2 or not len(x):
        raise UsageError(
            f"x has shape {tuple(x.shape)} (accepted: a batch of images, such as (n, 3, 32, 32))"
        )
    if not x.is_floating_point():
        raise UsageError(f"x is of type {x.dtype} (accepted: floating point in [0, 1])")
    x = x.detach().to("cpu", torch.float32)
    _refuse_nan(x)
    check(net, tuple(x.shape[1:]))
    return x


def labels_of(y: Any, x: Tensor) -> Tensor:
    """Return labels as int64, one for each image."""
    y = torch.as_tensor(y if isinstance(y, Tensor) else np.asarray(y))
    if y.is_floating_point() or y.dtype == torch.bool or y.shape != (len(x),):
        raise UsageError(
            f"y has shape {tuple(y.shape)} and type {y.dtype} (accepted: {len(x)} whole numbers)"
        )
    return y.detach().to("cpu", torch.int64)


def span_of(x: Tensor, span: Any) -> Range:
    """Return the range that inputs keep to: as given, else [0, 1] for images, none for tables."""
    if isinstance(span, str):
        if span != "auto":
            raise UsageError(f"span = {span!r} (accepted: (low, high), None or 'auto')")
        return PIXELS if x.dim() > 2 else None
    if span is None:
        return None
    if not isinstance(span, tuple | list) or len(span) != 2:
        raise UsageError(f"span = {span!r} (accepted: (low, high), None or 'auto')")
    low, high = (end.tolist() if isinstance(end, Tensor) else end for end in span)
    return low, high


def ball_of(
    x: Tensor, eps: Any, mask: Any = None, span: Any = "auto", norm: str = "linf"
) -> Ball | L2Ball:
    """Return the region around a batch."""
    if norm not in NORMS:
        raise unknown("norm", norm, NORMS)
    if norm == "l2":
        return _l2_ball(x, eps, mask, span_of(x, span))
    size, moves = perturbation(eps, x.shape[1:], span_of(x, span), mask)
    return Ball(x, float(size)) if moves is None else moves.ball(x)


def _l2_ball(x: Tensor, eps: Any, mask: Any, span: Range) -> L2Ball:
    if mask is not None or (not isinstance(eps, str) and np.ndim(eps)):
        raise UsageError("norm = 'l2' takes one eps and no mask")
    size = eps if isinstance(eps, Eps) else Eps(eps, float("inf"))
    low, high = (-np.inf, np.inf) if span is None else span
    ends = (torch.as_tensor(end, dtype=torch.float64, device=x.device) for end in (low, high))
    return L2Ball(x, float(size), *ends)


def radius_of(eps: Any) -> Eps:
    """Return eps as an exact radius: a number, or text such as "2/255"."""
    return eps if isinstance(eps, Eps) else Eps(eps)


def data_of(
    x: Tensor,
    y: Tensor,
    outputs: int,
    classes: Sequence[str] | None = None,
    name: str = "tensors",
    span: Any = "auto",
) -> DataSet:
    """Return tensors as the test images of a data set, known by the hash of their content."""
    if classes is not None and len(classes) != outputs:
        raise UsageError(f"classes has {len(classes)} names (accepted: {outputs}, one an output)")
    none = np.zeros((0, *x.shape[1:]), np.float32), np.zeros(0, np.int64)
    arrays = Arrays(*none, x.numpy(), y.numpy())
    channels = x.shape[1]
    info = Info(
        name,
        tuple(x.shape[1:]),  # pyright: ignore[reportArgumentType]
        tuple(classes or map(str, range(outputs))),
        0,
        len(x),
        (0.0,) * channels,
        (1.0,) * channels,
        span=span_of(x, span),
    )
    return make(info, arrays)
