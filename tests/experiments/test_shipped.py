"""Times that come with the package."""

import importlib.util
from pathlib import Path

import pytest

from maar.cli.main import main
from maar.config import recipes
from maar.experiments import shipped
from maar.experiments.outlook import disk, missing_extras
from maar.experiments.tables import read_toml

ROOT = Path(__file__).parents[2]
MNIST = {"settings": ("mnist-0.1",)}


@pytest.fixture
def twice(monkeypatch):
    """A machine that takes twice as long."""
    monkeypatch.setattr(shipped, "slowness", lambda: 2.0)


def test_the_times_are_those_of_the_results():
    spec = importlib.util.spec_from_file_location("times", ROOT / "scripts" / "times.py")
    assert spec is not None
    times = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(times)
    text = times.TIMES.read_text()
    assert times.renewed(text, ROOT / "results") == text


def test_every_time_is_of_a_recipe():
    times = read_toml(shipped.PATH)
    named = {*times["train"], *times["estimated"], *(k.split()[0] for k in times["certify"])}
    assert named <= set(recipes())
    assert not set(times["train"]) & set(times["estimated"])


def test_another_machine_is_in_proportion(twice):
    times = read_toml(shipped.PATH)
    found = shipped.training("mnist-0.1-maar-cpu")
    assert (found.seconds, found.is_measured) == (2 * times["train"]["mnist-0.1-maar-cpu"], True)
    assert shipped.training("cifar10-2_255-maar-long").is_measured is False
    assert shipped.training("nobody-knows") is None
    each = times["certify"]["mnist-0.1-maar-cpu complete"]
    assert shipped.certification("mnist-0.1-maar-cpu", "complete").seconds == 2 * each
    assert shipped.certification("mnist-0.1-maar-cpu", "paper") is None


def test_this_machine_is_measured_in_a_moment():
    assert 0.1 < shipped.slowness() < 100


def test_a_dry_run_says_what_it_will_take(twice, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "table1", "--setting", "mnist-0.1", "--methods", "maar", "--dry-run"]
    assert main([*words, "--seeds", "0"]) == 0
    out = capsys.readouterr().out
    # (twice 1557 s to train, and 10,000 images of 0.113 s)
    assert "~51:54" in out
    assert "~37:40" in out
    assert "left: about 1:29:34 of one core" in out
    assert "disk: about" in out
    assert "in runs" in out
    assert "maar train mnist-0.1-maar-cpu --seed 0" in out
    assert "maar certify runs/mnist-0.1-maar-cpu-seed0" in out


def test_disk_and_extras(plan_of, monkeypatch):
    tasks = plan_of("table1", methods=("maar",), limit=100, **MNIST).tasks
    weights = 4 * 348_374
    # three seeds: the end, two positions of three times the weights, two files for three stages
    assert disk(tasks) == 3 * (weights * 13 + 100 * 2000)
    monkeypatch.setattr("maar.experiments.outlook.find_spec", lambda name: None)
    (line,) = missing_extras(tasks)
    assert "pip install 'maar[report]'" in line
    gpu = plan_of("table1", profile="gpu", methods=("maar",), **MNIST).tasks
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert any("torch finds none" in line for line in missing_extras(gpu))


def test_training_a_recipe_says_what_it_is_expected_to_take(twice):
    from maar.cli.train import _expected
    from maar.config import load
    from maar.config.flags import parse_command

    recipe = load("mnist-0.1-maar-cpu")
    assert _expected("mnist-0.1-maar-cpu", recipe).startswith("expected: about ")
    words = ["mnist-0.1-maar-cpu", "--seed", "3"]
    seeded, _ = parse_command(words, prog="", description="")
    assert _expected("mnist-0.1-maar-cpu", seeded)
    other, _ = parse_command([words[0], "--batch", "10"], prog="", description="")
    assert not _expected("mnist-0.1-maar-cpu", other)
    assert not _expected("mine.toml", recipe)


def test_the_recipe_of_a_run_is_found(tmp_path):
    from dataclasses import replace

    from maar.config import load, to_toml

    config = replace(load("mnist-0.1-sabr-cpu"), seed=7, name="mine")
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert shipped.recipe_of(tmp_path, "complete") == "mnist-0.1-sabr-cpu"
    assert shipped.recipe_of(tmp_path, "paper") == ""
    other = replace(config, train=replace(config.train, lr=1e-4))
    (tmp_path / "config.toml").write_text(to_toml(other))
    assert shipped.recipe_of(tmp_path, "complete") == ""
    assert shipped.recipe_of(tmp_path / "none", "complete") == ""
