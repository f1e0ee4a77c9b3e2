"""`maar evaluate` as a user sees it."""

import json
import re
import shutil

import pytest
import torch

from maar.cli.main import main
from maar.records.runs import certified, read_run

IMAGES = 40


@pytest.fixture(scope="module")
def trained(tmp_path_factory, run_maker):
    """With images for validation."""
    return run_maker(tmp_path_factory.mktemp("runs"), IMAGES, "eps = 0.05\nvalid = 20")


@pytest.fixture
def here(trained, tmp_path, monkeypatch):
    """A copy of that folder, to work in."""
    shutil.copytree(trained, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    return tmp_path / "here"


@pytest.fixture
def maar(capsys):
    def call(*args):
        capsys.readouterr()
        code = main(["evaluate", *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def shares(out):
    """metric -> (share, images) as in the table."""
    found = re.findall(r"(?m)^(\S.*?) +([\d.]+) % +(\d+ of \d+) *$", out)
    return {name: (float(share), images) for name, share, images in found}


def test_a_run_needs_no_flags(here, maar):
    code, out, err = maar("runs/my")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"my on npz:my.npz, eps 0.05 ({IMAGES} test images)"
    assert lines[-1] == "numbers in runs/my/evaluate-model.json"
    found = json.loads((here / "runs/my/evaluate-model.json").read_text())
    table = shares(out)
    names = ["accuracy", "latent robustness at the input", "latent robustness at ReLU 1"]
    assert list(table) == names
    numbers = [found["accuracy"], *found["latent_robustness"].values()]
    assert [share for share, _ in table.values()] == [round(100 * x, 2) for x in numbers]
    assert numbers[0] > numbers[1] >= numbers[2] > 0
    result = json.loads((here / "runs/my/result.json").read_text())
    assert found["accuracy"] == result["test"]["accuracy"]
    assert found["attack"] == {"steps": 150, "step_size": 0.01, "restarts": 1, "seed": 0}
    assert (found["eps"], found["bounds"], found["certified"]) == (0.05, "crown", None)
    assert (found["images"], found["of"], found["split"]) == (IMAGES, IMAGES, "test")


def test_what_is_certified_is_shown_beside(here, maar):
    assert main(["certify", "runs/my", "--workers", "1"]) == 0
    assert main(["certify", "runs/my", "--workers", "1", "--limit", "5"]) == 0
    summary = certified(read_run(here / "runs/my"))
    table = shares(maar("runs/my", "--steps", "30", "--step-size", "0.1")[1])
    share, images = table["certified robustness"]
    assert images == f"{summary['verified']} of {IMAGES}"
    # What is proved is broken by no attack on the ball.
    assert share <= table["latent robustness at the input"][0]
    # Of another radius nothing is known.
    assert "certified robustness" not in shares(maar("runs/my", "--eps", "0.02")[1])


def test_other_questions_do_not_replace_the_answer(here, maar):
    quick = ("--steps", "3", "--step-size", "0.5")
    for flags, name in [
        ((), "evaluate-model.json"),
        (("--weights", "stage-1-best"), "evaluate-stage-1-best.json"),
        (("--eps", "0.1"), "evaluate-model-eps-0.1.json"),
        (("--limit", "7"), "evaluate-model-first-7.json"),
        (("--split", "valid"), "evaluate-model-valid.json"),
        (("--split", "train", "--layers", "1"), "evaluate-model-train.json"),
        (("--data", "npz:my.npz"), "evaluate-model-npz-my.npz.json"),
        (("--out", "own.json"), "own.json"),
    ]:
        code, out, _ = maar("runs/my", *flags, *quick)
        assert code == 0
        assert out.splitlines()[-1].endswith(name)
    found = json.loads((here / "runs/my/evaluate-model-train.json").read_text())
    assert (found["images"], found["layers"]) == (180, [1])
    assert json.loads((here / "runs/my/evaluate-model-valid.json").read_text())["images"] == 20
    assert not list(here.glob("runs/my/.*part"))


def test_an_onnx_file(here, maar):
    pytest.importorskip("onnx")
    from maar.exchange.onnx_out import write_onnx
    from maar.training.run import load_network

    net, _ = load_network("runs/my")
    write_onnx(net, "my.onnx", (1, 3, 3))
    code, out, _ = maar("my.onnx", "--data", "npz:my.npz", "--eps", "0.05")
    assert code == 0
    assert shares(out) == shares(maar("runs/my")[1])
    assert (here / "certs/my/evaluate-model-eps-0.05.json").is_file()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["runs/your"], "'runs/your' is neither the folder of a run, nor a FILE.onnx"),
        (["no.onnx", "--data", "mnist"], "--eps is needed"),
        (["no.onnx", "--data", "mnist", "--eps", "0.1", "--weights", "x"], "weights is for runs"),
        (["runs/my", "--weights", "stage-2-last"], "(accepted: stage-1-best, stage-1-last, model)"),
        (["runs/my", "--layers", "0,x"], "--layers '0,x' is not a list of numbers"),
        (["runs/my", "--layers", "2"], "layer 2 (accepted: 0 for the input, 1 for the ReLU"),
        (["runs/my", "--layers", ""], "--layers '' is not a list of numbers"),
        (["runs/my", "--eps", "much"], "eps = 'much' is not a number"),
        (["runs/my", "--steps", "-1"], "steps = -1 (accepted: an integer >= 0)"),
        (["runs/my", "--restarts", "0"], "restarts = 0"),
        (["runs/my", "--step-size", "0"], "step_size = 0.0"),
        (["runs/my", "--limit", "0"], "limit = 0"),
        (["runs/my", "--bounds", "crow"], "crow"),
        (["runs/my", "--out", "runs"], "--out runs is a folder"),
        (["runs/my", "--mean", "0.5"], "mean and std are for ONNX files"),
        (["runs/my", "--data", "mnist_mini"], "the network does not take images of mnist_mini"),
        (["runs/my", "--stps", "3"], "did you mean --steps?"),
        ([], "RUN|FILE.onnx"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(here, maar, args, said):
    code, out, err = maar(*args)
    assert code == 2, err
    assert said in err
    assert (out, err.count("\n"), err.startswith("maar: error: ")) == ("", 1, True)


def test_ctrl_c(here, maar, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("maar.training.metrics.search", stop)
    code, _, err = maar("runs/my")
    assert (code, err) == (130, "maar: interrupted; nothing was written\n")
    assert not list(here.glob("runs/my/evaluate*"))


def test_a_terminal_gets_a_bar(here, maar, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = maar("runs/my")
    assert "attacking" in out
    assert "left" in out
