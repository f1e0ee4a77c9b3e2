"""`maar train` as a user runs it: real processes, their last line, their exit code."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from maar.cli.main import main
from maar.config import Config, load, to_toml
from maar.config.flags import parse_command
from maar.core.errors import UsageError
from maar.methods.pgd import PGDTraining


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with 60 tiny images and a configuration for them."""
    rng = np.random.RandomState(0)
    x = rng.randint(0, 256, (60, 1, 5, 5)).astype(np.uint8)
    y = (np.arange(60) % 2).astype(np.int64)
    np.savez(tmp_path / "my.npz", x_train=x, y_train=y, x_test=x, y_test=y, layout="NCHW")
    (tmp_path / "my.toml").write_text(
        'data = "npz:my.npz"\nvalid = 10\nnetwork = "mlp"\nthreads = 1\n'
        '[method]\nname = "pgd"\n[method.attack]\nsteps = 1\n[train]\nepochs = 2\nbatch = 10\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def maar(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "maar", *words], capture_output=True, text=True, **options
    )


def test_a_run_from_start_to_finish(here):
    done = maar("train", "my.toml", "--eps", "2/255", "--name", "first")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("first: pgd on npz:my.npz, eps 2/255 (mlp, ")
    assert lines[1].startswith("stage 1/1 epoch 1/2: adversarial ")
    assert "valid robust accuracy" in lines[1]
    assert lines[-2].startswith("runs/first is finished: test accuracy ")
    assert lines[-1] == "next: maar certify runs/first"
    assert load("runs/first").eps == 2 / 255


def test_a_finished_run_says_so(here, capsys):
    assert main(["train", "my.toml"]) == 0
    capsys.readouterr()
    assert main(["train", "my.toml"]) == 2
    assert "runs/my exists (finished): give this run another --name" in capsys.readouterr().err
    for config in ("my.toml", "runs/my"):
        assert main(["train", config, "--resume"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("runs/my was already finished: test accuracy ")
        assert out.endswith("next: maar certify runs/my\n")


def test_a_flag_that_changes_the_run_gives_it_another_folder(here, capsys):
    assert main(["train", "my.toml", "--runs", "elsewhere"]) == 0
    assert main(["train", "my.toml", "--runs", "elsewhere", "--seed", "1"]) == 0
    assert len(list((here / "elsewhere").glob("my-??????"))) == 1


def interrupted(here, number):
    """Start a long run and send it a signal after its first epoch."""
    process = subprocess.Popen(
        [sys.executable, "-m", "maar", "train", "my.toml", "--epochs", "100000", "--name", "long"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    return process.returncode, error


def test_control_c_is_one_line_with_the_way_on(here, capsys):
    code, error = interrupted(here, signal.SIGINT)
    assert code == 130
    assert error == "maar: interrupted; continue with: maar train runs/long --resume\n"
    assert main(["runs"]) == 0
    assert "interrupted" in capsys.readouterr().out


def test_control_c_while_torch_loads_is_one_line_too(here):
    process = subprocess.Popen(
        [sys.executable, "-m", "maar", "train", "my.toml"], stderr=subprocess.PIPE, text=True
    )
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.startswith("maar: interrupted")
    assert error.count("\n") == 1


def test_while_it_runs_it_is_shown_so_and_locked(here, capsys):
    process = subprocess.Popen(
        [sys.executable, "-m", "maar", "train", "my.toml", "--epochs", "100000", "--name", "long"],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        assert main(["runs"]) == 0
        assert "running" in capsys.readouterr().out
        words = ["train", "my.toml", "--epochs", "100000", "--name", "long", "--resume"]
        assert main(words) == 1
        assert "runs/long is in use by another maar process" in capsys.readouterr().err
    finally:
        process.kill()
        process.communicate()
    assert main(["runs"]) == 0
    assert "interrupted" in capsys.readouterr().out


def test_a_moved_run_is_continued_where_it_is(here, capsys):
    code, _ = interrupted(here, signal.SIGKILL)
    assert code == -signal.SIGKILL
    text = (here / "runs" / "long" / "config.toml").read_text()
    (here / "runs" / "long" / "config.toml").write_text(text.replace("100000", "100001"))
    (here / "runs" / "long").rename(here / "moved")
    assert main(["train", "moved", "--resume", "--epochs", "3"]) == 2
    assert "train.epochs: 100001 -> 3" in capsys.readouterr().err


REFUSED = [  # flags, part of the one line
    (["--eps", "8/0"], "--eps: eps = '8/0' divides by zero"),
    (["--eps", "-1"], "is not a radius"),
    (["--eps", "2"], "did you mean 2/255?"),
    (["--method", "colr"], "unknown method 'colr'"),
    (["--data", "mnits"], "did you mean 'mnist'?"),
    (["--batch", "51"], "batch = 51 is more than the 50 training images"),
    (["--valid", "60"], "valid = 60 leaves nothing to train on"),
    (["--network", "gone.py:net"], "'gone.py' does not exist"),
    (["--data", "npz:gone.npz"], "npz:gone.npz is not a file"),
    (["--device", "cuda:7"], "device 'cuda:7' is not there"),
    (["--method", "taps", "--suffix", "9"], "suffix = 9 leaves no ReLU"),
    (["--method", "maar", "--base", "standard"], "--base: base = 'standard': it has no worst"),
]


@pytest.mark.parametrize(("flags", "part"), REFUSED)
def test_a_mistake_is_one_line_exit_code_2_and_no_folder(here, capsys, flags, part):
    assert main(["train", "my.toml", *flags]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("maar: error: ")
    assert part in said.err
    assert said.err.count("\n") == 1
    assert not list(here.glob("runs/*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_one_line(here, capsys):
    (here / "runs").mkdir(mode=0o500)
    assert main(["train", "my.toml"]) == 1
    assert "Permission denied" in capsys.readouterr().err


def test_the_name_of_the_folder_may_need_quotes(here, capsys):
    assert main(["train", "my.toml", "--name", "two words"]) == 0
    assert "next: maar certify 'runs/two words'" in capsys.readouterr().out


def test_the_configuration_may_come_from_config_show(here, capsys):
    assert main(["config", "show", "my.toml", "--seed", "5"]) == 0
    (here / "shown.toml").write_text(capsys.readouterr().out)
    assert load("shown.toml") == load(here / "shown.toml")
    assert load("shown.toml").seed == 5
    assert isinstance(load("shown.toml").method, PGDTraining)
    assert to_toml(load("shown.toml")) == (here / "shown.toml").read_text()
    assert isinstance(load("shown.toml"), Config)


def test_a_folder_that_cannot_be_made_is_one_line(here, capsys):
    assert main(["train", "my.toml", "--runs", "/dev/null/runs"]) == 1
    said = capsys.readouterr().err
    assert "Not a directory (/dev/null/runs" in said
    assert said.count("\n") == 1


def test_a_knob_of_the_base_may_be_named_in_full():
    words = ["demo", "--method", "maar", "--base", "sabr"]
    for knob in ("--attack.steps", "--base.attack.steps"):
        given = [*words, knob, "3", "--base.lam=0.3", "--lam", "5"]
        method = parse_command(given, prog="maar train", description="")[0].method
        assert (method.lam, method.base.lam, method.base.attack.steps) == (5.0, 0.3, 3)
    for odd in ("--base.name", "--=3", "--.=3"):
        with pytest.raises(UsageError, match="unknown flag"):
            parse_command([*words, odd, "ibp"], prog="maar train", description="")
