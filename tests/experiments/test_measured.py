"""What is done already is seen in the files of a run."""

import dataclasses
import json
from pathlib import Path

import pytest

from maar.config import to_toml
from maar.core.errors import RunError, UsageError
from maar.experiments.estimate import (
    attack_seconds,
    epoch_seconds,
    estimate,
    image_seconds,
)
from maar.experiments.measured import State, require_data, require_same, state_of
from maar.networks import weights_hash
from maar.training.run import load_network

VERDICTS = ["verified", "misclassified", "falsified", "unknown", "verified"] * 10


@pytest.fixture
def tasks(plan_of):
    """Train and certify, five images asked for."""
    return plan_of("table1", "smoke", methods=("ibp",), limit=5).tasks


def test_nothing_is_there(tasks):
    assert [state_of(task).word for task in tasks] == ["to do", "to do"]


def test_a_run_that_is_finished(tasks, files):
    files.train(tasks[0].run, accuracy=0.75)
    state = state_of(tasks[0])
    assert state.word == "done"
    assert state.result["accuracy"] == 0.75
    assert state.result["verified_error"] == 0.25


def test_a_run_that_was_interrupted(tasks, files):
    files.train(tasks[0].run)
    (tasks[0].run.folder / "result.json").unlink()
    state = state_of(tasks[0])
    assert (state.word, state.progress) == ("half done", "stage 2/2 epoch 2/2")


def test_certified_images_are_counted(tasks, files):
    files.train(tasks[0].run)
    files.certify(tasks[1], VERDICTS[:3])
    state = state_of(tasks[1])
    assert (state.word, state.progress) == ("half done", "3/5 images")
    files.certify(tasks[1], VERDICTS[:5])
    result = state_of(tasks[1]).result
    assert (result["certified"], result["certified_upper"]) == (0.4, 0.6)
    assert (result["images"], result["of"], result["open"]) == (5, 50, 1)
    assert result["accuracy_of_these"] == 0.8
    assert result["settled"] == {"misclassified": 1, "crown": 3}
    assert result["seconds"] == pytest.approx(5 * 0.5 + 4 * 1.5)


def test_of_more_images_the_first_count(tasks, files):
    files.train(tasks[0].run)
    files.certify(tasks[1], [*VERDICTS[:5], *["falsified"] * 45])
    assert state_of(tasks[1]).result["certified"] == 0.4


def test_all_images(tasks, files):
    files.train(tasks[0].run)
    everything = dataclasses.replace(tasks[1], images=None)
    files.certify(everything, VERDICTS)
    assert state_of(everything).result["images"] == 50


@pytest.mark.parametrize(
    "changes",
    [
        {"preset": "paper"},
        {"format": 1},
        {"split": "valid"},
        {"source": {"weights": "stage-1-last"}},
        {"data": "mnist"},
        {"subject": {"eps": 0.3}},
    ],
)
def test_another_question_is_no_answer(tasks, files, changes):
    files.train(tasks[0].run)
    files.certify(tasks[1], VERDICTS, **changes)
    assert state_of(tasks[1]).word == "to do"


def test_a_store_of_other_weights_is_no_answer(tasks, files):
    """A folder may have been trained anew under the verdicts that were there."""
    files.train(tasks[0].run, accuracy=0.9)
    files.certify(tasks[1], VERDICTS)
    assert state_of(tasks[1]).word == "done"
    files.train(tasks[0].run, accuracy=0.8)
    assert state_of(tasks[1]).word == "to do"


def test_an_image_that_failed_is_not_done(tasks, files):
    files.train(tasks[0].run)
    files.certify(tasks[1], [*VERDICTS[:4], "error"])
    assert state_of(tasks[1]).progress == "4/5 images"


def test_what_was_given_up_for_less_time_is_not_done(tasks, files):
    files.train(tasks[0].run)
    files.certify(tasks[1], VERDICTS)
    patient = dataclasses.replace(tasks[1].profile, timeout=1000)
    assert state_of(dataclasses.replace(tasks[1], profile=patient)).progress == "4/5 images"


def test_latent_robustness(plan_of, files):
    task = next(task for task in plan_of("table-stages", "smoke").tasks if task.what == "evaluate")
    files.train(task.run)
    record = {
        "weights": "stage-1-last",
        "split": "test",
        "eps": 0.1,
        "attack": {"steps": 10, "step_size": 0.01, "restarts": 1, "seed": 0},
        "bounds": "crown",
        "weights_hash": weights_hash(load_network(task.run.folder, "stage-1-last")[0]),
        "latent_robustness": {"2": 0.625},
        "images": 10,
        "of": 1000,
        "seconds": 3.0,
    }
    path = task.run.folder / "evaluate-stage-1-last-first-10.json"
    path.write_text(json.dumps(record))
    assert state_of(task).result["latent_robustness"] == 0.625
    others = [{"attack": {**record["attack"], **more}} for more in ({"steps": 150}, {"seed": 1})]
    for other in (
        *others,
        {"images": 9},
        {"weights": "model"},
        {"bounds": "cauchy"},
        {"weights_hash": "w"},
    ):
        path.write_text(json.dumps({**record, **other}))
        assert state_of(task).word == "to do"


