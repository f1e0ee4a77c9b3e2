"""The event files, read back by TensorBoard's own reader."""

import dataclasses
import sys

import pytest

from maar.cli.main import main
from maar.config import to_toml
from maar.records.runs import read_run
from maar.training.display import Display, Several
from maar.training.tensorboard import TensorBoard
from maar.training.trainer import train

pytest.importorskip("tensorboard")


class StopAfter(Display):
    """Interrupts the run when so many epochs are done."""

    def __init__(self, epochs):
        self.left = epochs

    def epoch(self, record):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def scalars(run):
    """tag -> [(step, value)], as TensorBoard would draw it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags}


def assert_mirrors_the_metrics(run):
    found, lines = scalars(run), read_run(run).metrics
    for group in ("loss", "train", "valid"):
        for name in lines[0][group]:
            expected = [
                (line["step"], pytest.approx(line[group][name], rel=1e-6)) for line in lines
            ]
            assert found[f"{group}/{name}"] == expected
    assert [value for _, value in found["schedule/stage"]] == [1, 1, 2, 2]
    assert {"schedule/lr", "schedule/eps", "speed/images_per_second"} <= set(found)
    assert [step for step, _ in found["schedule/kappa"]] == [18, 24]  # of stage 2 only


def test_a_run_from_end_to_end(tiny, tmp_path):
    train(tiny, tmp_path / "run", display=TensorBoard(tmp_path / "run"))
    assert_mirrors_the_metrics(tmp_path / "run")


@pytest.mark.parametrize("from_the_start", [True, False])
def test_a_resumed_run_has_every_point_once(tiny, tmp_path, from_the_start):
    """The third epoch is done twice, as there is a checkpoint after every second only."""
    config = dataclasses.replace(
        tiny, train=dataclasses.replace(tiny.train, epochs=2, checkpoint_every=2)
    )
    run = tmp_path / "run"
    first = TensorBoard(run) if from_the_start else Display()
    with pytest.raises(KeyboardInterrupt):
        train(config, run, display=Several(first, StopAfter(3)))
    train(config, run, resume=True, display=TensorBoard(run))
    assert_mirrors_the_metrics(run)


def test_the_flag_is_no_part_of_the_configuration(tiny_pgd, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text(to_toml(tiny_pgd))
    assert main(["train", "my.toml", "--tensorboard"]) == 0
    assert "loss/adversarial" in scalars(tmp_path / "runs" / "tiny")
    assert "tensorboard" not in (tmp_path / "runs" / "tiny" / "config.toml").read_text()


def test_without_the_package(tiny_pgd, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    (tmp_path / "my.toml").write_text(to_toml(tiny_pgd))
    assert main(["train", "my.toml", "--tensorboard"]) == 2
    assert "pip install 'maar[tensorboard]'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
