"""Several processes do what one does with the whole batch; one that is lost ends the others."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from maar.attacks.pgd import PGD
from maar.config import to_toml
from maar.core.errors import UsageError
from maar.methods.colt import COLT
from maar.methods.maar import MAAR
from maar.methods.pgd import PGDTraining
from maar.methods.standard import Standard
from maar.records.runs import read_run
from maar.training import parallel
from maar.training.checkpoint import load_weights
from maar.training.parallel import Place, place
from maar.training.trainer import train

PATIENCE = 300  # seconds: the machine may be busy


def replaced(config, **values):
    """The configuration with settings of its `train` table changed."""
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **values))


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No process of ours was started by torchrun or srun."""
    for name in list(os.environ):
        if name.startswith(("TORCHELASTIC_", "SLURM_")) or name in ("LOCAL_RANK", "MASTER_PORT"):
            monkeypatch.delenv(name)


def start(folder: Path, config, *words: str) -> subprocess.Popen:
    """`maar train` in two processes, as a session of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "c.toml").write_text(to_toml(config))
    script = Path(__file__).parent / "staged_run.py"
    words = ("train", str(folder / "c.toml"), "--runs", str(folder), "--devices", "2", *words)
    return subprocess.Popen(
        [sys.executable, str(script), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert err == ""
    return out


ATTACK = PGD(steps=3, random_start=False)  # each process would draw its own starts


@pytest.mark.parametrize(
    "method",
    [Standard(), PGDTraining(attack=ATTACK), MAAR(base=COLT(attack=ATTACK, mix=6.0))],
    ids=["standard", "pgd", "maar"],
)
def test_two_processes_have_the_loss_curve_of_one_with_the_whole_batch(tiny, tmp_path, method):
    """An epoch is one step here, so that metrics.jsonl has the loss of each of a dozen steps.

    MAAR has two stages of them: in neither are there bounds that have to be estimated by chance.
    """
    config = dataclasses.replace(tiny, method=method)
    config = replaced(config, epochs=12, batch=100, average="ema")
    two = start(tmp_path / "two", config)
    train(config, tmp_path / "one")
    finish(two)
    one = read_run(tmp_path / "one").metrics
    assert [line["stage"] for line in one] == [1] * 12 + [2] * (len(one) - 12)
    assert len(one) == (24 if method.name == "maar" else 12)
    for line, other in zip(one, read_run(tmp_path / "two" / "tiny").metrics, strict=True):
        assert other["loss"] == pytest.approx(line["loss"], rel=1e-4)
        assert other["train"] == pytest.approx(line["train"], abs=0.011)
        assert other["valid"] == pytest.approx(line["valid"], abs=0.051)
    assert one[-1]["loss"]["total"] < 0.9 * one[0]["loss"]["total"]
    weights, _ = load_weights(tmp_path / "one" / "model.safetensors")
    others, _ = load_weights(tmp_path / "two" / "tiny" / "model.safetensors")
    for key in weights:
        assert torch.allclose(weights[key], others[key], atol=1e-4)


def test_torchrun_starts_the_processes(tiny, tmp_path):
    """The real one: its agent, and the two processes that it starts."""
    method = MAAR(base=COLT(attack=ATTACK))
    config = replaced(dataclasses.replace(tiny, method=method), epochs=1, batch=50)
    config = replaced(config, latent_images=5, latent_steps=2)
    (tmp_path / "c.toml").write_text(to_toml(config))
    agent = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    words = ["maar", "train", str(tmp_path / "c.toml"), "--runs", str(tmp_path)]
    subprocess.run([sys.executable, *agent, *words], check=True, timeout=PATIENCE)
    assert json.loads((tmp_path / "tiny" / "env.json").read_text())["devices"] == 2
    train(config, tmp_path / "one")
    one, two = read_run(tmp_path / "one").metrics, read_run(tmp_path / "tiny").metrics
    assert len(one) == 2
    for line, other in zip(one, two, strict=True):
        assert other["loss"] == pytest.approx(line["loss"], rel=1e-3)
        assert set(other["valid"]) == set(line["valid"]) > {"latent_robustness_1"}


def outcome(path: Path):
    """What two equal runs share."""
    metrics = read_run(path).metrics
    for line in metrics:
        del line["seconds"], line["images_per_second"]
    return (path / "model.safetensors").read_bytes(), metrics


def wait_for(process: subprocess.Popen, path: Path, lines: int) -> None:
    """Until so many epochs are done."""
    while len(read_run(path).metrics) < lines:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def test_a_run_of_two_processes_that_lose_each_other_resumes_exactly(tiny, tmp_path):
    """`staged` also holds the processes to equal weights, and BatchNorm's statistics are hard."""
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def net(shape, classes, mean, std):\n"
        "    return nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.ReLU(), nn.BatchNorm2d(4),\n"
        "        nn.ReLU(), nn.Flatten(), nn.Linear(64, classes))\n"
    )
    config = dataclasses.replace(tiny, network=f"{tmp_path / 'mine.py'}:net")
    config = replaced(config, epochs=6, batch=10, average="ema", checkpoint_minutes=1e-3)
    whole = start(tmp_path / "whole", config)
    path = tmp_path / "killed" / "tiny"

    process = start(tmp_path / "killed", config)
    wait_for(process, path, 2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    others = [int(c) for c in children if b"staged_run" in Path(f"/proc/{c}/cmdline").read_bytes()]
    assert len(others) == 1
    os.kill(others[0], signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in (1, -signal.SIGKILL)
    if process.returncode == 1:
        assert err.count("\n") == 1
        assert "another process of this run has ended; --resume continues it" in err

    process = start(tmp_path / "killed", config, "--resume")
    wait_for(process, path, 4)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)

    process = start(tmp_path / "killed", config, "--resume")
    wait_for(process, path, 6)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "maar: interrupted; continue with: maar train" in err

    finish(whole)
    finish(start(tmp_path / "killed", config, "--resume"))
    assert outcome(path) == outcome(tmp_path / "whole" / "tiny")


def test_a_mistake_is_told_once(tiny, tmp_path):
    process = start(tmp_path, replaced(tiny, batch=15))
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert err == "maar: error: batch = 15 cannot be shared evenly by 2 processes\n"
    assert not (tmp_path / "tiny").exists()


def test_one_process_needs_no_fabric_and_two_say_what_is_missing(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    train(tiny, tmp_path / "one")
    with pytest.raises(UsageError, match=r"devices = 2 needs .* pip install 'maar\[parallel\]'"):
        train(dataclasses.replace(tiny, devices=2), tmp_path / "two")


@pytest.mark.parametrize(("rank", "follows"), [("0", 0), ("1", 1)])
def test_the_other_processes_end_with_the_first(tiny, monkeypatch, rank, follows):
    followed = []
    monkeypatch.setenv("MASTER_PORT", "1234")
    monkeypatch.setenv("LOCAL_RANK", rank)
    monkeypatch.setattr(parallel, "follow_parent", lambda: followed.append("first"))
    monkeypatch.setattr(parallel, "_launch", lambda there, device: pytest.exit("launched"))
    config = dataclasses.replace(tiny, devices=2, device="cpu")
    with pytest.raises(pytest.exit.Exception), parallel.connect(config):
        pass
    assert len(followed) == follows


def test_devices_that_cannot_be(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for device, devices, message in (
        ("cuda", 3, "devices = 3, but this machine has 2 GPUs"),
        ("cuda:1", 2, "device = 'cuda:1' is one device, but 2 are asked for"),
    ):
        config = dataclasses.replace(tiny, device=device, devices=devices)
        with pytest.raises(UsageError, match=message):
            train(config, tmp_path / "run")


def test_who_started_this_process(tiny, monkeypatch):
    assert place(tiny) == Place("us", 1, 1, 0)
    two = dataclasses.replace(tiny, devices=2)
    assert place(two) == Place("us", 2, 1, 0)
    with monkeypatch.context() as patch:
        patch.setenv("LOCAL_RANK", "1")
        assert place(two).rank == 0  # somebody else's variable
        patch.setenv("MASTER_PORT", "1234")
        assert place(two).rank == 1
        assert place(tiny).rank == 0
    with monkeypatch.context() as patch:
        for name, value in (("WORLD_SIZE", 6), ("LOCAL_WORLD_SIZE", 2), ("RANK", 5)):
            patch.setenv(name, str(value))
        patch.setenv("TORCHELASTIC_RUN_ID", "none")
        assert place(tiny) == place(two) == Place("torchrun", 2, 3, 5)
        with pytest.raises(UsageError, match="devices = 3, but torchrun has started 2 processes"):
            place(dataclasses.replace(tiny, devices=3))
    with monkeypatch.context() as patch:
        patch.setenv("SLURM_NTASKS", "8")
        patch.setenv("SLURM_PROCID", "0")
        assert place(two).starter == "us"  # within a job, but not by srun
        for name, value in (("TASKS", 8), ("NODES", 2)):
            patch.setenv(f"SLURM_STEP_NUM_{name}", str(value))
        patch.setenv("SLURM_PROCID", "3")
        assert place(tiny) == Place("srun", 4, 2, 3)
