"""How far a task is, by the folder of its run, and by what was kept of one that is gone."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from maar.core.errors import MaarError, RunError, UsageError
from maar.experiments.kept import keep, model_hash, recall, settings_of
from maar.experiments.plan import Run, Task
from maar.experiments.series import series
from maar.records.evaluations import read_evaluations
from maar.records.reading import Object, number, table
from maar.records.runs import in_use, is_run, read_run
from maar.records.stores import FORMAT, MANIFEST, VERDICT_LINES, Manifest, read_manifest
from maar.records.verdicts import Record, Tally, is_settled
from maar.training.revision import earlier_revision

# How `maar evaluate` attacks, where the command says nothing else.
ATTACK = {"step_size": 0.01, "restarts": 1, "seed": 0}


@dataclass(frozen=True)
class State:
    """How far a task is."""

    done: int = 0
    whole: int = 0
    """Epochs or images; 0: not known yet."""
    progress: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    """What was measured; empty while it is not done."""
    is_kept: bool = False
    """Whether the result was measured before, on a run that is not here as far as that."""

    @property
    def word(self) -> str:
        """For people."""
        if self.is_kept:
            return "done before"
        return "done" if self.result else "half done" if self.done else "to do"


def state_of(task: Task) -> State:
    """What is known of a task, from the run's folder or else from what was kept."""
    here = in_folder(task)
    before = {} if here.result else recall(task)
    return State(here.done, here.whole, "", before, is_kept=True) if before else here


def left(tasks: Sequence[Task]) -> list[Task]:
    """What has to be done, in order.

    A run whose other tasks are not all known has to be here: it is trained again if it is not.
    """
    unknown = {task for task in tasks if not state_of(task).result}
    needed = {task.run for task in unknown}
    return [
        task
        for task in tasks
        if task in unknown
        or (task.what == "train" and task.run in needed and not in_folder(task).result)
    ]


def keep_all(tasks: Iterable[Task]) -> None:
    """Keep what the folders of the runs know.

    On a full disk they know it still, and another call will keep it.
    """
    for task in tasks:
        if result := in_folder(task).result:
            with contextlib.suppress(OSError):
                keep(task, result)


def in_folder(task: Task) -> State:
    """Read from the run's folder; what cannot be read counts as not there."""
    if not is_run(task.run.folder):
        return State()
    if task.what != "train" and not model_hash(task.run):
        return State()  # a stage of a run that is not finished may be measured, but may change
    look = {"train": _training, "certify": _certification, "evaluate": _evaluation}[task.what]
    try:
        return look(task)
    except (OSError, ValueError, KeyError, TypeError, MaarError):
        return State()  # the command itself will say what is wrong


def require_same(run: Run) -> None:
    """A run of that name must be of that configuration; anything else is a `UsageError`."""
    if not is_run(run.folder):
        return
    from maar.config import config_hash, differing, load

    stored = load(run.folder)
    if config_hash(stored) != config_hash(run.config):
        raise UsageError(
            f"{run.folder} is of another configuration than this experiment's "
            f"({'; '.join(differing(stored, run.config))}): move it away, or give another --runs"
        )
    if before := earlier_revision(run.folder, run.config):
        raise UsageError(f"{before}: move it away, or give another --runs")


def require_data(tasks: Sequence[Task]) -> None:
    """The images of what is still to be done must be there: told now, not hours later."""
    from maar.data import source
    from maar.data.published import Published

    for name in dict.fromkeys(task.run.config.data for task in left(tasks)):
        found = source(name)
        if isinstance(found, Published) and found.faults(hashes=False):
            raise RunError(
                f"data set {name} is not in {found.folder}: {found.remedy}, or leave its rows out "
                "with --setting"
            )


def is_elsewhere(run: Run) -> bool:
    """Whether some other process is training it."""
    return is_run(run.folder) and in_use(run.folder)


