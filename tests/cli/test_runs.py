"""`maar runs`: any folder, however damaged, gets its row."""

import json
import re
import subprocess
import sys

import pytest

from maar.cli.main import main
from maar.config import Config, config_hash, to_toml
from maar.core.seals import sealed
from maar.records.stores import key_of


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A folder with a finished and an interrupted run."""
    monkeypatch.chdir(tmp_path)
    for name in ("done", "half"):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(to_toml(Config(name=name, eps="2/255")))  # pyright: ignore[reportArgumentType]
        lines = [
            {
                "stage": epoch,
                "stages": 3,
                "epoch": epoch,
                "epochs": 8,
                "train": {"accuracy": 0.9, "verified_error": 0.1 / epoch},
                "valid": {"accuracy": 0.8 + epoch / 100},
                "seconds": 40.0,
            }
            for epoch in (1, 2)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "runs" / "done" / "result.json").write_text('{"test": {"accuracy": 0.971}}')
    (tmp_path / "runs" / "done" / "model.safetensors").touch()
    certify(tmp_path / "runs" / "done", verified=5, certified=0.625)
    certify(tmp_path / "runs" / "done", verified=2, certified=0.2)
    certify(tmp_path / "runs" / "done", eps=0.1, verified=8, certified=1.0)
    return tmp_path / "runs"


def certify(run, eps=2 / 255, **summary):
    """A certification of the run, as far as `maar runs` reads it."""
    path = run / "certify" / f"eps-{eps:.2g}-{summary['verified']}"
    path.mkdir(parents=True)
    subject = {"weights": "a" * 64, "split": "test", "eps": eps}
    manifest = {"key": key_of(subject), "format": 3, "subject": subject, "network": run.name}
    manifest |= {"data": "mnist_mini", "split": "test", "images": 8, "verifiers": [], "asked": ""}
    (path / "manifest.json").write_text(json.dumps(sealed(manifest)))
    (path / "summary.json").write_text(json.dumps(summary))
    return path


def rows(capsys):
    return {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()}


def test_a_row_per_run(runs, capsys):
    assert main(["runs"]) == 0
    found = rows(capsys)
    short = config_hash(Config(eps="2/255"))[:8]  # pyright: ignore[reportArgumentType]
    facts = ["standard", "convmed_2_2_100", "mnist_mini", "2/255"]
    done = ["finished", "2/3", "2/8", "97.1", "5.0", "62.5", "1:20", short]
    half = ["interrupted", "2/3", "2/8", "82.0", "5.0", "1:20", short]
    assert found["done"] == ["done", *facts, *done]
    assert found["half"] == ["half", *facts, *half]


@pytest.mark.parametrize(
    ("width", "missing"),
    [(120, set()), (80, {"hash", "time", "network"}), (60, {"hash", "data", "eps"})],
)
def test_a_terminal_gets_the_columns_that_it_has_room_for(
    runs, monkeypatch, capsys, width, missing
):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert main(["runs"]) == 0
    text = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    head = text.splitlines()[0].split()
    assert not missing & set(head)
    assert {"run", "method", "state", "acc", "VE", "CR"} <= set(head)
    if width == 120:
        assert len(head) == 13


def test_a_part_of_the_images_is_said_to_be_one(runs, capsys):
    certify(runs / "done", certified=0.625, verified=6, images=8, of=100)
    assert main(["runs"]) == 0
    assert " 62.5 (8) " in capsys.readouterr().out


def test_elsewhere_a_run_is_one_line_however_long(runs, capsys):
    (runs / "done").rename(runs / ("x" * 190))
    assert main(["runs"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


DAMAGE = [  # file, content, what is said
    ("config.toml", "name = ", "config.toml is not valid TOML"),
    ("config.toml", "", ""),
    ("config.toml", 'method = 3\ntrain = "x"\n', ""),
    ("config.toml", b"\xff\xfe", "it is not a text file"),
    ("metrics.jsonl", "{\n", "metrics.jsonl is damaged: line 1 cannot be read"),
    ("metrics.jsonl", "3\n", "metrics.jsonl is damaged: line 1 cannot be read"),
    ("metrics.jsonl", '{"seconds": "x"}\n', ""),
    ("metrics.jsonl", '{"epoch": 1, "sec', ""),
    ("result.json", '{"test"', "result.json is damaged"),
    ("result.json", "[]", "result.json is damaged: not a JSON object"),
    ("result.json", '{"test": 3}', ""),
]


@pytest.mark.parametrize(("file", "content", "said"), DAMAGE)
def test_damage_is_shown_and_hides_no_other_run(runs, capsys, file, content, said):
    path = runs / "done" / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["runs"]) == 0
    out = capsys.readouterr().out
    assert "interrupted" in out  # the other run
    assert "done" in out
    assert said in out


def test_lost_weights_are_told_with_the_way_back(runs, capsys):
    (runs / "done" / "model.safetensors").unlink()
    assert main(["runs"]) == 0
    out = capsys.readouterr().out
    assert "runs/done is damaged: model.safetensors is missing: `maar train" in out


def test_one_run_and_nested_folders(runs, capsys):
    assert main(["runs", "runs/half"]) == 0
    assert "half" in capsys.readouterr().out
    runs.rename(runs.parent / "all")
    assert main(["runs", "."]) == 0
    assert "all/done" in capsys.readouterr().out


def test_nothing_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 0
    assert "no runs yet; make one with: maar train demo" in capsys.readouterr().out
    assert main(["runs", "."]) == 0
    assert "no runs in ." in capsys.readouterr().out
    assert main(["runs", "nowhere"]) == 2
    assert main(["runs", ".", "."]) == 2
    assert main(["runs", "--al"]) == 2
    assert main(["runs", "--help"]) == 0


def test_it_needs_no_torch(runs):
    code = (
        "import sys; from maar.cli.main import main; main(['runs']);"
        "assert not {'torch', 'tyro'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=runs.parent, capture_output=True)
