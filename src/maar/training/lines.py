"""What is said of an epoch: names, numbers and lines of plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from maar.config import Config, config_hash
from maar.training.plan import Plan

# Shown as parts of a hundred: shares of images.
SHARES = ("accuracy", "error", "robustness")
# Notes of this name and a ReLU's number hold its unstable neurons per image.
UNSTABLE_NOTE, UNSTABLE = "unstable_relu_", "unstable"
# Those of this one hold latent robustness there, 0 at the input.
LATENT_NOTE, LATENT = "latent_robustness_", "latent robustness"
BY_LAYER = (UNSTABLE_NOTE, LATENT_NOTE)


def headline(config: Config, net: nn.Module, images: int) -> tuple[str, str]:
    """What is trained on what, and the details of it."""
    weights = sum(parameter.numel() for parameter in net.parameters())
    base = getattr(config.method, "base", None)
    method = config.method.name if base is None else f"{config.method.name}({base.name})"
    return f"{method} on {config.data}, eps {config.eps}", (
        f"{config.network}, {weights:,} weights, {images:,} images, seed {config.seed}, "
        f"{config.threads} thread{'s' * (config.threads != 1)}, hash {config_hash(config)[:8]}"
    )


def epoch_line(record: dict[str, Any], plan: Plan) -> str:
    """An epoch as one line of plain text."""
    stage = plan.stages[record["stage"] - 1]
    parts = [f"{words(name)} {number(name, x)}" for name, x in terms(record["loss"]).items()]
    parts += [f"{name} {text}" for name, text in spell(record["train"]).items()]
    parts += [f"valid {name} {text}" for name, text in spell(record.get("valid", {})).items()]
    return (
        f"stage {record['stage']}/{len(plan.stages)} epoch {record['epoch']}/{stage.epochs}: "
        f"{', '.join(parts)}, {record['seconds']:.1f} s"
    )


def terms(loss: Mapping[str, float]) -> dict[str, float]:
    """The parts of a loss to show: the total too, unless there is one term only."""
    return {name: x for name, x in loss.items() if name != "total" or len(loss) > 2}


def spell(notes: Mapping[str, float]) -> dict[str, str]:
    """Names and numbers to show; what there is of every layer as one."""
    others = {name: x for name, x in notes.items() if not name.startswith(BY_LAYER)}
    shown = {words(name): number(name, x) for name, x in others.items()}
    if robust := latent(notes):
        shown[LATENT] = f"{robust} %"
    if few := unstable(notes):
        shown[UNSTABLE] = few
    return shown


def unstable(notes: Mapping[str, float]) -> str:
    """Unstable ReLUs per image, layer by layer: `312 | 41 | 5.3`; a layer not looked at: `-`."""
    counts = _by_layer(notes, UNSTABLE_NOTE)
    cells = [counts.get(layer) for layer in range(1, max(counts, default=0) + 1)]
    return " | ".join("-" if x is None else f"{x:.{0 if x >= 10 else 1}f}" for x in cells)


def latent(notes: Mapping[str, float]) -> str:
    """Latent robustness in per cent, from the input on: `98.5 | 96.0 | 93.5`."""
    return " | ".join(f"{100 * x:.1f}" for x in _by_layer(notes, LATENT_NOTE).values())


def _by_layer(notes: Mapping[str, float], prefix: str) -> dict[int, float]:
    return {
        int(name.removeprefix(prefix)): x for name, x in notes.items() if name.startswith(prefix)
    }


def words(name: str) -> str:
    """A metric's name in words."""
    return name.replace("_", " ")


def number(name: str, value: float) -> str:
    """A share as per cent, anything else with four digits."""
    if name.endswith(SHARES):
        return f"{100 * value:.1f} %"
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4g}"
