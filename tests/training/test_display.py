"""What is seen in a terminal and elsewhere."""

import io
import re

import pytest
from rich.console import Console
from torch import nn

from maar.config import Config
from maar.methods.base import Stage
from maar.methods.schedules import Constant, Ramp
from maar.terminal.clock import clock
from maar.training.display import (
    LiveDisplay,
    Pace,
    PlainDisplay,
    above,
    columns_of,
    left_out,
    make_display,
)
from maar.training.lines import epoch_line, number
from maar.training.plan import Plan
from maar.training.trainer import train


def test_the_live_display_shows_a_row_per_epoch(tiny, tmp_path):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=110, color_system=None)
    train(tiny, tmp_path / "run", display=LiveDisplay(console))
    text = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", out.getvalue())
    assert "tiny  staged on npz:" in text
    rows = [line.split() for line in text.splitlines()]
    header = ["stage", "epoch", "total", "noisy", "clean", "scale", "acc", "acc", "time"]
    assert rows.count(header) == 1
    assert ["loss", "train", "%", "valid", "%"] in rows
    found = [row[:2] for row in rows if len(row) == len(header) and row[0] in ("1/2", "2/2")]
    assert found == [["1/2", "1/2"], ["1/2", "2/2"], ["2/2", "1/2"], ["2/2", "2/2"]]


LOSS = {
    "total": 2.3456,
    "natural": 1.2345,
    "adversarial": 1.3456,
    "previous": 0.4567,
    "l1": 0.0123,
    "stability": 0.0045,
    "consistency": 0.1234,
}
TRAIN = {"accuracy": 0.771, "verified_error": 0.263, "unstable_relu_1": 12312.3}
RECORD = {
    "stage": 1,
    "epoch": 200,
    "loss": LOSS,
    "train": {**TRAIN, "unstable_relu_3": 5.25},
    "valid": {"accuracy": 0.77, "robust_accuracy": 0.61},
    "seconds": 754.0,
}


def four_stages(epochs=200, steps_per_epoch=500):
    names = ("input", "relu 1", "relu 2", "relu 3")
    return Plan([Stage(name, epochs, Constant(0.1)) for name in names], steps_per_epoch)


@pytest.mark.parametrize(
    ("width", "parts"),
    [
        (60, []),
        (80, []),
        (100, ["natural"]),
        (120, ["natural", "adversarial", "previous"]),
        (200, list(LOSS)[1:]),
    ],
)
def test_a_row_fits_the_terminal(width, parts):
    """The total and the metrics always; of the terms those that there is room for."""
    columns = columns_of(RECORD, four_stages(), width)
    assert sum(column.width + 2 for column in columns) - 2 <= width
    assert len(above(columns)) <= width
    heads = [column.name for column in columns]
    unstable = ["unstable"] * (width >= 80)
    rest = ["acc", "VE", "acc", "robust", *unstable, "time"]
    assert heads == ["stage", "epoch", "total", *parts, *rest]
    assert [c.text for c in columns if c.name == "unstable"] in ([], ["12312 | - | 5.2"])


@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_loss_term_is_shown(width):
    """In the row where it has room, else on the line below."""
    columns = columns_of(RECORD, four_stages(), width)
    shown = {column.name: column.text for column in columns if column.group == "loss"}
    rest = left_out(RECORD, columns)
    for name, value in RECORD["loss"].items():
        text = number(name, value)
        assert shown.get(name.replace("_", " ")) == text or f"{name} {text}" in rest
    assert bool(rest) == (width < 200)


def test_the_moving_lines_fit_too():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    display, plan = LiveDisplay(console), four_stages()
    display.begin(Config(name="x"), plan, nn.Linear(1, 1), 100, 0)
    for step in range(1, 6):
        display.step(plan.epoch(250), step, LOSS, RECORD["train"])
    console = Console(width=80)
    lines = console.render_lines(display._moving(), pad=False)
    display.close()
    texts = ["".join(segment.text for segment in line) for line in lines]
    assert max(map(len, texts)) <= 80
    assert texts[0].startswith("stage 2/4 relu 1  epoch 51/200  ")
    assert (
        " ".join(texts[1:-1]).split() == " ".join(f"{k} {v:.4f}" for k, v in LOSS.items()).split()
    )
    assert texts[-1] == "accuracy 77.1 %  verified error 26.3 %  unstable 12312 | - | 5.2"


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


@pytest.fixture
def clockwork(monkeypatch):
    """A clock that the test moves by hand."""
    now = [0.0]
    monkeypatch.setattr("maar.training.display.time.perf_counter", lambda: now[0])
    return now


