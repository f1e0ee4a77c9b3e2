"""`maar.domains` and `maar.attack`: enclose all outputs of a ball, or look for a bad one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from maar.api.tensors import ball_of, labels_of, network_of
from maar.attacks.pgd import PGD
from maar.core.errors import UsageError, unknown
from maar.domains import BOUNDS as DOMAINS
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Bound
from maar.domains.crown import Crown
from maar.domains.graph import compile_network, trace
from maar.domains.interval import Interval
from maar.domains.zonotope import Zonotope
from maar.networks.assembling import as_classifier
from maar.networks.checking import check
from maar.regions import Ball
from maar.regions.l2_ball import L2Ball

BOUNDS: dict[str, Callable[[bool], Bound]] = {
    "interval": lambda rounding: Interval(rounding),
    "zonotope": lambda rounding: Zonotope(rounding=rounding),
    "crown_ibp": lambda rounding: Crown("interval", rounding),
    "crown": lambda rounding: Crown(rounding=rounding),
    "alpha_crown": lambda rounding: AlphaCrown(rounding=rounding),
}

OF_L2 = ("crown_ibp", "crown", "alpha_crown")
"""Bounds that know the L2 norm; the others would enclose the whole box around the ball."""


@dataclass(frozen=True)
class Bounds:
    """lb <= C f(x') <= ub for every x' of each image's ball, `[n, rows]`."""

    lb: Tensor
    ub: Tensor


def bounds(
    model: Any,
    x: Tensor,
    eps: Any,
    *,
    method: str | Bound = "crown",
    C: Tensor | None = None,
    rounding: bool = False,
    mask: Any = None,
    span: Any = "auto",
    norm: str = "linf",
) -> Bounds:
    """Enclose the logits, or C @ logits, over the ball of radius eps around each image.

    Args:
        model: As for `certify`. A module's own parameters are used, live.
        x: Images in [0, 1], `[n, *shape]`.
        eps: L-infinity radius: one, or one for each channel, feature or pixel.
        method: interval, zonotope, crown_ibp, crown, alpha_crown, or a `Bound`.
        C: Rows to bound, `[rows, classes]` or `[n, rows, classes]`; the logits without it.
        rounding: Account for rounding errors, so that the result is a proof. Without it the result
            is differentiable in weights and images (except alpha_crown) and right up to rounding.
        mask: As for `certify`.
        span: As for `certify`.
        norm: "linf", or "l2".
    """
    net, ball = _inputs(model, x, eps, mask, span, norm)
    if isinstance(method, str):
        if norm != "linf" and method not in OF_L2:
            raise UsageError(
                f"norm = {norm!r}: {method} does not know it (accepted: {', '.join(OF_L2)})"
            )
        method = _named(method, rounding)
    elif norm != "linf" and not isinstance(method, (Crown, AlphaCrown)):
        raise UsageError(f"norm = {norm!r}: {method!r} does not know it")
    elif rounding and not getattr(method, "rounding", False):
        raise UsageError(f"rounding = True: {method!r} does not account for it")
    if rounding:
        _require_exact(net, x, C)
    if C is not None:
        C = C.to(x).expand(len(x), *C.shape[-2:]) if C.dim() in (2, 3) else C
    compiled = rounding or isinstance(method, AlphaCrown)
    shape = tuple(x.shape[1:])
    graph = compile_network(net, shape, x.dtype) if compiled else trace(net, shape)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not compiled):
        result = method(graph, ball, C)
    return Bounds(result.lb, result.ub)


@dataclass(frozen=True)
class AttackResult:
    """The worst points that an attack found."""

    x_adv: Tensor
    """One point of each image's ball, `[n, *shape]`."""
    success: Tensor
    """Whether the answer there differs from the label, bool `[n]`."""


def attack(
    model: Any,
    x: Tensor,
    y: Any,
    eps: Any,
    *,
    steps: int = 40,
    step_size: float = 0.1,
    restarts: int = 1,
    targeted: bool = False,
    seed: int = 0,
    mask: Any = None,
    span: Any = "auto",
    norm: str = "linf",
) -> AttackResult:
    """Look for adversarial images by projected gradient descent.

    Args:
        model: As for `certify`, or any module that maps images to logits.
        x: Images in [0, 1], `[n, *shape]`.
        y: Labels, `[n]`.
        eps: L-infinity radius: one, or one for each channel, feature or pixel.
        steps: Gradient steps.
        step_size: Length of a step, as a share of eps.
        restarts: Random starts; the worst point of all counts.
        targeted: Run once for each other class.
        seed: Seed of the random starts.
        mask: As for `certify`.
        span: As for `certify`.
        norm: "linf", or "l2".
    """
    net = model if isinstance(model, nn.Module) else as_classifier(network_of(model))
    if _has_one_logit(net, x):
        net = as_classifier(network_of(net, x))
    y = labels_of(y, x).to(x.device)
    search = PGD(
        steps=steps,
        step_size=step_size,
        restarts=restarts,
        targeted=targeted,
        loss="margin",
        keep="best",
    )
    training = net.training
    net.eval()
    try:
        ball = ball_of(x.detach(), eps, mask, span, norm)
        e = search(net, ball, y, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            x_adv = ball.point(e)
            success = net(x_adv).argmax(1) != y
    finally:
        net.train(training)
    return AttackResult(x_adv, success)


def _has_one_logit(net: nn.Module, x: Tensor) -> bool:
    training = net.training
    net.eval()
    try:
        with torch.no_grad():
            return net(x[:1]).numel() == 1
    finally:
        net.train(training)


def _named(method: str, rounding: bool) -> Bound:
    if method in BOUNDS:
        return BOUNDS[method](rounding)
    if DOMAINS.has_built_in(method) or not DOMAINS.accepts(method):
        raise unknown("method", method, BOUNDS)
    made = DOMAINS[method]()
    if not isinstance(made, Bound):
        raise UsageError(f"method {method!r} is no Bound (accepted: a subclass of maar.Bound)")
    if rounding and not getattr(made, "rounding", False):
        raise UsageError(f"rounding = True: {method!r} does not account for it")
    return made


def _require_exact(net: nn.Sequential, x: Tensor, C: Tensor | None) -> None:
    """Refuse numbers that the type of x would round: the bounds would be of another network."""
    for name, numbers in (*net.state_dict().items(), ("C", C)):
        if numbers is None or not numbers.is_floating_point():
            continue
        if not bool((numbers.to(x.dtype) == numbers).all()):
            raise UsageError(
                f"rounding = True: {name} is of type {numbers.dtype}, x of type {x.dtype} "
                "(accepted: numbers that are finite and fit into the type of x, such as x.double())"
            )


def _inputs(
    model: Any, x: Any, eps: Any, mask: Any, span: Any, norm: str
) -> tuple[nn.Sequential, Ball | L2Ball]:
    net = network_of(model, x)
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() < 2:
        raise UsageError("x must be a batch of images: a floating-point tensor [n, *shape]")
    check(net, tuple(x.shape[1:]))
    return net, ball_of(x, eps, mask, span, norm)