def test_damage_is_not_done(tasks, files):
    files.train(tasks[0].run)
    store = files.certify(tasks[1], VERDICTS)
    (store / "verdicts.jsonl").write_text("nonsense\n")
    assert state_of(tasks[1]).word == "to do"
    (tasks[0].run.folder / "result.json").write_text("{")
    assert state_of(tasks[0]).word == "to do"


def test_a_run_of_another_configuration_is_refused(tasks, files):
    run = tasks[0].run
    require_same(run)  # none is there
    files.train(run)
    require_same(run)
    other = dataclasses.replace(run.config, seed=7)
    (run.folder / "config.toml").write_text(to_toml(other))
    with pytest.raises(UsageError, match=r"another configuration .*seed: 7 -> 0.*another --runs"):
        require_same(run)


def test_a_run_of_an_earlier_revision_is_refused(tasks, files):
    run = tasks[0].run
    files.train(run)
    (run.folder / "env.json").write_text("{}")
    with pytest.raises(UsageError, match=r"revision 1 of method ibp, .*another --runs"):
        require_same(run)
    (run.folder / "env.json").write_text(json.dumps({"revision": run.config.method.revision}))
    require_same(run)


def test_images_that_are_not_there_are_missed_before_the_work(plan_of, files, monkeypatch):
    monkeypatch.setattr("maar.data.published.cache_dir", lambda: Path("nowhere"))
    tasks = plan_of("fig2", methods=("mat",), settings=("mnist-0.1",)).tasks
    with pytest.raises(RunError, match=r"data set mnist is not in .* `maar data fetch mnist`, or"):
        require_data(tasks)
    for task in tasks:
        files.train(task.run)
    require_data(tasks)  # nothing is left to be done


def _epochs(run, *seconds):
    """One epoch in each stage."""
    lines = [json.dumps({"stage": k, "seconds": took}) for k, took in enumerate(seconds, 1)]
    run.folder.mkdir(parents=True, exist_ok=True)
    (run.folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def test_estimates_are_of_similar_runs(plan_of, files):
    def forget():
        for cached in (epoch_seconds, image_seconds, attack_seconds):
            cached.cache_clear()

    forget()
    tasks = plan_of("fig-lambda", "smoke", limit=5).tasks
    assert estimate(tasks[0], state_of(tasks[0])) is None
    assert estimate(tasks[1], state_of(tasks[1])) is None
    files.train(tasks[0].run)
    _epochs(tasks[0].run, 20.0, 40.0)
    files.certify(tasks[1], VERDICTS[:5])
    forget()
    assert estimate(tasks[0], state_of(tasks[0])) == 0
    train, certify = tasks[2:4]
    assert estimate(train, state_of(train)) == 60.0
    longer = dataclasses.replace(
        train.run.config.method,
        base=dataclasses.replace(train.run.config.method.base, stage_epochs=(3, 2)),
    )
    config = dataclasses.replace(train.run.config, method=longer)
    patient = dataclasses.replace(train, run=dataclasses.replace(train.run, config=config))
    assert estimate(patient, State()) == 3 * 20.0 + 2 * 40.0
    _epochs(train.run, 22.0)  # half done
    forget()
    assert estimate(patient, State()) == 2 * 21.0 + 2 * 40.0
    (train.run.folder / "metrics.jsonl").unlink()
    forget()
    # (of a third stage nothing is known; of a network that is not there, not even its stages)
    _epochs(tasks[0].run, 20.0)
    forget()
    assert estimate(train, state_of(train)) is None
    _epochs(tasks[0].run, 20.0, 40.0)
    forget()
    own = dataclasses.replace(train.run.config, network="nowhere.py:net")
    lost = dataclasses.replace(train, run=dataclasses.replace(train.run, config=own))
    assert estimate(lost, State()) is None
    assert estimate(certify, state_of(certify)) == pytest.approx(5 * 0.5 + 4 * 1.5)
    everything = dataclasses.replace(certify, images=None)
    assert estimate(everything, State()) == pytest.approx(10 * (5 * 0.5 + 4 * 1.5))
    attack = dataclasses.replace(certify, what="evaluate", layer=2)
    assert estimate(attack, State()) is None
    record = {"attack": {"steps": 10}, "layers": [2], "seconds": 8.0, "images": 4, "of": 50}
    (tasks[0].run.folder / "evaluate-model.json").write_text(json.dumps(record))
    forget()
    assert estimate(attack, State()) == pytest.approx(5 * 2.0)
