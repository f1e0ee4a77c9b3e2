"""What was measured is known where its run is gone, and only for the question that was asked."""

import dataclasses
import json
import shutil

import pytest

from maar.experiments import work
from maar.experiments.kept import keep, recall
from maar.experiments.launch import Local
from maar.experiments.measured import in_folder, left, require_data, state_of
from maar.experiments.results import result

VERDICTS = ["verified"] * 4 + ["misclassified"]


@pytest.fixture
def plan(plan_of, tmp_path):
    return plan_of("table1", methods=("ibp",), settings=("mnist-0.1",), kept=tmp_path / "kept")


@pytest.fixture
def done(plan, files):
    """Trained and certified, kept, and then the folder is lost."""
    train, certify = plan.tasks
    files.train(train.run, accuracy=0.75)
    files.certify(certify, VERDICTS * 10, machine="a laptop")
    for task in plan.tasks:
        keep(task, in_folder(task).result)
    before = result(plan, "", {})
    shutil.rmtree(train.run.folder)
    return train, certify, before


def test_the_result_is_the_same_without_the_run(plan, done):
    after = result(plan, "", {})
    _, _, before = done
    assert after["rows"] == before["rows"]
    assert after["is_complete"]
    assert [state_of(task).word for task in plan.tasks] == ["done before"] * 2
    assert left(plan.tasks) == []
    require_data(plan.tasks)


@pytest.mark.parametrize(
    "other",
    [
        {"images": 5},
        {"weights": "stage-1-last"},
        {"eps": "0.2"},
        {"what": "evaluate", "layer": 2},
    ],
)
def test_another_question_was_not_asked(done, other):
    train, certify, _ = done
    task = dataclasses.replace(certify, **other)
    assert not state_of(task).result
    # The run has to be here for it: it is trained again.
    assert left([train, certify, task]) == [train, task]


@pytest.mark.parametrize("other", [{"preset": "paper"}, {"timeout": 1000}])
def test_another_verifier_or_more_time_is_another_question(done, other):
    _, certify, _ = done
    profile = dataclasses.replace(certify.profile, **other)
    assert not recall(dataclasses.replace(certify, profile=profile))


def test_the_same_radius_may_be_written_otherwise(done):
    _, certify, _ = done
    assert recall(dataclasses.replace(certify, eps="1/10"))
    assert recall(dataclasses.replace(certify, images=50))


def test_another_configuration_is_another_run(done, files):
    train, certify, _ = done
    config = dataclasses.replace(train.run.config, eps=0.2)
    run = dataclasses.replace(train.run, config=config)
    changed = dataclasses.replace(train, run=run)
    assert not recall(changed)
    files.train(run)
    keep(changed, in_folder(changed).result)
    assert recall(changed)["accuracy"] == 0.9
    assert not recall(certify)  # the file now speaks of the new one


def test_other_weights_are_another_training(plan, done, files):
    train, certify, _ = done
    files.train(train.run, accuracy=0.75)
    assert state_of(certify).is_kept  # trained again to the very same weights
    files.train(train.run, accuracy=0.8)
    assert left(plan.tasks) == [certify]


def test_what_is_trained_again_to_other_weights_is_asked_again(done, plan, files, monkeypatch):
    """Only the certification at another radius is missing, but the run is not here."""
    train, certify, _ = done
    wider = dataclasses.replace(certify, eps="0.2")
    started = []

    class Launcher:
        slots = 1

        def start(self, task):
            started.append(task)
            if task.what == "train":
                files.train(task.run, accuracy=0.8)
            else:
                files.certify(task, VERDICTS * 10)
            return Ended()

    class Ended:
        def poll(self):
            return 0

        def stop(self): ...

        def end(self): ...

    monkeypatch.setattr(work, "TICK", 0)
    assert work.work([train, certify, wider], Launcher(), work.Display()) == {}
    assert started == [train, wider, certify]
    shutil.rmtree(train.run.folder)
    assert recall(train)["accuracy"] == 0.8
    assert recall(certify)
    assert recall(wider)


def test_a_setting_that_came_later_has_its_default(done):
    train, _, _ = done
    about = json.loads(train.run.kept.read_text())
    del about["config"]["train"]["momentum"]
    train.run.kept.write_text(json.dumps({**about, "config_hash": "of older code"}))
    assert recall(train)
    about["config"]["train"]["momentum"] = 0.5
    train.run.kept.write_text(json.dumps(about))
    assert not recall(train)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1, "tasks": 3}', "\x00"])
def test_damage_is_not_known(done, content):
    train, _, _ = done
    train.run.kept.write_text(content)
    assert recall(train) == {}
    keep(train, {"accuracy": 0.5, "seconds": 1.0})
    assert recall(train)["accuracy"] == 0.5


def test_what_is_measured_again_replaces_what_was(done):
    train, certify, _ = done
    keep(train, {"accuracy": 0.5, "seconds": 1.0})
    keep(certify, {"images": 5, "of": 50, "certified": 1.0})
    about = json.loads(train.run.kept.read_text())
    assert [entry["asked"]["what"] for entry in about["tasks"]] == ["certify", "train", "certify"]
    assert [entry["result"].get("images") for entry in about["tasks"]] == [50, None, 5]
    assert about["tasks"][0]["command"].startswith("maar certify ")
    assert recall(train)["accuracy"] == 0.5


def test_finished_runs_are_kept_by_whoever_looks(plan, files):
    for task in plan.tasks:
        files.train(task.run)
    files.certify(plan.tasks[1], VERDICTS * 10)
    assert work.work(plan.tasks, Local(1), work.Display()) == {}
    assert all(recall(task) for task in plan.tasks)
    weights = recall(plan.tasks[1])["weights_hash"]
    assert weights == "w"
