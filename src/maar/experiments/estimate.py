"""How long a task may take: as long as the same took on a run of the same recipe."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import fmean

from maar.core.errors import MaarError
from maar.experiments.measured import State
from maar.experiments.plan import Task, network_of
from maar.experiments.shipped import certification, training
from maar.records.evaluations import read_evaluations
from maar.records.reading import count, number
from maar.records.runs import read_run
from maar.records.stores import MANIFEST, VERDICT_LINES

# Of MNIST and of CIFAR-10, which the package's results are of.
TEST_IMAGES = 10_000


def estimate(task: Task, state: State) -> float | None:
    """Seconds of one core that are left; None where nothing similar was measured."""
    if state.result:
        return 0.0
    stem = task.run.name.rpartition("-seed")[0]
    profile = f"-{task.profile.name}"
    # Flags and seeds hardly change the time of an epoch or an image: any run of a recipe will do.
    similar = stem.partition(profile)[0] + profile
    if task.what == "train":
        here = _training(task, epoch_seconds(task.run.folder.parent, similar))
        return here if here is not None else _shipped_training(task)
    if task.what == "certify":
        each, of = image_seconds(task.run.folder.parent, similar, task.profile.preset)
    else:
        each, of = attack_seconds(task.run.folder.parent, similar, task.profile.latent_steps)
    if each is None and task.what == "certify":
        shipped = certification(task.run.recipe, task.profile.preset)
        each, of = (shipped.seconds, TEST_IMAGES) if shipped else (None, of)
    images = state.whole or min(task.images or of, of)
    return None if each is None else each * (images - state.done)


def _shipped_training(task: Task) -> float | None:
    """Return what the package's own results say, less the part that is done."""
    shipped = training(task.run.recipe)
    if shipped is None:
        return None
    done, config = len(_epochs(task.run.folder)), task.run.config
    try:
        stages = config.method.stages(network_of(config), config.eps, config.train.epochs)
    except MaarError:
        return shipped.seconds
    epochs = sum(stage.epochs for stage in stages)
    return shipped.seconds * max(0, epochs - done) / epochs


def _training(task: Task, each: Mapping[int, float]) -> float | None:
    if not each:
        return None
    config = task.run.config
    try:
        stages = config.method.stages(network_of(config), config.eps, config.train.epochs)
    except MaarError:
        return None  # a network or data of the user's own that is not there
    done = Counter(stage for stage, _ in _epochs(task.run.folder))
    left = {number: stage.epochs - done[number] for number, stage in enumerate(stages, 1)}
    if any(epochs > 0 and number not in each for number, epochs in left.items()):
        return None
    return sum(max(0, epochs) * each.get(number, 0.0) for number, epochs in left.items())


@cache
def epoch_seconds(runs: Path, stem: str) -> dict[int, float]:
    """Of an epoch in each stage, in the runs whose names begin so."""
    found: dict[int, list[float]] = {}
    for path in runs.glob(f"{stem}-*"):
        for stage, seconds in _epochs(path):
            found.setdefault(stage, []).append(seconds)
    return {stage: fmean(seconds) for stage, seconds in found.items()}


@cache
def image_seconds(runs: Path, stem: str, preset: str) -> tuple[float | None, int]:
    """Of the images that were certified with a preset, in runs whose names begin so.

    And how many images their data set has.
    """
    found: list[float] = []
    of = 0
    for manifest in runs.glob(f"{stem}-*/certify/*/{MANIFEST}"):
        with contextlib.suppress(OSError, MaarError):
            stored = VERDICT_LINES.read(manifest.parent)
            if stored.manifest.preset == preset:
                found += [record["seconds"] for record in stored.lines]
                of = stored.manifest.of
    return fmean(found) if found else None, of


@cache
def attack_seconds(runs: Path, stem: str, steps: int) -> tuple[float | None, int]:
    """The same of the images whose latent robustness was measured, with so many steps."""
    found: list[float] = []
    of = 0
    for run in runs.glob(f"{stem}-*"):
        for about in read_evaluations(run):
            if about.attack.get("steps") == steps and len(about.layers) == 1 and about.images:
                found.append(about.seconds / about.images)
                of = about.of
    return fmean(found) if found else None, of


def _epochs(run: Path) -> list[tuple[int, float]]:
    """The stage of each epoch that is done, and how long it took."""
    lines = read_run(run).metrics
    return [(count(line, "stage"), number(line, "seconds") or 0.0) for line in lines]
