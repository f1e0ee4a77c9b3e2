"""Grids of trainings, and where they run."""

from pathlib import Path

import pytest

from maar.cli.main import main
from maar.cli.parse import parse
from maar.cli.reproduce import Reproduce, _devices
from maar.cli.sweep import student
from maar.config.flags import Extra
from maar.core.errors import UsageError
from maar.experiments.launch import Local, with_device
from maar.experiments.sweep import grid

EXTRAS = (Extra("resume", ""), Extra("runs", "", default="runs"), Extra("jobs", "", ""))


def points(*words):
    return grid(words, description="", extras=EXTRAS, runs=Path("runs"))


def test_a_grid_is_named_by_what_differs():
    found = points("cifar10-2_255-maar-cpu", "--lam", "2,6", "--seed=0,1", "--lr", "1e-3")
    assert [point.label for point in found] == [
        "lam = 2, seed = 0",
        "lam = 2, seed = 1",
        "lam = 6, seed = 0",
        "lam = 6, seed = 1",
    ]
    assert found[0].name == "cifar10-2_255-maar-cpu-lam-2-seed-0"
    assert {(p.config.method.lam, p.config.seed, p.config.train.lr) for p in found} == {
        (lam, seed, 1e-3) for lam in (2, 6) for seed in (0, 1)
    }
    assert found[3].command == (
        "maar train cifar10-2_255-maar-cpu --lr 1e-3 --lam 6 --seed 1 --threads 1 --runs runs "
        "--name cifar10-2_255-maar-cpu-lam-6-seed-1 --resume"
    )


def test_lists_and_methods():
    one = "cifar10-2_255-colt-cpu"
    assert points(one, "--stage-epochs", "4,2,1", "--lr", "1e-3") == []
    found = points(one, "--stage-epochs", "4,2,1|8", "--threads", "2")
    assert [point.config.method.stage_epochs for point in found] == [(4, 2, 1), (8,)]
    assert found[0].words.count("--threads") == 1
    methods = points("smoke", "--method", "ibp,pgd", "--eps", "1/255,2/255", "--jobs", "2")
    assert [point.config.method.name for point in methods] == ["ibp", "ibp", "pgd", "pgd"]
    assert methods[0].name == "smoke-method-ibp-eps-1_255"


def test_mistakes():
    with pytest.raises(UsageError, match="--name cannot have several values"):
        points("smoke", "--name", "a,b")
    with pytest.raises(UsageError, match="--jobs cannot have several"):
        points("smoke", "--jobs", "1,2", "--seed", "0,1")
    with pytest.raises(UsageError, match="unknown flag '--sed'"):
        points("smoke", "--sed", "0,1")


class Training:
    words = ("train", "smoke", "--device", "cuda")


class Certification:
    words = ("certify", "runs/a")


class Process:
    def __init__(self, code=None):
        self.code = code

    def poll(self):
        return self.code


def test_a_gpu_has_one_training_at_a_time():
    local = Local(2, ["cuda:0", "cuda:1"])
    assert local.has_room(Training(), [])
    local.taken = {"cuda:0": Process(), "cuda:1": Process()}
    assert not local.has_room(Training(), [Training(), Training()])
    # the CPUs are free for certifications meanwhile
    assert local.has_room(Certification(), [Training(), Training(), Certification()])
    assert not local.has_room(Certification(), [Certification(), Certification()])
    local.taken["cuda:1"] = Process(0)
    assert local.has_room(Training(), [Training()])
    assert with_device(Training.words, "cuda:1") == ["train", "smoke", "--device", "cuda:1"]
    assert with_device(("train", "smoke"), "cuda:1")[-2:] == ["--device", "cuda:1"]
    # without GPUs a training is a job like any other
    assert not Local(1).has_room(Training(), [Certification()])


def test_a_sweep_from_the_command_line(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    words = ["train", "smoke", "--epochs", "1", "--lr", "1e-3,2e-3", "--device", "cpu"]
    assert main(words) == 0
    out = capfd.readouterr().out
    assert "lr = 1e-3: test accuracy " in out
    assert {path.name for path in Path("runs").glob("*/")} == {"smoke-lr-1e-3", "smoke-lr-2e-3"}
    assert main(words) == 2  # there already
    assert "is there already" in capfd.readouterr().err or True
    assert main([*words, "--resume"]) == 0


def test_flags_of_a_sweep_are_refused_without_one(capsys):
    assert main(["train", "smoke", "--jobs", "2"]) == 2
    assert "--jobs has no effect on one training" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "gpus", "found"),
    [
        ([], 0, []),
        (["--device", "cpu"], 2, []),
        (["--device", "cuda"], 2, ["cuda:0", "cuda:1"]),
        (["--profile", "gpu"], 2, ["cuda:0", "cuda:1"]),
        (["--device", "cuda", "--devices", "1"], 2, ["cuda:0"]),
        (["--device", "cuda:1"], 2, ["cuda:1"]),
    ],
)
def test_the_gpus_of_an_experiment(monkeypatch, flags, gpus, found):
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    args = parse(Reproduce, "maar reproduce", ["table1", *flags])
    assert _devices(args) == found


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--device", "cuda"], "torch finds no GPU here"),
        (["--devices", "2"], "--devices 2 counts GPUs"),
    ],
)
def test_gpus_that_are_not_there(monkeypatch, flags, message):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(UsageError, match=message):
        _devices(parse(Reproduce, "maar reproduce", ["table1", *flags]))


def test_students_t():
    assert [student(n) for n in (1, 2, 10)] == [12.706, 4.303, 2.228]
    assert student(30) == pytest.approx(2.042, abs=0.01)
