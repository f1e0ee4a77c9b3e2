"""What was measured on a run, in a file that outlives the run's folder.

Weights and verdicts are megabytes that stay on the machine that made them; what they said, and
what each epoch measured, is a few lines, `OUT/runs/RUN.json`. An experiment that is continued
elsewhere, or after the folder is gone, takes from there what was asked before, and does only the
rest.

A file speaks of one configuration, and of each training of it apart: nothing in a table is put
together from two networks. While the run is here, only what was said of its weights is an answer;
when it is gone, the training that answers most of what the experiment asks. The same name with
another configuration (a recipe has changed), a method that was corrected since (`Method.revision`)
or verdicts that are not trusted any more (`store.FORMAT`) are no answer. Nothing is kept of a
user's own network or images, of which a configuration has but the name.

Whoever finds that the numbers of a training need a word of warning writes it into the file, beside
its tasks, under "caveat": it is shown with them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from maar.certification.presets import PRESETS, cascade
from maar.config import config_hash
from maar.config.dump import to_table
from maar.config.load import build
from maar.core.eps import Eps
from maar.core.errors import MaarError
from maar.core.files import json_text, locked, write_text
from maar.core.unpacking import read_json
from maar.data import DATASETS
from maar.experiments.plan import LATENT_BOUNDS, Plan, Run, Task
from maar.networks import NETWORKS
from maar.records.stores import FORMAT as STORE_FORMAT

FORMAT = 2
LOCK = ".lock"
Answer = dict[str, Any]


def recall(task: Task) -> Answer:
    """What a task said when it was done before; empty if nobody knows."""
    return _answer(task, _training(task.run))


def choose(plan: Plan) -> Plan:
    """Ask one training of each run: all that an experiment says of a run is of one network."""
    asked = {run: _asked_run(run, plan.tasks) for point in plan.points for run in point.runs}
    points = [
        replace(
            point,
            runs=tuple(asked[run] for run in point.runs),
            tasks=tuple(
                tuple(replace(task, run=asked[task.run]) for task in tasks) for tasks in point.tasks
            ),
        )
        for point in plan.points
    ]
    return replace(plan, points=points)


def _asked_run(run: Run, tasks: Sequence[Task]) -> Run:
    """With that of its trainings which answers most of its tasks; of two the later."""
    mine = [task for task in tasks if task.run == run]

    def answers(training: Answer) -> tuple[int, int]:
        return sum(bool(_answer(task, training)) for task in mine), _known(training)

    best = max(reversed(_trainings(run)), key=answers, default={})
    return replace(run, training=best.get("model", ""))


def _answer(task: Task, training: Answer) -> Answer:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        for entry in training.get("tasks", []):
            result = entry["result"]
            if entry["asked"] == _asked(task) and _is_enough(task, result):
                return result
    return {}


def caveat(run: Run) -> str:
    """What somebody wrote into the file, to be said beside its numbers."""
    return str(_training(run).get("caveat", ""))


def keep(task: Task, result: Answer) -> None:
    """Note what a task on a finished run said, in place of what it said before."""
    run = task.run
    model = model_hash(run)
    if run.kept is None or not _is_known_by_name(run) or not model:
        return
    with locked(run.kept.with_name(LOCK)):
        if recall(task) == result:
            return
        mine = _training(run) or {"model": model, "revision": run.config.method.revision}
        entry = {"asked": _asked(task), "command": task.command, "result": result}
        tasks = [other for other in mine.get("tasks", []) if _question(other) != _question(entry)]
        mine = {**mine, "tasks": [*tasks, entry]}
        others = [each for each in _trainings(run) if each["model"] != model]
        about = {
            "format": FORMAT,
            "run": run.name,
            "config_hash": config_hash(run.config),
            "config": to_table(run.config),
            "trainings": [*(each for each in others if not _says_all(mine, each)), mine],
        }
        write_text(run.kept, json_text(about))


def model_hash(run: Run) -> str:
    """Of the weights at the end of the run, if it is here and has come to its end."""
    try:
        return str(read_json(run.folder / "result.json")["model_sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _is_known_by_name(run: Run) -> bool:
    return run.config.network in NETWORKS and run.config.data in DATASETS


def _asked(task: Task) -> Answer:
    """All that the answer depends on, besides the run and the number of images."""
    asked: Answer = {"what": task.what}
    profile = task.profile
    if task.what == "certify":
        asked |= {"preset": profile.preset, "timeout": profile.timeout, "format": STORE_FORMAT}
        asked["verifiers"] = {name: dict(own) for name, own in PRESETS[profile.preset].items()}
    if task.what == "evaluate":
        asked |= {"layer": task.layer, "steps": profile.latent_steps}
        if profile.latent_bounds != LATENT_BOUNDS:  # (files of earlier versions have no bounds)
            asked["bounds"] = profile.latent_bounds
    if task.what != "train":
        eps = task.run.config.eps if task.eps is None else Eps(task.eps)
        asked |= {"weights": task.weights, "eps": float(eps)}
    return asked


def _is_enough(task: Task, result: Answer) -> bool:
    if task.what == "train":
        # (files of earlier versions have the numbers of the end alone)
        return bool(result.get("epochs")) or not task.is_drawn
    if task.what == "certify" and result.get("settings", settings_of(task.profile.preset)) != (
        settings_of(task.profile.preset)
    ):
        return False  # a verifier has other defaults by now
    return result["images"] == min(task.images or math.inf, result["of"])


def _question(entry: Answer) -> tuple[Answer, int | None]:
    return entry["asked"], entry["result"].get("images")


def _says_all(one: Answer, other: Answer) -> bool:
    """Whether a training answers all that another does, on as many images."""

    def images(entry: Answer) -> int:
        return entry["result"].get("images", 0)

    return all(
        any(
            mine["asked"] == entry["asked"] and images(mine) >= images(entry)
            for mine in one["tasks"]
        )
        for entry in other["tasks"]
    )


def _training(run: Run) -> Answer:
    """Of the run that is here; of a run that is gone, that which the experiment has chosen."""
    found, model = _trainings(run), model_hash(run) or run.training
    if model:
        return next((each for each in found if each["model"] == model), {})
    return max(reversed(found), key=_known, default={})  # (of two the later)


def _known(training: Answer) -> int:
    return sum(entry["result"].get("images", 0) for entry in training["tasks"])


def _trainings(run: Run) -> list[Answer]:
    """Those of this configuration by today's method; what cannot be read counts as not there."""
    if run.kept is None or not _is_known_by_name(run):
        return []
    try:
        about = read_json(run.kept)
        if about["format"] != FORMAT:
            return []
        # Built anew rather than compared by hash: a setting that came later has its default.
        if config_hash(build(about["config"])) != config_hash(run.config):
            return []
        return [each for part in about["trainings"] if (each := _trusted(part, run))]
    except (OSError, ValueError, KeyError, TypeError, MaarError):
        return []


def _trusted(training: Any, run: Run) -> Answer:
    """What may be taken from a part of the file; empty if that is nothing."""
    try:
        if not training["model"] or training["revision"] != run.config.method.revision:
            return {}
        tasks = [
            entry
            for entry in training["tasks"]
            if entry["command"]
            and isinstance(entry["result"], dict)
            # (verdicts of a verifier that turned out to have been wrong)
            and (entry["asked"]["what"] != "certify" or entry["asked"]["format"] == STORE_FORMAT)
        ]
        return {**training, "tasks": tasks}
    except (KeyError, TypeError):
        return {}


@cache
def settings_of(preset: str) -> list[str]:
    """The verifiers of a preset as a store names them: by all of their settings."""
    return [repr(verifier) for verifier in cascade(preset).verifiers]
