"""What is seen in a terminal and elsewhere."""

import io
import re

import pytest
from rich.console import Console
from torch import nn

from maar.train.display import LiveDisplay, Pace, PlainDisplay, clock, make_display, number
from maar.train.plan import Plan
from maar.train.trainer import train


def test_the_live_display_shows_a_row_per_epoch(tiny, tmp_path):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=110, color_system=None)
    train(tiny, tmp_path / "run", display=LiveDisplay(console))
    text = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", out.getvalue())
    assert "tiny  staged on npz:" in text
    rows = [line.split() for line in text.splitlines()]
    header = ["stage", "epoch", "total", "noisy", "clean", "scale", "acc", "valid", "acc", "time"]
    assert rows.count(header) == 1
    starts = [row[: len(row) - 11] for row in rows if len(row) > 11 and row[0] in ("1/2", "2/2")]
    assert [row[0] for row in starts] == ["1/2", "1/2", "2/2", "2/2"]
    assert "valid acc" in text


def test_plain_lines_elsewhere(tiny, tmp_path, capsys):
    train(tiny, tmp_path / "run", display=PlainDisplay())
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("stage 1/2 epoch 1/2: total ")
    assert "images/s" in lines[1]
    assert lines[-1] == "testing"
    assert isinstance(make_display(), PlainDisplay)


def test_a_display_is_closed_however_the_run_ends(tiny, tmp_path, monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=110)
    display = LiveDisplay(console)

    def broken(self, batch):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(tiny.method), "loss", broken)
    with pytest.raises(KeyboardInterrupt):
        train(tiny, tmp_path / "run", display=display)
    assert display.live is None


def test_the_time_left_counts_steps_and_what_is_between_epochs(tiny, monkeypatch):
    now = 0.0
    monkeypatch.setattr("maar.train.display.time.perf_counter", lambda: now)
    stages = tiny.method.stages(nn.Sequential(nn.ReLU()), tiny.eps, tiny.train)
    pace = Pace(Plan(stages, steps_per_epoch=10), batch=100, done=0)
    assert pace.text() == ""
    for _ in range(10):
        now += 2.0
        pace.step()
    now += 5.0
    pace.epoch()
    # 30 steps of 2 s and three times 5 s are left.
    assert pace.text() == "50 images/s  1:15 left"


def test_clock_and_number():
    assert [clock(s) for s in (0, 59.6, 61, 3600, 36061)] == [
        "0:00",
        "1:00",
        "1:01",
        "1:00:00",
        "10:01:01",
    ]
    assert number("robust_accuracy", 0.9712) == "97.1 %"
    assert number("verified_error", 0.5) == "50.0 %"
    assert number("l1", 0.12345) == "0.1235"
