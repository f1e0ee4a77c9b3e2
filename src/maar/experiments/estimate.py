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
        each = image_seconds(task.run.folder.parent, similar, task.profile.preset)
        images = state.whole or task.images
        return None if each is None or images is None else each * (images - state.done)
    return None


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
def image_seconds(runs: Path, stem: str, preset: str) -> float | None:
    """Of the images that were certified with a preset, in runs whose names begin so."""
    found: list[float] = []
    for manifest in runs.glob(f"{stem}-*/certify/*/{MANIFEST}"):
        try:
            if json.loads(manifest.read_text())["preset"] == preset:
                found += [record["seconds"] for record in VERDICTS.read(manifest.parent)]
        except (OSError, ValueError, KeyError, TypeError, MaarError):
            continue
    return fmean(found) if found else None


def _spent(run: Path) -> float:
    try:
        return sum(float(line.get("seconds", 0.0)) for line in read_metrics(run))
    except (OSError, ValueError, TypeError):
        return 0.0