def _training(task: Task) -> State:
    found = read_run(task.run.folder)
    if found.problems:
        return State()
    metrics = found.metrics
    if found.result:
        shares = {
            "accuracy": number(table(found.result, "test"), "accuracy"),
            "verified_error": number(table(found.result, "train"), "verified_error"),
            "train_accuracy": number(table(found.result, "train"), "accuracy"),
        }
        known: dict[str, Any] = {key: value for key, value in shares.items() if value is not None}
        seconds = found.result["seconds"]
        known |= {"seconds": seconds, "machine": _trained_on(found.env)}
        known |= {"model": model_hash(task.run), "epochs": series(metrics)}
        return State(len(metrics), len(metrics), "", known)
    if not found.last:
        return State()
    last = found.last
    progress = f"stage {last['stage']}/{last['stages']} epoch {last['epoch']}/{last['epochs']}"
    return State(len(metrics), 0, progress)


def _trained_on(env: Object) -> str:
    """Name the machine of a run's env.json, which need not be this one."""
    if not env:
        return ""
    cpu, threads, device, torch = (env.get(key) for key in ("cpu", "threads", "device", "torch"))
    return f"{cpu}, {threads} thread, {device}, torch {torch}"


def _certification(task: Task) -> State:
    best = State()
    for manifest in sorted((task.run.folder / "certify").glob(f"*/{MANIFEST}")):
        about = read_manifest(manifest.parent)
        if not _is_asked(about, task):
            continue
        images = min(task.images or math.inf, about.of)
        state = _count(manifest.parent, about, int(images), task)
        if (bool(state.result), state.done) > (bool(best.result), best.done):
            best = state
    return best


def _is_asked(about: Manifest, task: Task) -> bool:
    """Whether a store is about these weights, this radius and these verifiers."""
    from maar.core.eps import Eps

    config = task.run.config
    eps = config.eps if task.eps is None else Eps(task.eps)
    return (
        about.format == FORMAT
        and about.split == "test"
        and about.preset == task.profile.preset
        and about.subject["verifiers"] == settings_of(task.profile.preset)
        and about.data == config.data
        and about.weights == task.weights
        and math.isclose(about.eps, float(eps))
        and about.hash == _hash(task.run, task.weights, model_hash(task.run))
    )


@cache
def _hash(run: Run, weights: str, model: str) -> str:
    """What a store says of these weights; `model` is there to ask anew of a run trained anew."""
    from maar.networks import weights_hash
    from maar.training.run import load_network

    return weights_hash(load_network(run.folder, weights)[0])


def _count(store: Path, about: Manifest, images: int, task: Task) -> State:
    """The first images of a store; more of them may be there."""
    timeout = float(task.profile.timeout or 0)
    records: dict[int, Record] = {
        index: record
        for index, record in VERDICT_LINES.read(store).records.items()
        if index < images and is_settled(record, timeout)
    }
    if len(records) < images:
        return State(len(records), images, f"{len(records):,}/{images:,} images")
    tally = Tally.of_all(records.values(), about.of, about.verifiers)
    settled: dict[str, int] = {}
    for (verifier, _), count in tally.settled.items():
        if verifier is not None:
            settled[verifier] = settled.get(verifier, 0) + count
    return State(
        images,
        images,
        "",
        {
            "accuracy_of_these": tally.accuracy,
            "certified": tally.certified,
            "certified_upper": tally.certified_upper,
            "images": images,
            "of": about.of,
            "open": tally.counts["unknown"],
            "longest": max(record.get("limit") or record["seconds"] for record in records.values()),
            "verifiers": list(about.verifiers),
            "settings": about.subject["verifiers"],
            "settled": settled,
            "seconds": round(sum(tally.seconds.values()), 3),
            "machine": about.machine,
            "store": str(store),
            "weights_hash": about.hash,
        },
    )


def _evaluation(task: Task) -> State:
    for found in read_evaluations(task.run.folder):
        if (
            found.weights == task.weights
            and found.split == "test"
            and str(task.layer) in found.latent_robustness
            and found.attack == {"steps": task.profile.latent_steps, **ATTACK}
            and found.bounds == task.profile.latent_bounds
            and math.isclose(found.eps, float(task.run.config.eps))
            and found.images == min(task.images or math.inf, found.of)
            and found.weights_hash == _hash(task.run, task.weights, model_hash(task.run))
        ):
            result = {
                "latent_robustness": found.latent_robustness[str(task.layer)],
                "images": found.images,
                "of": found.of,
                "seconds": found.seconds,
            }
            return State(found.images, found.images, "", result)
    return State()
