"""The search, with trials that are pretended."""

import json
import sys

import pytest

from maar.config import config_hash, load
from maar.core.errors import RunError, UsageError
from maar.experiments import launch
from maar.tuning.knobs import parse_knobs, turned
from maar.tuning.outcome import choose, outcome, pareto, write
from maar.tuning.study import Search, tune
from maar.tuning.trial import Asked

pytest.importorskip("optuna")

SMALL = load("smoke")
# The score follows from the learning rate: accuracy rises with it, CR falls; 7e-3 and more fails.
SCRIPT = """
import json, re, sys
from pathlib import Path
folder = Path(sys.argv[1])
lr = float(re.search(r"(?m)^lr = (.*)$", (folder / "trial.toml").read_text())[1])
if lr > 7e-3:
    print("maar: error: the loss is not finite")
    sys.exit(1)
score = {"accuracy": 0.5 + 10 * lr, "certified": 0.5 - 10 * lr, "accuracy_images": 100,
         "certified_images": 50, "certified_interval95": [0.1, 0.9]}
(folder / "score.json").write_text(json.dumps(score))
"""


@pytest.fixture
def search(tmp_path, monkeypatch):
    def argv(job):
        return [sys.executable, "-c", SCRIPT, str(job.folder)]

    monkeypatch.setattr(launch, "argv", argv)
    monkeypatch.setattr("maar.tuning.study.TICK", 0.02)
    knobs = parse_knobs(["lr=1e-3:1e-2"], SMALL)
    return Search(SMALL, tuple(knobs), Asked(50, "fast", 10.0), tmp_path / "study")


def test_trials_scores_and_failures(search):
    study = tune(search, launch.Local(2), hours=1, trials=6)
    found = outcome(search, study, "maar tune smoke")
    assert [trial["number"] for trial in found["trials"]] == [0, 1, 2, 3, 4, 5]
    assert found["trials"][0]["knobs"] == {"lr": SMALL.train.lr}  # the recipe itself comes first
    states = {(t["state"], t["reason"]) for t in found["trials"]}
    assert states <= {("complete", ""), ("fail", "failed: the loss is not finite")}
    # accuracy against CR: nothing beats anything
    scored = [t["number"] for t in found["trials"] if t["score"]]
    assert sorted(found["front"]) == scored
    best = choose(found, None)
    assert best["score"]["certified"] == max(
        t["score"].get("certified", 0) for t in found["trials"]
    )
    write(search, found, best)
    config = load(search.folder / "chosen.toml")
    assert config_hash(config) == config_hash(turned(SMALL, search.knobs, best["knobs"]))
    text = (search.folder / "chosen.toml").read_text()
    assert text.startswith(f"# Trial {best['number']} of 6, found by: maar tune smoke\n")
    assert json.loads((search.folder / "tune.json").read_text())["chosen"] == best["number"]


def test_a_study_is_continued_and_not_mixed(search):
    tune(search, launch.Local(1), hours=1, trials=2)
    with pytest.raises(UsageError, match="is there already"):
        tune(search, launch.Local(1), hours=1, trials=3)
    study = tune(search, launch.Local(1), hours=1, trials=3, resume=True)
    assert len(study.trials) == 3
    other = Search(SMALL, search.knobs, Asked(60, "fast", 10.0), search.folder)
    with pytest.raises(UsageError, match=r"another question \(images\)"):
        tune(other, launch.Local(1), hours=1, resume=True)


def test_a_trial_that_was_stopped_is_continued(search, monkeypatch):
    slow = [sys.executable, "-c", "import time; time.sleep(60)"]
    quick = launch.argv
    monkeypatch.setattr(launch, "argv", lambda job: slow)
    study = tune(search, launch.Local(1), hours=0.5 / 3600)
    assert [trial.state.name for trial in study.trials] == ["RUNNING"]
    with pytest.raises(RunError, match="no trial is finished"):
        choose(outcome(search, study, ""), None)
    monkeypatch.setattr(launch, "argv", quick)
    study = tune(search, launch.Local(1), hours=1, trials=1, resume=True)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"]


def test_the_pareto_front():
    def trial(number, accuracy, certified):
        return {"number": number, "score": {"accuracy": accuracy, "certified": certified}}

    trials = [trial(0, 0.8, 0.5), trial(1, 0.7, 0.6), trial(2, 0.7, 0.5), trial(3, 0.6, 0.6)]
    trials.append({"number": 4, "score": {}})
    assert [each["number"] for each in pareto(trials)] == [1, 0]
