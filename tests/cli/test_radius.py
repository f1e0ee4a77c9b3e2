"""`maar radius` as a user sees it."""

import json

import pytest

from maar.certification.radius.display import spell
from maar.cli.main import main


@pytest.fixture
def maar(capsys):
    def call(*args):
        code = main(["radius", *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_run_needs_no_flags(here, maar):
    code, out, err = maar("runs/my", "--limit", "6")
    assert (code, err) == (0, "")
    said = out.splitlines()
    assert said[0].startswith("radii of my on npz:my.npz, up to 0.5 (6 of 24 test images, ")
    assert "at most 20 s a question" in said[0]
    (store,) = (here / "runs/my").glob("radius-*")
    assert said[-1] == f"radii in {store.relative_to(here)}"
    records = [json.loads(line) for line in (store / "radii.jsonl").read_text().splitlines()]
    assert sorted(record["index"] for record in records) == list(range(6))
    shown = said[next(n for n, line in enumerate(said) if line.startswith("image  label")) + 1 :]
    for record in records:
        assert record["verdict"] in ("found", "misclassified")
        # each is shown with both its ends
        row = shown[record["index"]].split()
        assert row[0] == str(record["index"])
        assert spell(record["lower"], "lower") in row
        assert spell(record["upper"], "upper") in row
    assert maar("runs/my", "--limit", "6")[1].count("6 from before") == 1
    # more than a screen are not shown one by one
    code, out, _ = maar("runs/my", "--verifiers", "misclassified,quick_pgd", "--tolerance", "0.1")
    assert code == 0
    assert "label" not in out
    assert "median" in out


def test_what_is_shown_claims_no_more_than_what_was_found():
    assert (spell(0.12349, "lower"), spell(0.12341, "upper")) == ("0.1234", "0.1235")
    assert (spell(0.0, "lower"), spell(1.0, "upper")) == ("0.0000", "1.0000")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "RUN|FILE.onnx|zoo:NAME|FILE.py:NAME is needed"),
        (["runs/your"], "'runs/your' is neither the folder of a run, nor"),
        (["runs/my", "--largest", "8"], "did you mean 8/255?"),
        (["runs/my", "--tolerance", "0"], "tolerance = 0 (accepted: more than 0"),
        (["runs/my", "--tolerance", "0.6"], "less than the largest radius, 0.5"),
        (["runs/my", "--tolerance", "x"], "--tolerance: 'x' is not a number"),
        (["runs/my", "--largest", "0"], "--largest 0 (accepted: a radius above 0)"),
        (["runs/my", "--timeout", "0"], "timeout = 0.0"),
        (["runs/my", "--eps", "0.1"], "--eps"),
        (["runs/my", "--out", "my.toml"], "my.toml is not a folder"),
        (["runs/my", "--workers", "0"], "--workers 0 (accepted: 1 or more)"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(here, maar, args, said):
    code, out, err = maar(*args)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("maar: error: ")
    assert err.count("\n") == 1


def test_a_store_of_certify_is_something_else(here, maar):
    assert main(["certify", "runs/my", "--limit", "1", "--out", "mine"]) == 0
    code, _, err = maar("runs/my", "--limit", "1", "--out", "mine")
    assert code == 2
    assert "mine is about something else (eps: 0.1 there, None here" in err
    assert maar("runs/my", "--limit", "1", "--out", "radii")[0] == 0
    assert main(["certify", "--merge", "out", "radii"]) == 2
