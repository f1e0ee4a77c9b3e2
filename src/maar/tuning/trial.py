"""One trial in a process of its own: train, then certify validation images.

FOLDER/trial.json   what is asked: the certification's images, preset and time limit
FOLDER/trial.toml   the configuration
FOLDER/run          the training
FOLDER/score.json   what came out; it exists when the trial is finished
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maar.certification.run import make_plan
from maar.certification.run import run as certify
from maar.config import load, to_toml
from maar.config.config import Config
from maar.core.errors import RunError
from maar.core.files import write_text
from maar.core.unpacking import read_json
from maar.data import DataSet
from maar.data import load as load_data
from maar.records.runs import read_run
from maar.records.verdicts import wilson
from maar.training.run import load_network
from maar.training.trainer import train


@dataclass(frozen=True)
class Asked:
    """How a trained network is scored."""

    images: int
    """The first so many validation images are certified."""
    preset: str
    timeout: float


def lay_out(folder: Path, config: Config, asked: Asked) -> None:
    """Write down what the process needs."""
    write_text(folder / "trial.toml", to_toml(config))
    write_text(folder / "trial.json", json.dumps(dataclasses.asdict(asked)) + "\n")


def data_of(config: Config) -> DataSet:
    """Load the images that a trial may see: those of the test are left out."""
    return load_data(config.data, valid=config.valid).without_test()


def carry_out(folder: Path) -> None:
    """Train and certify; continue where an earlier process was stopped."""
    config = load(folder / "trial.toml")
    asked = Asked(**read_json(folder / "trial.json"))
    data = data_of(config)
    result = train(config, folder / "run", resume=True, data=data)
    net, _ = load_network(folder / "run")
    plan = make_plan(
        net,
        data,
        config.eps,
        preset=asked.preset,
        timeout=asked.timeout,
        limit=asked.images,
        name=config.name,
        split="valid",
    )
    tally = certify(plan, folder / "certify", workers=1)
    if tally.counts["error"]:
        raise RunError(f"{tally.counts['error']} images failed, such as {tally.last_error}")
    verified = tally.counts["verified"]
    score = {
        "accuracy": result["valid"]["accuracy"],
        "accuracy_images": data.size("valid"),
        "certified": tally.certified,
        "certified_images": tally.images,
        "certified_interval95": wilson(verified, tally.images),
        "certified_upper": tally.certified_upper,
        "valid": result["valid"],
        "seconds": result["seconds"] + sum(tally.seconds.values()),
    }
    write_text(folder / "score.json", json.dumps(score, indent=1) + "\n")
    for path in (folder / "run" / "checkpoints").glob("[0-9]*"):
        path.unlink()  # positions to continue from, three times as large as the weights


def score_of(folder: Path) -> dict[str, Any]:
    """Read what a finished trial scored; empty if it is not finished."""
    try:
        return read_json(folder / "score.json")
    except (OSError, ValueError):
        return {}


def curve(folder: Path) -> list[tuple[float, float]]:
    """Return (part of the training done, score on the validation images) of each epoch so far."""
    if not (folder / "trial.toml").is_file():
        return []
    config, lines = load(folder / "trial.toml"), read_run(folder / "run").metrics
    if not lines:
        return []
    name = config.method.score
    epochs = _epochs(config)
    return [
        (number / epochs, line["valid"][name])
        for number, line in enumerate(lines, start=1)
        if name in line.get("valid", {})
    ]


def _epochs(config: Config) -> int:
    from maar.data import info
    from maar.networks import make

    about = info(config.data)
    net = make(
        config.network,
        about.shape,
        about.n_classes,
        mean=list(about.mean),
        std=list(about.std),
    )
    return sum(s.epochs for s in config.method.stages(net, config.eps, config.train.epochs))