def go(pace, plan, now, number, each, between=0.0):
    """One epoch with steps of `each` seconds."""
    for step in range(plan.steps_per_epoch):
        now[0] += each
        pace.step(plan.epoch(number), step + 1)
    now[0] += between
    pace.epoch()


def test_the_time_left_counts_steps_and_what_is_between_epochs(clockwork):
    plan = Plan([Stage("input", 4, Constant(0.1))], steps_per_epoch=10)
    pace = Pace(plan, batch=100, done=0)
    assert pace.text() == ""
    go(pace, plan, clockwork, 0, each=2.0, between=5.0)
    # 30 steps of 2 s and three times 5 s are left.
    assert pace.text() == "50 images/s  1:15 left"


def test_each_stage_is_measured_and_a_guess_is_marked(clockwork):
    plan = four_stages(epochs=1, steps_per_epoch=10)
    pace = Pace(plan, batch=100, done=0)
    go(pace, plan, clockwork, 0, each=1.0)
    assert pace.text() == "100 images/s  ~0:30 left"
    go(pace, plan, clockwork, 1, each=4.0)
    assert pace.text() == "25 images/s  ~1:20 left"  # nothing of the first stage's pace in it
    go(pace, plan, clockwork, 2, each=2.0)
    for step in range(5):
        clockwork[0] += 2.0
        pace.step(plan.epoch(3), step + 1)
    assert pace.text() == "50 images/s  0:10 left"  # no stage is unknown any more


def test_the_time_left_counts_trials_of_later_stages(clockwork):
    plan = four_stages(epochs=1, steps_per_epoch=10)
    pace = Pace(plan, batch=100, done=0)
    for step in range(10):
        clockwork[0] += 1.0
        if step == 5:
            clockwork[0] += 30.0  # which the trials took: no step of this stage
            pace.outlook({1: 3.0, 2: 4.0})
        pace.step(plan.epoch(0), step + 1)
    # 10 steps of 3 s, 10 of 4 s; nothing is known of the last stage, so that it counts 1 s
    assert pace.text() == "100 images/s  ~1:20 left"
    for step in range(5):
        clockwork[0] += 2.0
        pace.step(plan.epoch(1), step + 1)
    assert pace.text() == "50 images/s  ~1:10 left"  # 5 and 10 steps of 2 s, 10 of 4 s


def test_while_eps_grows_the_time_left_is_a_guess(clockwork):
    plan = Plan([Stage("input", 4, Ramp(0.0, 0.1, 1.5))], steps_per_epoch=10)
    pace = Pace(plan, batch=100, done=0)
    go(pace, plan, clockwork, 0, each=1.0)
    assert pace.text() == "100 images/s  ~0:30 left"
    go(pace, plan, clockwork, 1, each=1.0)
    assert pace.text() == "100 images/s  0:20 left"
    go(pace, plan, clockwork, 2, each=1.0)
    go(pace, plan, clockwork, 3, each=1.0)
    assert pace.text() == "100 images/s  0:00 left"


def test_a_run_resumed_within_an_epoch_knows_where_it_is(clockwork):
    plan = Plan([Stage("input", 4, Constant(0.1))], steps_per_epoch=10)
    pace = Pace(plan, batch=100, done=2)
    for step in range(6, 10):
        clockwork[0] += 1.0
        pace.step(plan.epoch(2), step + 1)
    assert pace.text() == "100 images/s  0:10 left"


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


def test_a_plain_line_has_everything():
    assert epoch_line(RECORD, four_stages()) == (
        "stage 1/4 epoch 200/200: total 2.3456, natural 1.2345, adversarial 1.3456, "
        "previous 0.4567, l1 0.0123, stability 0.0045, consistency 0.1234, accuracy 77.1 %, "
        "verified error 26.3 %, unstable 12312 | - | 5.2, valid accuracy 77.0 %, "
        "valid robust accuracy 61.0 %, 754.0 s"
    )


def test_latent_robustness_is_one_line_of_all_layers():
    valid = {**RECORD["valid"], "latent_robustness_0": 0.985, "latent_robustness_1": 0.9}
    record, plan = {**RECORD, "valid": valid}, four_stages()
    assert "valid latent robustness 98.5 | 90.0 %, 754.0 s" in epoch_line(record, plan)
    out = io.StringIO()
    display = LiveDisplay(Console(file=out, width=80))
    display.begin(Config(name="x"), plan, nn.Linear(1, 1), 100, 0)
    display.epoch(RECORD)
    before = out.getvalue()
    display.epoch(record)
    display.close()
    row, _, line = out.getvalue()[len(before) :].splitlines()[:3]
    assert row in before  # and no other column
    assert line == "valid latent robustness 98.5 | 90.0 %"
