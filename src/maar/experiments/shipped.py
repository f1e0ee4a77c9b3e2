"""What the package knows of times: those of its own results, in proportion to this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from maar.core.errors import MaarError
from maar.experiments.tables import read_toml

PATH = Path(__file__).parent / "times.toml"
SIZE, TRIES = 1024, 4


@dataclass(frozen=True)
class Expected:
    """A time, and how it is known."""

    seconds: float
    """Of one core of this machine."""
    is_measured: bool
    """Whether a whole run was measured, elsewhere; otherwise only steps were."""


@cache
def _times() -> dict[str, dict[str, Any]]:
    return read_toml(PATH)


def training(recipe: str) -> Expected | None:
    """Return what training by a shipped recipe takes here; None if nobody has measured it."""
    for part in ("train", "estimated"):
        if recipe in _times()[part]:
            return Expected(_times()[part][recipe] * slowness(), part == "train")
    return None


def certification(recipe: str, preset: str) -> Expected | None:
    """Return what certifying an image of such a network takes here."""
    each = _times()["certify"].get(f"{recipe} {preset}")
    return None if each is None else Expected(each * slowness(), True)


def recipe_of(run: Path, preset: str) -> str:
    """Return the shipped recipe that a run was trained by, if its certification was measured."""
    from maar.config import config_hash, load

    try:
        config = load(run)
    except MaarError:
        return ""
    for name in (key.split()[0] for key in _times()["certify"] if key.endswith(f" {preset}")):
        recipe = load(name)
        if recipe.network == config.network and config_hash(
            replace(config, seed=recipe.seed)
        ) == config_hash(recipe):
            return name
    return ""


@cache
def slowness() -> float:
    """Return how many times as long this machine takes as the one that measured: a fifth of a
    second of work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        a = torch.ones(SIZE, SIZE)
        best = min(_seconds(a) for _ in range(TRIES))
    finally:
        torch.set_num_threads(before)
    return 1000 * best / _times()["machine"]["matmul_ms"]


def _seconds(a: Any) -> float:
    start = time.process_time()
    _ = a @ a
    return time.process_time() - start
