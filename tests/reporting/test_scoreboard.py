"""Scores of VNN-COMP instances, counted by hand."""

from maar.reporting.scoreboard import Outcome, as_json, cactus, read, scores, vnncomp_csv


def outcome(category, result, seconds, expected=""):
    name = f"{category}/net.onnx"
    return Outcome(
        category, name, f"{result}{seconds}.vnnlib", 60.0, result, seconds, "", "", expected
    )


OUTCOMES = [
    outcome("a", "unsat", 3.0, "unsat"),
    outcome("a", "sat", 1.0, "unsat"),
    outcome("a", "unsat", 5.0),
    outcome("b", "timeout", 60.0, "sat"),
    outcome("b", "error", 0.5),
]


def test_scores():
    a, b, all_ = scores(OUTCOMES)
    assert (a.instances, a.solved, a.wrong, a.errors, a.median_seconds) == (3, 2, 1, 0, 4.0)
    assert (b.instances, b.solved, b.wrong, b.errors, b.median_seconds) == (2, 0, 0, 1, None)
    assert (all_.category, all_.instances, all_.solved, all_.wrong) == ("all", 5, 2, 1)


def test_a_wrong_answer_is_not_solved():
    assert cactus(OUTCOMES) == [3.0, 5.0]


def test_there_and_back():
    assert read(as_json(OUTCOMES, {"timeout": None})) == OUTCOMES


def test_vnncomps_format():
    assert vnncomp_csv(OUTCOMES[:1]) == "a,a/net.onnx,unsat3.0.vnnlib,0,unsat,3.000\n"
