"""A run that is stopped anywhere and resumed ends with the same bits."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import maar.core.files
from maar.config import to_toml
from maar.core.errors import RunError, UsageError
from maar.methods.colt import COLT
from maar.methods.maar import MAAR
from maar.records.runs import read_run
from maar.training.display import Display
from maar.training.run import load_network
from maar.training.trainer import train


class Warnings(Display):
    """Keeps what it is told."""

    def __init__(self):
        self.lines = []

    def warn(self, line):
        self.lines.append(line)


def outcome(path):
    """Everything that two equal runs share: final and stage weights, metrics but their times."""
    files = [path / "model.safetensors", *sorted((path / "checkpoints").glob("stage-*"))]
    metrics = read_run(path).metrics
    for line in metrics:
        del line["seconds"], line["images_per_second"]
    return {file.name: file.read_bytes() for file in files}, metrics


def replaced(config, **values):
    """The configuration with settings of its `train` table changed."""
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **values))


class Crash(BaseException):
    """Stands for a kill at a certain moment."""


@pytest.mark.parametrize("minutes", [10.0, 1e-9], ids=["epochs", "steps"])
def test_a_crash_before_any_file_operation_changes_nothing(tiny, tmp_path, monkeypatch, minutes):
    """Every file is put in place by os.replace: stop the run at each of them in turn."""
    epochs, batch = (2, 16) if minutes == 10.0 else (1, 32)
    tiny = replaced(tiny, epochs=epochs, batch=batch, checkpoint_minutes=minutes, average="ema")
    train(tiny, tmp_path / "whole")
    expected = outcome(tmp_path / "whole")
    replace, count, crash_at = os.replace, 0, -1

    def counted(source, target):
        nonlocal count
        count += 1
        if count == crash_at:
            raise Crash
        replace(source, target)

    monkeypatch.setattr(maar.core.files.os, "replace", counted)
    for crash_at in range(1, 100):
        count, path = 0, tmp_path / f"crash-{crash_at}"
        try:
            train(tiny, path)
        except Crash:
            train(tiny, path, resume=True)
        else:
            assert crash_at > 14  # all of them were tried
            break
        assert outcome(path) == expected, f"after a crash at file operation {crash_at}"


@pytest.mark.parametrize("minutes", [10.0, 1e-9], ids=["epochs", "steps"])
@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "sgd"},
        {"clip": 0.1, "weight_decay": 0.1, "average": "ema", "ema_decay": 0.9},
        {"average": "swa", "average_from": 1, "lr_schedule": "halving", "lr_decay_every": 1},
        {"average": "ema", "average_from": 1, "precision": "bf16"},
    ],
    ids=str,
)
def test_a_crash_within_any_epoch_changes_nothing(tiny, tmp_path, monkeypatch, settings, minutes):
    config = replaced(tiny, **settings, checkpoint_minutes=minutes)
    train(config, tmp_path / "whole")
    loss, count, crash_at = type(tiny.method).loss, 0, -1

    def counted(self, batch):
        nonlocal count
        count += 1
        if count == crash_at:
            raise Crash
        return loss(self, batch)

    monkeypatch.setattr(type(tiny.method), "loss", counted)
    for crash_at in (1, 7, 13, 20):
        count, path = 0, tmp_path / f"crash-{crash_at}"
        with pytest.raises(Crash):
            train(config, path)
        train(config, path, resume=True)
        assert outcome(path) == outcome(tmp_path / "whole")
        if minutes == 1e-9 and crash_at == 20:
            log = (path / "log.txt").read_text()
            assert "resumed after epoch 3 and 1 steps" in log  # 3 * 6 + 1 were done


def test_a_crash_loses_nothing_of_an_average_of_batchnorm(tiny, images, tmp_path, monkeypatch):
    """The statistics are averaged too, and convolutions have another memory layout."""
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def net(shape, classes, mean, std):\n"
        "    return nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.BatchNorm2d(4), nn.ReLU(),\n"
        "        nn.Conv2d(4, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(36, classes))\n"
    )
    network = f"{tmp_path / 'mine.py'}:net"
    config = dataclasses.replace(tiny, network=network)
    config = replaced(config, average="ema", optimizer="sgd", checkpoint_minutes=1e-9)
    train(config, tmp_path / "whole")
    for epochs in (1, 3):
        stopped(config, tmp_path / f"{epochs}", monkeypatch, epochs)
        train(config, tmp_path / f"{epochs}", resume=True)
        assert outcome(tmp_path / f"{epochs}") == outcome(tmp_path / "whole")


def command(folder: Path, *words: str) -> list[str]:
    script = Path(__file__).parent / "staged_run.py"
    return [sys.executable, str(script), "train", *words, "--runs", str(folder)]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (MAAR(), {"lr_schedule": "one_cycle", "average": "ema", "ema_decay": 0.9}),
        (
            COLT(mix=2.0),
            {
                "lr_schedule": "halving",
                "lr_decay_from": 2,
                "lr_decay_every": 1,
                "average": "swa",
                "average_from": 3,
                "optimizer": "sgd",
                "checkpoint_every": 2,
            },
        ),
    ],
    ids=["maar-ema", "colt-swa"],
)
def test_kill_9_at_random_moments_changes_nothing(tiny, conv_network, tmp_path, method, settings):
    """Layerwise training in two stages, checkpoints in the middle of epochs, several kills."""
    config = dataclasses.replace(tiny, method=method, network=conv_network)
    config = replaced(config, epochs=5, batch=5, checkpoint_minutes=1e-3, **settings)
    (tmp_path / "c.toml").write_text(to_toml(config))
    whole = command(tmp_path / "whole", str(tmp_path / "c.toml"), "--resume")
    subprocess.run(whole, check=True, capture_output=True)
    seconds = read_run(tmp_path / "whole" / "tiny").seconds

    seed = random.randrange(10**6)
    chance, kills, path = random.Random(seed), 0, tmp_path / "killed" / "tiny"
    for _ in range(3):
        process = subprocess.Popen(
            command(tmp_path / "killed", str(tmp_path / "c.toml"), "--resume"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()  # the headline: training begins
        time.sleep(chance.uniform(0, seconds / 3))
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        process.communicate()
    assert kills >= 1, f"seed {seed}: the run was too short to be killed"
    subprocess.run(
        command(tmp_path / "killed", str(path), "--resume"), check=True, capture_output=True
    )
    assert outcome(path) == outcome(tmp_path / "whole" / "tiny"), f"seed {seed}"


def stopped(config, path, monkeypatch, epochs=3):
    """A run stopped in the epoch after `epochs`."""
    loss, count = type(config.method).loss, 0

    def counted(self, batch):
        nonlocal count
        count += 1
        if count > 6 * epochs:
            raise Crash
        return loss(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(type(config.method), "loss", counted)
        with pytest.raises(Crash):
            train(config, path)


def test_a_checkpoint_cut_in_half_falls_back_to_the_one_before(tiny, tmp_path, monkeypatch):
    train(tiny, tmp_path / "whole")
    for suffix in ("safetensors", "json"):
        path = tmp_path / suffix
        stopped(tiny, path, monkeypatch)
        newest = path / "checkpoints" / f"000003.{suffix}"
        newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
        display = Warnings()
        train(tiny, path, resume=True, display=display)
        assert len(display.lines) == 1
        assert "going back to the checkpoint after epoch 2" in display.lines[0]
        assert f"000003.{suffix} is cut or damaged" in display.lines[0]
        assert outcome(path) == outcome(tmp_path / "whole")


def test_one_flipped_bit_in_a_checkpoint_is_noticed(tiny, tmp_path, monkeypatch):
    stopped(tiny, tmp_path / "run", monkeypatch)
    newest = tmp_path / "run" / "checkpoints" / "000003.safetensors"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    display = Warnings()
    train(tiny, tmp_path / "run", resume=True, display=display)
    assert "going back to the checkpoint after epoch 2" in display.lines[0]


def test_a_changed_position_in_a_checkpoint_is_noticed(tiny, tmp_path, monkeypatch):
    stopped(tiny, tmp_path / "run", monkeypatch)
    newest = tmp_path / "run" / "checkpoints" / "000003.json"
    record = json.loads(newest.read_text())
    newest.write_text(json.dumps({**record, "epochs": 1}))
    display = Warnings()
    train(tiny, tmp_path / "run", resume=True, display=display)
    assert "000003.json was changed since it was written" in display.lines[0]


def test_no_whole_checkpoint_left_is_one_clear_line(tiny, tmp_path, monkeypatch):
    stopped(tiny, tmp_path / "run", monkeypatch)
    for path in (tmp_path / "run" / "checkpoints").glob("0*.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(RunError, match="no older checkpoint to go back to; delete"):
        train(tiny, tmp_path / "run", resume=True)


def test_metrics_cut_short_fall_back_too(tiny, tmp_path, monkeypatch):
    train(tiny, tmp_path / "whole")
    stopped(tiny, tmp_path / "run", monkeypatch)
    metrics = tmp_path / "run" / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    metrics.write_bytes(b"".join(lines[:2]))
    display = Warnings()
    train(tiny, tmp_path / "run", resume=True, display=display)
    assert "metrics.jsonl is shorter than its checkpoint says" in display.lines[0]
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_only_two_checkpoints_are_kept(tiny, tmp_path):
    train(tiny, tmp_path / "run")
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("0*"))
    assert kept == ["000003.json", "000003.safetensors", "000004.json", "000004.safetensors"]


def test_fewer_checkpoints_give_the_same_run(tiny, tmp_path, monkeypatch):
    config = dataclasses.replace(
        tiny, train=dataclasses.replace(tiny.train, epochs=3, checkpoint_every=2)
    )
    train(config, tmp_path / "whole")
    stopped(config, tmp_path / "run", monkeypatch, epochs=5)
    train(config, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_a_run_that_is_there_is_never_overwritten(tiny, tmp_path, monkeypatch):
    stopped(tiny, tmp_path / "run", monkeypatch)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"exists \(interrupted\): continue it with --resume"):
        train(tiny, tmp_path / "run")
    after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert after == before


def test_a_folder_that_is_not_a_run_is_refused(tiny, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("meow")
    for resume in (False, True):
        with pytest.raises(UsageError, match="exists and is not a run"):
            train(tiny, tmp_path / "photos", resume=resume)
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_a_start_that_was_killed_at_once_is_no_obstacle(tiny, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    (tmp_path / "run" / ".config.toml.abc.part").write_text("name = ")
    train(tiny, tmp_path / "run")
    assert not list((tmp_path / "run").glob("*.part"))


def test_another_configuration_is_refused_with_the_keys_that_differ(tiny, tmp_path, monkeypatch):
    stopped(tiny, tmp_path / "run", monkeypatch)
    other = dataclasses.replace(tiny, seed=5, train=dataclasses.replace(tiny.train, lr=0.5))
    with pytest.raises(UsageError, match=r"seed: 0 -> 5; train.lr: 0.01 -> 0.5"):
        train(other, tmp_path / "run", resume=True)


def test_a_run_of_an_earlier_revision_of_its_method_is_refused(tiny, tmp_path, monkeypatch):
    """The same settings train otherwise by now: nothing would say so in the configuration."""
    stopped(tiny, tmp_path / "run", monkeypatch)
    assert json.loads((tmp_path / "run" / "env.json").read_text())["revision"] == 1
    monkeypatch.setattr(type(tiny.method), "revision", 2)
    with pytest.raises(UsageError, match=r"begun with revision 1 .*staged.* another --name"):
        train(tiny, tmp_path / "run", resume=True)


def test_other_images_are_refused(tiny, tmp_path, monkeypatch):
    import numpy as np

    data = tmp_path / "mine.npz"
    with np.load(tiny.data.removeprefix("npz:")) as file:
        arrays = dict(file)
    np.savez(data, **arrays)
    config = dataclasses.replace(tiny, data=f"npz:{data}")
    stopped(config, tmp_path / "run", monkeypatch)
    arrays["x_train"] = arrays["x_train"] // 2
    np.savez(data, **arrays)
    with pytest.raises(RunError, match="begun with other images"):
        train(config, tmp_path / "run", resume=True)


@pytest.fixture
def no_threads(monkeypatch):
    """torch stays at one thread whatever the run says: more only slow a busy machine down."""
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)


@pytest.mark.usefixtures("no_threads")
def test_other_threads_are_allowed_with_a_warning(tiny, tmp_path, monkeypatch):
    stopped(tiny, tmp_path / "run", monkeypatch)
    display = Warnings()
    train(dataclasses.replace(tiny, threads=2), tmp_path / "run", resume=True, display=display)
    assert display.lines == ["threads 1 -> 2: the last bits may differ from an unbroken run"]


@pytest.mark.usefixtures("no_threads")
def test_resume_without_threads_takes_those_of_the_run(tiny, tmp_path, monkeypatch):
    stopped(dataclasses.replace(tiny, threads=2), tmp_path / "run", monkeypatch)
    display = Warnings()
    train(dataclasses.replace(tiny, threads=0), tmp_path / "run", resume=True, display=display)
    assert display.lines == []
    env = json.loads((tmp_path / "run" / "env.json").read_text())
    assert env["resumed"][0]["threads"] == 2


def test_a_finished_run_is_left_alone(tiny, tmp_path):
    result = train(tiny, tmp_path / "run")
    before = (tmp_path / "run" / "env.json").read_bytes()
    assert train(tiny, tmp_path / "run", resume=True) == result
    assert (tmp_path / "run" / "env.json").read_bytes() == before


@pytest.mark.parametrize("harm", ["lost", "cut", "one bit"])
def test_the_weights_of_a_finished_run_are_made_again(tiny, tmp_path, harm):
    result = train(tiny, tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    whole = path.read_bytes()
    if harm == "lost":
        path.unlink()
    else:
        path.write_bytes(whole[:-5] if harm == "cut" else whole[:-5] + b"!" + whole[-4:])
    with pytest.raises(RunError, match=r"maar train .*run --resume"):
        load_network(tmp_path / "run")
    again = train(tiny, tmp_path / "run", resume=True)
    assert path.read_bytes() == whole
    assert {**again, "finished": ""} == {**result, "finished": ""}
    assert read_run(tmp_path / "run").state == "finished"


def test_weights_that_cannot_be_made_again_leave_the_result(tiny, tmp_path, monkeypatch):
    result = train(tiny, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    monkeypatch.setattr("maar.training.trainer.load_data", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(tiny, tmp_path / "run", resume=True)
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    monkeypatch.setattr(type(tiny.method), "revision", 7)
    with pytest.raises(UsageError, match="its lost weights cannot be made again"):
        train(tiny, tmp_path / "run", resume=True)


@pytest.mark.parametrize("name", ["../model", "stage-1", "checkpoints/stage-1-last", ""])
def test_weights_are_named_and_no_paths(tiny, tmp_path, name):
    train(tiny, tmp_path / "run")
    with pytest.raises(UsageError, match="accepted: model, stage-K-last or stage-K-best"):
        load_network(tmp_path / "run", name)


def test_two_processes_cannot_train_into_one_run(tiny, tmp_path):
    from maar.core.files import locked
    from maar.records.stores import LOCK

    with (
        locked(tmp_path / "run" / LOCK),
        pytest.raises(RunError, match="in use by another maar process"),
    ):
        train(tiny, tmp_path / "run")


def test_leftovers_of_a_killed_writer_are_removed(tiny, tmp_path, monkeypatch):
    stopped(tiny, tmp_path / "run", monkeypatch)
    (tmp_path / "run" / "checkpoints" / ".000004.json.abc.part").write_text("half")
    train(tiny, tmp_path / "run", resume=True)
    assert not list((tmp_path / "run").rglob("*.part"))
