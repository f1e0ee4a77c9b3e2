"""`maar report` on a real run with a real certification and real radii."""

import json

import pytest

from maar.cli.main import main


@pytest.fixture
def certified(here):
    run = next((here / "runs").iterdir())
    assert main(["certify", str(run), "--limit", "12", "--workers", "1"]) == 0
    assert main(["radius", str(run), "--limit", "4", "--workers", "1", "--tolerance", "0.01"]) == 0
    assert main(["evaluate", str(run), "--limit", "8"]) == 0
    return run


def test_a_report_of_everything(certified, here, capfd):
    capfd.readouterr()
    assert main(["report", "runs", "-o", "out", "--title", "Mine <b>"]) == 0
    assert capfd.readouterr().out.startswith("report in out: open file://")
    content = json.loads((here / "out" / "data" / "report.json").read_text())
    assert content["command"] == "maar report runs -o out"
    # nothing was wrong with these files
    assert not [notice for notice in content["notices"] if notice["level"] == "error"]
    blocks = {block["id"]: block for section in content["sections"] for block in section["blocks"]}
    assert {"results", "curve-loss", "cascade", "certifications", "radii", "runs"} <= set(blocks)
    summary = next((certified / "certify").glob("eps-*/summary.json"))
    shares = json.loads(summary.read_text())
    row = blocks["results"]["rows"][0]
    names = [column["name"] for column in blocks["results"]["columns"]]
    assert row[names.index("CR")]["value"] == shares["certified"]
    assert row[names.index("CR")]["evidence"]["images"] == 12
    if shares["falsified"]:
        assert blocks["counterexamples"]["items"]
    page = (here / "out" / "index.html").read_text()
    assert "Mine &lt;b&gt;" in page


def test_a_damaged_file_is_told_in_the_terminal_too(here, capfd):
    run = next((here / "runs").iterdir())
    with open(run / "metrics.jsonl", "a") as file:
        file.write("garbage\n")
    assert main(["report", "runs", "-o", "damaged"]) == 0
    said = capfd.readouterr()
    assert said.err.startswith("warning: ")
    assert "metrics.jsonl is damaged" in said.err
    assert said.out.startswith("report in damaged")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "takes one or more folders"),
        (["absent"], "absent is neither a folder nor"),
        (["runs", "--tilte", "x"], "did you mean --title?"),
        (["runs", "-o", "my.npz"], "my.npz is not a folder"),
        (["runs", "-o", "."], "holds something else"),
    ],
)
def test_mistakes_are_told_in_one_line(here, capfd, words, said):
    assert main(["report", *words]) == 2
    error = capfd.readouterr().err
    assert said in error
    assert error.count("\n") == 1
