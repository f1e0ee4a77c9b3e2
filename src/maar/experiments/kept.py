"""What was measured on a run, in a file that outlives the run's folder.

Weights and verdicts are megabytes that stay on the machine that made them; what they said is a
few lines, `OUT/runs/RUN.json`. An experiment that is continued elsewhere, or after the folder is
gone, takes from there what was asked before, and does only the rest.

A file speaks of one configuration and of one training. The same name with another configuration (a
recipe has changed), or trained again to other weights (on another processor, say), is not an
answer: nothing in a table is put together from two networks. Nothing is kept of a user's own
network or images, of which a configuration has but the name.

Whoever finds that the numbers of a file need a word of warning (the training has changed since,
say) writes it into the file, under "caveat": it is shown with them until the run is trained anew.
"""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

from maar.certify.presets import PRESETS
from maar.config import config_hash
from maar.config.dump import to_table
from maar.config.load import build
from maar.data import DATASETS
from maar.eps import Eps
from maar.errors import MaarError
from maar.experiments.plan import Run, Task
from maar.files import locked, write_text
from maar.networks import NETWORKS

FORMAT = 1
LOCK = ".lock"
Answer = dict[str, Any]


def recall(task: Task) -> Answer:
    """What a task said when it was done before; empty if nobody knows."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        for entry in _entries(task.run):
            result = entry["result"]
            if entry["asked"] == _asked(task) and _is_enough(task, result):
                return result
    return {}


def caveat(run: Run) -> str:
    """What somebody wrote into the file, to be said beside its numbers."""
    return _about(run).get("caveat", "")


def keep(task: Task, result: Answer) -> None:
    """Note what a task on a finished run said, in place of what it said before."""
    run = task.run
    if run.kept is None or not _is_known_by_name(run) or not model_hash(run):
        return
    asked = _asked(task)
    with locked(run.kept.with_name(LOCK)):
        if recall(task) == result:
            return
        same = (asked, result.get("images"))
        others = [
            entry
            for entry in _entries(run)
            if (entry["asked"], entry["result"].get("images")) != same
        ]
        about = {
            "format": FORMAT,
            "run": run.name,
            "config_hash": config_hash(run.config),
            "config": to_table(run.config),
            **({"caveat": said} if (said := caveat(run)) else {}),
            "tasks": [*others, {"asked": asked, "command": task.command, "result": result}],
        }
        write_text(run.kept, json.dumps(about, indent=1) + "\n")


def model_hash(run: Run) -> str:
    """Of the weights at the end of the run, if it is here and has come to its end."""
    try:
        return str(json.loads((run.folder / "result.json").read_text())["model_sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _is_known_by_name(run: Run) -> bool:
    return run.config.network in NETWORKS and run.config.data in DATASETS


def _asked(task: Task) -> Answer:
    """All that the answer depends on, besides the run and the number of images."""
    asked: Answer = {"what": task.what}
    profile = task.profile
    if task.what == "certify":
        asked |= {"preset": profile.preset, "timeout": profile.timeout}
        asked["verifiers"] = {name: dict(own) for name, own in PRESETS[profile.preset].items()}
    if task.what == "evaluate":
        asked |= {"layer": task.layer, "steps": profile.latent_steps}
    if task.what != "train":
        eps = task.run.config.eps if task.eps is None else Eps(task.eps)
        asked |= {"weights": task.weights, "eps": float(eps)}
    return asked


def _is_enough(task: Task, result: Answer) -> bool:
    if task.what == "train":
        return True
    return result["images"] == min(task.images or math.inf, result["of"])


def _entries(run: Run) -> list[Answer]:
    return _about(run).get("tasks", [])


def _about(run: Run) -> Answer:
    """The file on this run in this configuration; what cannot be read counts as not there."""
    if run.kept is None or not _is_known_by_name(run):
        return {}
    try:
        about = json.loads(run.kept.read_text())
        if about["format"] != FORMAT:
            return {}
        # Built anew rather than compared by hash: a setting that came later has its default.
        if config_hash(build(about["config"])) != config_hash(run.config):
            return {}
        entries = [e for e in about["tasks"] if e["asked"]["what"] and e["result"] and e["command"]]
        model = model_hash(run)
        if model and all(entry["result"].get("model") != model for entry in entries):
            return {}
        return {"tasks": entries, "caveat": str(about.get("caveat", ""))}
    except (OSError, ValueError, KeyError, TypeError, MaarError):
        return {}
