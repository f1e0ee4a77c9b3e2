"""Plans, and runs made of files alone: as maar's own commands would leave them."""

import json

import pytest
import torch

from maar.config import config_hash, to_toml
from maar.core.errors import MaarError
from maar.core.files import sha256_file
from maar.core.seals import seal_line, sealed
from maar.data import DATASETS, info
from maar.experiments.kept import choose, settings_of
from maar.experiments.plan import Choice, make_plan, network_of
from maar.experiments.tables import experiment, profiles
from maar.networks import NETWORKS, weights_hash
from maar.records.stores import FORMAT, key_of
from maar.training.run import Run as TrainingRun
from maar.training.run import load_network

IMAGES = 50


@pytest.fixture
def plan_of(tmp_path):
    """plan_of("table1", "cpu", limit=5): the plan with runs below a temporary folder."""

    def make(name, profile="cpu", **choice):
        runs = tmp_path / "runs"
        return choose(make_plan(experiment(name), Choice(profiles()[profile], runs, **choice)))

    return make


def train(run, accuracy=0.9, seconds=60.0):
    """A finished run."""
    run.folder.mkdir(parents=True, exist_ok=True)
    (run.folder / "config.toml").write_text(to_toml(run.config))
    lines = [
        {
            "stage": stage,
            "stages": 2,
            "epoch": epoch,
            "epochs": 2,
            "seconds": seconds / 4,
            "train": {"accuracy": 0.8, "verified_error": 0.5 / stage / epoch},
            "valid": {"accuracy": 0.7 + 0.123456 / stage / epoch},
        }
        for stage in (1, 2)
        for epoch in (1, 2)
    ]
    (run.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _save_weights(run, accuracy)
    result = {
        "train": {"accuracy": 0.8, "verified_error": 0.25},
        "test": {"accuracy": accuracy},
        "config_hash": config_hash(run.config),
        "model_sha256": _hash(run.folder / "model.safetensors", accuracy),
        "seconds": seconds,
    }
    (run.folder / "result.json").write_text(json.dumps(result))


def _hash(weights, accuracy):
    return sha256_file(weights) if weights.exists() else f"of weights with accuracy {accuracy}"


def _save_weights(run, seed):
    if run.config.network not in NETWORKS or run.config.data not in DATASETS:
        return  # somebody's own, which need not be there
    net = network_of(run.config)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(seed)
    for name in ("model", "stage-1-last", "stage-2-last", "stage-3-last"):
        TrainingRun(run.folder, run.config, resumed=False).save_weights(
            name, net, info(run.config.data)
        )


MORE = {
    "verified": {"lb": 0.5},
    "misclassified": {"margin": -1.0, "target": 1},
    "falsified": {"margin": -1.0, "target": 1},
    "unknown": {"open": [1], "limit": 120.0},
    "error": {"open": [1], "limit": 120.0, "error": "failed"},
}


def certify(task, verdicts, **changes):
    """A store with these verdicts; `changes` to its manifest."""
    config, eps = task.run.config, float(task.eps or task.run.config.eps)
    try:
        weights = weights_hash(load_network(task.run.folder, task.weights)[0])
    except MaarError:  # nobody has trained it
        weights = "w"
    subject = {
        "weights": weights,
        "data": "d",
        "split": "test",
        "eps": eps,
        "verifiers": settings_of(task.profile.preset),
    }
    about = {
        "key": key_of(subject),
        "format": FORMAT,
        "subject": subject,
        "network": task.run.name,
        "data": config.data,
        "split": "test",
        "images": IMAGES,
        "verifiers": ["misclassified", "crown"],
        "preset": task.profile.preset,
        "source": {"weights": task.weights},
        "asked": f"0-{IMAGES - 1}",
        **changes,
    }
    store = task.run.folder / "certify" / f"eps-{eps:.4g}-{len(verdicts)}-{task.weights}"
    store.mkdir(parents=True, exist_ok=True)
    (store / "manifest.json").write_text(json.dumps(sealed(about)))
    lines, seal = b"", about["key"]
    for index, verdict in enumerate(verdicts):
        by = {"misclassified": "misclassified", "unknown": None}.get(verdict, "crown")
        times = {"misclassified": 0.5} | ({} if by == "misclassified" else {"crown": 1.5})
        line = {"index": index, "label": 0, "verdict": verdict, "by": by, "times": times}
        line |= {"seconds": sum(times.values()), **MORE[verdict]}
        text, seal = seal_line(seal, line)
        lines += text + b"\n"
    (store / "verdicts.jsonl").write_bytes(lines)
    return store


@pytest.fixture
def files():
    """The two makers of files."""

    class Files:
        pass

    Files.train, Files.certify = staticmethod(train), staticmethod(certify)
    return Files
