"""How long a task may take: as long as the same took on a run of the same recipe."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from statistics import fmean

from maar.certify.store import MANIFEST, VERDICTS
from maar.errors import MaarError
from maar.experiments.measured import State
from maar.experiments.plan import Task
from maar.train.status import read_metrics


def estimate(task: Task, state: State) -> float | None:
    """Seconds of one core that are left; None where nothing similar was measured."""
    if state.result:
        return 0.0
    stem = task.run.name.rpartition("-seed")[0]
    profile = f"-{task.profile.name}"
    # Flags and seeds hardly change the time: any run of that recipe will do.
    similar = stem.partition(profile)[0] + profile
    if task.what == "train":
        whole = training_seconds(task.run.folder.parent, similar)
        return None if whole is None else max(0.0, whole - _spent(task.run.folder))
    if task.what == "certify":
        each, of = image_seconds(task.run.folder.parent, similar, task.profile.preset)
    else:
        each, of = attack_seconds(task.run.folder.parent, similar, task.profile.latent_steps)
    images = state.whole or min(task.images or of, of)
    return None if each is None else each * (images - state.done)


@cache
def training_seconds(runs: Path, stem: str) -> float | None:
    """Of the finished runs whose names begin so."""
    found = []
    for path in runs.glob(f"{stem}-*/result.json"):
        try:
            found.append(float(json.loads(path.read_text())["seconds"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return fmean(found) if found else None


@cache
def image_seconds(runs: Path, stem: str, preset: str) -> tuple[float | None, int]:
    """Of the images that were certified with a preset, in runs whose names begin so.

    And how many images their data set has.
    """
    found: list[float] = []
    of = 0
    for manifest in runs.glob(f"{stem}-*/certify/*/{MANIFEST}"):
        try:
            about = json.loads(manifest.read_text())
            if about["preset"] == preset:
                found += [record["seconds"] for record in VERDICTS.read(manifest.parent)]
                of = about["images"]
        except (OSError, ValueError, KeyError, TypeError, MaarError):
            continue
    return fmean(found) if found else None, of


@cache
def attack_seconds(runs: Path, stem: str, steps: int) -> tuple[float | None, int]:
    """The same of the images whose latent robustness was measured, with so many steps."""
    found: list[float] = []
    of = 0
    for path in runs.glob(f"{stem}-*/evaluate-*.json"):
        try:
            about = json.loads(path.read_text())
            if about["attack"]["steps"] == steps and len(about["layers"]) == 1:
                found.append(about["seconds"] / about["images"])
                of = about["of"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return fmean(found) if found else None, of


def _spent(run: Path) -> float:
    try:
        return sum(float(line.get("seconds", 0.0)) for line in read_metrics(run))
    except (OSError, ValueError, TypeError):
        return 0.0
