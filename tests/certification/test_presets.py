"""The presets: what they consist of, that they settle, and that the user sees which one it was."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from maar.certification import CASCADE, VERIFIERS
from maar.certification.display import make_display
from maar.certification.network import Network
from maar.certification.presets import DEFAULT, PRESETS, cascade, choose
from maar.certification.query import Query
from maar.certification.run import CERTIFICATION, make_plan, run
from maar.certification.verdict import Status
from maar.cli.certify import main
from maar.core.errors import UsageError


@pytest.mark.parametrize("name", PRESETS)
def test_every_name_resolves(name):
    made = cascade(name)
    assert made.names == list(PRESETS[name])
    for verifier, settings in zip(made.verifiers, PRESETS[name].values(), strict=True):
        assert type(verifier) is VERIFIERS[verifier.name]
        for field, value in settings.items():
            assert getattr(verifier, field) == value


def test_the_default_is_complete():
    assert DEFAULT == "complete"
    assert cascade("complete").names == list(CASCADE)
    name, made = choose(None, None)
    assert (name, made) == ("complete", cascade("complete"))


def test_fast_has_nothing_that_may_take_minutes():
    assert not {"bab", "lp", "milp_last", "milp_conv", "milp"} & set(PRESETS["fast"])


def test_paper_is_algorithm_2():
    wrong, attack, relaxation, last, convolution = cascade("paper").verifiers
    assert wrong.name == "misclassified"
    (pgd,) = attack.attacks
    assert (pgd.restarts, pgd.steps, pgd.step_size, pgd.loss) == (20, 100, 0.015, "cross_entropy")
    assert (relaxation.name, relaxation.iterations, relaxation.lr) == ("zonotope", 500, 0.1)
    assert relaxation.period == 100
    assert (last.name, last.refinement) == ("milp_last", "lp")
    assert (convolution.name, convolution.refinement) == ("milp_conv", "lp")
    assert (convolution.max_binary, convolution.slope_iterations) == (50, 500)


@pytest.mark.parametrize("name", PRESETS)
def test_a_question_with_a_known_answer(ask, name):
    robust, broken, tie = (cascade(name).settle(ask(eps)).status for eps in (0.2, 0.26, 0.25))
    assert (robust, broken, tie) == (Status.VERIFIED, Status.FALSIFIED, Status.UNKNOWN)


def test_no_two_presets_contradict_each_other(trained, mnist_mini):
    network = Network(trained, (1, 28, 28))
    x, y = mnist_mini.images("test")[::90], mnist_mini.labels("test")[::90]
    seen = set()
    for i in range(len(x)):
        query = Query.of(network, x[i : i + 1], int(y[i]), 0.04, seed=i)
        found = {replace(cascade(name), timeout=2.0).settle(query).status for name in PRESETS}
        assert Status.ERROR not in found
        assert len(found - {Status.UNKNOWN}) <= 1
        seen |= found
    assert {Status.VERIFIED, Status.FALSIFIED} <= seen


def test_names_that_there_are_not_and_lists_beside_presets(tmp_path):
    with pytest.raises(UsageError, match="unknown preset 'papper'; did you mean 'paper'"):
        choose(None, "papper")
    with pytest.raises(UsageError, match="preset 'fast' and a list of verifiers exclude"):
        choose(["crown"], "fast")
    with pytest.raises(UsageError, match="unknown preset 'fats'; did you mean 'fast'"):
        main(["net.onnx", "--preset", "fats"])
    with pytest.raises(UsageError, match="--preset and --verifiers exclude each other"):
        main(["net.onnx", "--preset", "fast", "--verifiers", "crown"])


def test_header_and_summary_say_which(trained, mnist_mini, tmp_path, capsys):
    def of(**asked):
        return make_plan(trained, mnist_mini, 0.01, limit=2, **asked)

    plan = of(preset="fast")
    run(plan, tmp_path, workers=1, display=make_display(CERTIFICATION))
    assert "preset fast" in capsys.readouterr().out.splitlines()[0]
    assert json.loads((tmp_path / "summary.json").read_text())["preset"] == "fast"
    listed = of(verifiers=list(PRESETS["fast"]))
    run(listed, tmp_path, workers=1, display=make_display(CERTIFICATION))
    assert "verifiers as listed" in capsys.readouterr().out.splitlines()[0]
    # the same verifiers are the same question, whatever they were called
    assert listed.key == plan.key
    assert of().key != plan.key


def test_naming_them_costs_no_torch():
    code = "import maar.certification.presets, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_strong_attack_tries_what_the_others_do_and_more():
    strong, usual = VERIFIERS["pgd_strong"](), VERIFIERS["pgd"]()
    assert strong.attacks[: len(usual.attacks)] == usual.attacks
    more = strong.attacks[len(usual.attacks) :]
    assert {attack.loss for attack in more if attack.targeted} == {"cross_entropy", "margin"}
    assert min(attack.restarts for attack in more) >= 10
