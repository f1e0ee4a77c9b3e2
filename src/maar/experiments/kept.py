"""What was measured on a run, in a file that outlives the run's folder.

Weights and verdicts are megabytes that stay on the machine that made them; what they said is a
few lines, `OUT/runs/RUN.json`. An experiment that is continued elsewhere, or after the folder is
gone, takes from there what was asked before, and does only the rest.

A file speaks of one configuration and of one training. The same name with another configuration (a
recipe has changed), or trained again to other weights (on another processor, say), is not an
answer: nothing in a table is put together from two networks.
"""

from __future__ import annotations

import json
import math
from typing import Any

from maar.config import config_hash
from maar.config.dump import to_table
from maar.config.load import build
from maar.eps import Eps
from maar.errors import MaarError
from maar.experiments.plan import Run, Task
from maar.files import sha256_file, write_text

FORMAT = 1
Answer = dict[str, Any]


def recall(task: Task) -> Answer:
    """What a task said when it was done before; empty if nobody knows."""
    for entry in _entries(task.run):
        result = entry["result"]
        if entry["asked"] == _asked(task) and _is_enough(task, result):
            return result
    return {}


def keep(task: Task, result: Answer) -> None:
    """Note what a task said, in place of what it said before."""
    if task.run.kept is None or recall(task) == result:
        return
    asked = _asked(task)
    same = (asked, result.get("images"))
    others = [
        entry
        for entry in _entries(task.run)
        if (entry["asked"], entry["result"].get("images")) != same
    ]
    entry = {"asked": asked, "command": task.command, "result": result}
    about = {
        "format": FORMAT,
        "run": task.run.name,
        "config_hash": config_hash(task.run.config),
        "config": to_table(task.run.config),
        "tasks": [*others, entry],
    }
    write_text(task.run.kept, json.dumps(about, indent=1) + "\n")


def model_hash(run: Run) -> str:
    """Of the weights at the end of the run, if it is here and has come to its end."""
    if not (run.folder / "result.json").is_file():
        return ""
    return sha256_file(run.folder / "model.safetensors")


def _asked(task: Task) -> Answer:
    """All that the answer depends on, besides the run and the number of images."""
    asked: Answer = {"what": task.what}
    if task.what == "certify":
        asked |= {"preset": task.profile.preset, "timeout": task.profile.timeout}
    if task.what == "evaluate":
        asked |= {"layer": task.layer, "steps": task.profile.latent_steps}
    if task.what != "train":
        eps = task.run.config.eps if task.eps is None else Eps(task.eps)
        asked |= {"weights": task.weights, "eps": float(eps)}
    return asked


def _is_enough(task: Task, result: Answer) -> bool:
    if task.what == "train":
        return True
    return result["images"] == min(task.images or math.inf, result["of"])


def _entries(run: Run) -> list[Answer]:
    """Of this run in this configuration; what cannot be read counts as not there."""
    if run.kept is None:
        return []
    try:
        about = json.loads(run.kept.read_text())
        if about["format"] != FORMAT:
            return []
        # Built anew rather than compared by hash: a setting that came later has its default.
        if config_hash(build(about["config"])) != config_hash(run.config):
            return []
        entries = [e for e in about["tasks"] if e["asked"]["what"] and e["result"] and e["command"]]
        model = model_hash(run)
        if model and all(entry["result"].get("model") != model for entry in entries):
            return []
        return entries
    except (OSError, ValueError, KeyError, TypeError, MaarError):
        return []
