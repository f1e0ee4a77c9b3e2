"""`maar reproduce`, as a user has it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from maar.cli.main import main
from maar.cli.reproduce import _report
from maar.experiments.launch import Local
from maar.experiments.tables import experiment, experiments

# One row that trains in seconds.
MINI = """
title = "A small one"
of = "nothing"
about = "for the test"
kind = "table"
settings = ["mnist-0.1"]
[[rows]]
label = "IBP, briefly"
method = "ibp"
flags = { epochs = 1 }
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "mini.toml").write_text(MINI)
    return tmp_path


def test_list(here, capsys):
    assert main(["reproduce", "--list"]) == 0
    said = capsys.readouterr().out
    for name in ("table1", "fig2", "beyond-1", "--profile", "smoke", "paper"):
        assert name in said


def test_the_list_has_a_line_for_each_in_a_narrow_terminal(here, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["reproduce", "--list"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.partition("\n\n")[0].split("\n")]
    assert len(lines) == 1 + len(experiments())
    for name, line in zip(experiments(), lines[1:], strict=True):
        assert line.startswith(f"{name} ")
        assert line.endswith(experiment(name).title)


def test_more_on_one(here, capsys):
    assert main(["reproduce", "--list", "beyond-1", "mini.toml"]) == 0
    said = capsys.readouterr().out
    assert "MAAR around SABR     sabr       --method maar --base sabr" in said
    assert "settings: mnist-0.1, cifar10-2_255" in said
    assert "A small one (nothing)" in said


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_dry_run_breaks_no_name(here, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["reproduce", "beyond-1", "--profile", "smoke", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "mnist-0.1-mtl_ibp-smoke-method-maar-base-mtl_ibp-seed0" in said
    assert "nothing like it was measured" in " ".join(said.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "NAME is missing (accepted: ablation-weights, "),
        (["tabel1"], "unknown experiment 'tabel1'; did you mean 'table1'?"),
        (["table1", "--profile", "cpus"], "unknown profile 'cpus'; did you mean 'cpu'?"),
        (["table1", "--seeds", "0,x"], "--seeds '0,x' is not a list of seeds"),
        (["table1", "--seeds", "-1"], "--seeds"),
        (["table1", "--limit", "0"], "--limit 0 (accepted: 1 or more images)"),
        (["table1", "--jobs", "0"], "--jobs 0 (accepted: 1 or more)"),
        (["table1", "--methods", "mar"], "did you mean 'maar'?"),
        (["table1", "--methods", ","], "--methods ',' names none"),
        (["table1", "--seeds", ","], "--seeds ',' names none"),
        (["table1", "--out", "/proc/x"], "--out /proc/x (accepted: a folder that can be made"),
        (["dir/table1.toml"], "table1 is the name of a shipped experiment"),
        (["fig2", "--profile", "smoke", "--setting", "cifar10-2_255"], "nothing to run here"),
    ],
)
def test_a_mistake_is_one_line(here, capsys, words, message):
    assert main(["reproduce", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_dry_run_does_nothing(here, capsys):
    words = ["reproduce", "mini.toml", "fig2", "--profile", "smoke", "--dry-run"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "mnist-0.1-ibp-smoke-epochs-1-seed0" in said
    assert said.count("to do") == 4
    assert "skipped: cifar10-2_255: profile smoke knows mnist-0.1 only" in said
    assert [path.name for path in here.iterdir()] == ["mini.toml"]


def test_from_nothing_to_the_page_and_no_step_twice(here, capsys, monkeypatch):
    words = ["reproduce", "mini.toml", "--profile", "smoke", "--limit", "3", "--out", "out"]
    assert main([*words, "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "mnist-0.1-ibp-smoke-epochs-1-seed0: certify done" in said
    assert "> **Not the paper's protocol:** reduced profile smoke" in said
    found = json.loads((here / "out" / "mini-first-3.json").read_text())
    (row,) = found["rows"]
    assert found["is_complete"]
    assert (row["images"], row["of"], row["preset"]) == (3, 1000, "fast")
    assert row["published"] == {"accuracy": 0.988, "certified": 0.958}
    assert 0 <= row["metrics"]["certified"]["mean"] <= row["metrics"]["certified_upper"]["mean"]
    assert "IBP, briefly" in (here / "out" / "mini-first-3.md").read_text()
    assert (here / "runs" / "mnist-0.1-ibp-smoke-epochs-1-seed0-train.log").exists()

    page = (here / "out" / "mini-first-3" / "index.html").read_text()
    assert '<code class="command">maar reproduce mini.toml --profile smoke' in page
    monkeypatch.setattr("maar.cli.reproduce._report", lambda *words: None)  # once is enough
    begun = []
    start = Local.start
    monkeypatch.setattr(Local, "start", lambda self, t: begun.append(t.label) or start(self, t))
    assert main(words) == 0
    assert begun == []
    assert main(["reproduce", "mini.toml", "--profile", "smoke", "--limit", "5"]) == 0
    assert begun == ["certify"]  # two more images, with the same store
    (store,) = (here / "runs").glob("*/certify/eps-*")
    assert len((store / "verdicts.jsonl").read_text().splitlines()) == 5

    # The runs are gone; what they said is not.
    shutil.rmtree(here / "runs")
    (here / "out" / "mini-first-3.json").unlink()
    begun.clear()
    assert main([*words, "--collect"]) == 0
    again = json.loads((here / "out" / "mini-first-3.json").read_text())
    assert again["rows"] == [{**row, "measured_before": [0]}]
    assert "measured before: 1 of 1 runs" in (here / "out" / "mini-first-3.md").read_text()
    assert again["command"] == found["command"].replace(" --jobs 1", "")
    assert main(words) == 0
    assert begun == []


def test_nothing_to_collect(here, capsys):
    words = ["reproduce", "mini.toml", "--profile", "smoke", "--collect"]
    assert main(words) == 0
    assert "nothing is known of mini yet" in capsys.readouterr().out
    assert not (here / "results").exists()


def test_a_run_of_another_configuration_is_refused(here, capsys):
    words = ["reproduce", "mini.toml", "--profile", "smoke"]
    folder = here / "runs" / "mnist-0.1-ibp-smoke-epochs-1-seed0"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('data = "mnist_mini"\n')
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "is of another configuration than this experiment's" in said
    assert "move it away, or give another --runs" in said


def test_a_failed_row_is_named_at_the_end(here, capsys):
    (here / "mini.toml").write_text(MINI.replace("epochs = 1", 'data = "npz:none.npz"'))
    assert main(["reproduce", "mini.toml", "--profile", "smoke", "--runs", "r"]) == 1
    said = capsys.readouterr()
    assert "2 of 2 tasks failed: mnist-0.1-ibp-smoke" in said.err
    assert "none.npz" in said.out
    found = json.loads((here / "results" / "smoke" / "mini.json").read_text())
    assert found["failed"]
    assert not found["is_complete"]


def test_without_the_packages_of_a_report_there_is_a_line_about_it(here, capsys, monkeypatch):
    monkeypatch.setattr("maar.reporting.write.find_spec", lambda name: None)
    _report(here / "x.json", {"rows": [], "title": "x", "command": "x"}, here / "x")
    said = capsys.readouterr().out
    assert said.startswith("no page: maar report needs jinja2")
    assert "pip install 'maar[report]'" in said


@pytest.mark.slow
def test_interrupted_and_continued(here):
    command = [sys.executable, "-m", "maar", "reproduce", "fig2", "--profile", "smoke"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    runs = here / "runs"
    while not list(runs.glob("*/metrics.jsonl")):  # the first epoch of one
        assert process.poll() is None
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; continue with: maar reproduce fig2 --profile smoke" in said
    assert not list(runs.glob("*/result.json"))
    assert subprocess.run(command, check=False).returncode == 0
    assert len(list(runs.glob("*/result.json"))) == 2
    assert "resumed" in (next(runs.glob("mnist-0.1-colt-smoke-seed0")) / "env.json").read_text()


@pytest.mark.slow
def test_the_whole_of_table1(here):
    assert main(["reproduce", "table1", "--profile", "smoke"]) == 0
    found = json.loads((here / "results" / "smoke" / "table1.json").read_text())
    assert found["is_complete"]
    assert len(found["rows"]) == 7


@pytest.mark.slow
def test_on_a_cluster(here):
    pytest.importorskip("ray", reason="ray has no wheel for every Python")
    words = ["reproduce", "mini.toml", "--profile", "smoke", "--limit", "3", "--ray", "local"]
    assert main(words) == 0
    found = json.loads((here / "results" / "smoke" / "mini-first-3.json").read_text())
    assert found["is_complete"]
