"""What was measured is known where its run is gone, and only for the question that was asked."""

import dataclasses
import json
import shutil

import pytest

from maar.certification.presets import PRESETS
from maar.core.files import json_text
from maar.experiments import kept, work
from maar.experiments.kept import caveat, keep, model_hash, recall
from maar.experiments.launch import Local
from maar.experiments.measured import in_folder, keep_all, left, require_data, state_of
from maar.experiments.plan import ordered
from maar.experiments.results import result
from maar.experiments.show import markdown
from maar.networks import weights_hash
from maar.reporting.build import make_report
from maar.reporting.collect import collect
from maar.training.run import load_network

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
    for row in after["rows"]:
        assert row.pop("measured_before") == [0]
    for row in before["rows"]:
        assert row.pop("measured_before") == []
    assert after["rows"] == before["rows"]
    assert after["is_complete"]
    assert after["hardware"] == "a laptop"  # where it was measured, not where it is read
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


@pytest.mark.parametrize("other", [{"layer": 1}, {"steps": 20}])
def test_another_attack_is_another_question(done, files, other):
    train, certify, _ = done
    files.train(train.run, accuracy=0.75)
    evaluate = dataclasses.replace(certify, what="evaluate", layer=2)
    keep(evaluate, {"images": 50, "of": 50, "latent_robustness": 0.5})
    assert recall(evaluate)
    steps = other.pop("steps", evaluate.profile.latent_steps)
    profile = dataclasses.replace(evaluate.profile, latent_steps=steps)
    assert not recall(dataclasses.replace(evaluate, profile=profile, **other))


def test_a_preset_that_has_changed_was_not_asked(done, monkeypatch):
    _, certify, _ = done
    monkeypatch.setitem(PRESETS, certify.profile.preset, {"crown": {}})
    assert not recall(certify)


def test_of_ones_own_network_and_images_nothing_is_kept(done, files):
    """A configuration has their names only: what is behind them may be another thing by now."""
    train, _, _ = done
    for own in ({"network": "net.py:small"}, {"data": "npz:mine.npz"}):
        run = dataclasses.replace(train.run, config=dataclasses.replace(train.run.config, **own))
        task = dataclasses.replace(train, run=run)
        files.train(run)
        keep(task, in_folder(task).result)
        assert not recall(task)


@pytest.fixture
def drawn(plan_of, files, tmp_path):
    """Figure 2, trained and kept; the runs are still here."""
    plan = plan_of("fig2", "smoke", kept=tmp_path / "kept")
    for task in plan.tasks:
        files.train(task.run)
    assert work.work(plan.tasks, Local(1), work.Display()) == {}
    return plan


def curves(plan, path, *runs):
    """By id, without what they are called after; from the file of the result and these runs."""
    path.write_text(json_text(result(plan, "", {})))
    figures = make_report(collect([path, *runs])).figures()
    return {figure.id.removeprefix("fig2-"): figure for figure in figures}


def test_curves_are_drawn_when_the_runs_are_gone(drawn, tmp_path):
    path, runs = tmp_path / "fig2.json", tmp_path / "runs"
    before = curves(drawn, path, runs)
    shutil.rmtree(runs)
    after = curves(drawn, path)
    assert left(drawn.tasks) == []
    names = ("curve-verified-error", "curve-accuracy", "stages-verified-error", "stages-accuracy")
    assert list(after) == list(names)
    for name in names:
        ours, theirs = after[name], before[name]
        assert (ours.title, ours.bands, ours.x, ours.y) == (
            theirs.title,
            theirs.bands,
            theirs.x,
            theirs.y,
        )
        assert len(ours.series) == 2
        for mine, other in zip(ours.series, theirs.series, strict=True):
            assert mine.x == other.x
            assert mine.y == pytest.approx(other.y, abs=1e-5)
    assert [one.group for one in after["curve-accuracy"].series] == ["COLT", "MAT"]


def test_curves_of_runs_that_are_here_are_drawn_once(drawn, tmp_path):
    path, runs = tmp_path / "fig2.json", tmp_path / "runs"
    curves(drawn, path)
    every = [figure.id for figure in make_report(collect([path, runs])).figures()]
    assert "curve-accuracy" in every
    assert not [name for name in every if name.startswith("fig2-")]
    # One that is here is not enough to compare the two.
    some = [figure.id for figure in make_report(collect([path, next(runs.iterdir())])).figures()]
    assert "fig2-curve-accuracy" in some


def test_a_file_without_epochs_is_an_answer_to_tables_only(drawn):
    """As files of earlier versions are: curves need the run itself then."""
    task, other = drawn.tasks
    about = json.loads(task.run.kept.read_text())
    del about["trainings"][0]["tasks"][0]["result"]["epochs"]
    task.run.kept.write_text(json.dumps(about))
    shutil.rmtree(task.run.folder)
    shutil.rmtree(other.run.folder)
    assert left([task, other]) == [task]
    assert recall(dataclasses.replace(task, is_drawn=False))["accuracy"] == 0.9
    assert not recall(task)


def test_a_run_that_is_not_finished_mixes_with_nothing(done, files):
    train, certify, _ = done
    files.train(train.run, accuracy=0.8)
    stage = dataclasses.replace(certify, weights="stage-1-last")
    files.certify(stage, VERDICTS * 10)
    (train.run.folder / "result.json").unlink()
    assert not state_of(stage).result
    keep(stage, {"images": 50, "of": 50})
    (train.run.folder / "config.toml").unlink()
    assert not recall(stage)


def test_a_folder_that_cannot_be_written_stops_nothing(plan, files):
    for task in plan.tasks:
        files.train(task.run)
    files.certify(plan.tasks[1], VERDICTS * 10)
    plan.tasks[0].run.kept.parent.write_text("a file")
    assert work.work(plan.tasks, Local(1), work.Display()) == {}


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

        def has_room(self, job, running):
            return not running

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
def test_damage_is_not_known(done, files, content):
    train, _, _ = done
    train.run.kept.write_text(content)
    assert recall(train) == {}
    files.train(train.run)
    keep(train, {"accuracy": 0.5, "seconds": 1.0, "model": model_hash(train.run)})
    assert recall(train)["accuracy"] == 0.5


@pytest.mark.parametrize("lost", ["images", "of"])
def test_an_entry_without_its_numbers_is_not_known(done, lost):
    train, certify, _ = done
    about = json.loads(train.run.kept.read_text())
    del about["trainings"][0]["tasks"][1]["result"][lost]
    train.run.kept.write_text(json.dumps(about))
    assert recall(certify) == {}


def test_what_is_measured_again_replaces_what_was(done, files):
    train, certify, _ = done
    keep(train, {"accuracy": 0.25})  # (its run is gone: nothing is asked of it now)
    assert recall(train)["accuracy"] == 0.75
    files.train(train.run, accuracy=0.75)
    keep(train, {"accuracy": 0.5, "seconds": 1.0, "model": model_hash(train.run)})
    keep(certify, {"images": 5, "of": 50, "certified": 1.0})
    [training] = json.loads(train.run.kept.read_text())["trainings"]
    tasks = training["tasks"]
    assert [entry["asked"]["what"] for entry in tasks] == ["certify", "train", "certify"]
    assert [entry["result"].get("images") for entry in tasks] == [50, None, 5]
    assert tasks[0]["command"].startswith("maar certify ")
    assert recall(train)["accuracy"] == 0.5


def test_finished_runs_are_kept_by_whoever_looks(plan, files):
    for task in plan.tasks:
        files.train(task.run)
    files.certify(plan.tasks[1], VERDICTS * 10)
    assert work.work(plan.tasks, Local(1), work.Display()) == {}
    assert all(recall(task) for task in plan.tasks)
    weights = recall(plan.tasks[1])["weights_hash"]
    assert weights == weights_hash(load_network(plan.tasks[1].run.folder)[0])


def test_a_caveat_is_said_until_the_run_is_trained_anew(plan, done, files):
    train, certify, _ = done
    about = json.loads(train.run.kept.read_text())
    about["trainings"][0]["caveat"] = "of an older trainer"
    train.run.kept.write_text(json.dumps(about))
    told = result(plan, "", {})
    [row] = [row for row in told["rows"] if row["measured_caveat"]]
    assert row["measured_caveat"] == "of an older trainer"
    assert f"- caveat: {row['system']}: of an older trainer" in markdown(told)
    files.train(train.run, accuracy=0.75)
    keep(certify, {**recall(certify), "images": 3})  # one more answer of the same weights
    assert caveat(train.run) == "of an older trainer"
    files.train(train.run, accuracy=0.31)
    keep(train, in_folder(train).result)
    assert caveat(train.run) == ""


def test_weights_that_are_not_known_are_said_to_be_so(plan, done, tmp_path):
    """As of trainings that were kept before their hashes were."""
    train, _, before = done
    assert before["weights"] == result(plan, "", {})["weights"] == ""
    assert "- weights:" not in markdown(before)
    about = json.loads(train.run.kept.read_text())
    about["trainings"][0]["model"] = "not known"
    del about["trainings"][0]["tasks"][0]["result"]["model"]
    train.run.kept.write_text(json.dumps(about))
    told = result(plan, "", {})
    said = "those of 1 of 1 runs are not known by hash (measured before hashes were kept)"
    assert f"- weights: {said}\n" in markdown(told)
    path = tmp_path / "table1.json"
    path.write_text(json_text(told))
    (section,) = make_report(collect([path])).sections
    assert f"weights: {said}" in section.caption


def trained_again(train, certify, files, images):
    """To other weights, certified on so many images, and lost again."""
    files.train(train.run, accuracy=0.8)
    few = dataclasses.replace(certify, images=images)
    files.certify(few, ["verified"] * images)
    for task in (train, few):
        keep(task, in_folder(task).result)
    shutil.rmtree(train.run.folder)


def test_a_short_look_does_not_replace_what_is_known_of_all_images(done, files):
    train, certify, _ = done
    trained_again(train, certify, files, images=5)
    assert recall(train)["accuracy"] == 0.75
    assert recall(certify)["images"] == 50
    # The five images are of other weights than the accuracy that is told beside them.
    assert not recall(dataclasses.replace(certify, images=5))


def test_an_experiment_asks_the_training_that_answers_most_of_it(plan_of, done, files, tmp_path):
    train, certify, _ = done
    trained_again(train, certify, files, images=5)
    about = {"methods": ("ibp",), "settings": ("mnist-0.1",), "kept": tmp_path / "kept"}
    for limit, accuracy in ((None, 0.75), (5, 0.8)):
        (row,) = result(plan_of("table1", **about, limit=limit), "", {})["rows"]
        assert row["metrics"]["accuracy"]["mean"] == accuracy
        assert row["images"] == (limit or 50)
    # Nobody has the answer: the accuracy is that of the training of which most is known.
    train, _ = plan_of("table1", **about, limit=7).tasks
    assert recall(train)["accuracy"] == 0.75


def test_what_says_all_that_was_known_replaces_it(done, files):
    train, certify, _ = done
    trained_again(train, certify, files, images=50)
    assert recall(train)["accuracy"] == 0.8
    assert recall(certify)["certified"] == 1.0
    assert len(json.loads(train.run.kept.read_text())["trainings"]) == 1


def test_while_a_run_is_here_only_its_own_weights_answer(done, files):
    train, certify, _ = done
    files.train(train.run, accuracy=0.8)
    assert not recall(certify)
    keep(train, in_folder(train).result)
    shutil.rmtree(train.run.folder)
    assert recall(certify)["images"] == 50


def test_a_method_that_was_corrected_since_is_no_answer(done, monkeypatch):
    train, certify, _ = done
    method = type(train.run.config.method)
    monkeypatch.setattr(method, "revision", method.revision + 1)
    assert not recall(train)
    assert not recall(certify)


def test_verdicts_that_are_not_trusted_any_more_are_no_answer(done, monkeypatch):
    train, certify, _ = done
    monkeypatch.setattr(kept, "STORE_FORMAT", kept.STORE_FORMAT + 1)
    assert recall(train)
    assert not recall(certify)


def test_what_is_not_trusted_does_not_stand_in_the_way(done, files, monkeypatch):
    """The first training has more verdicts, but none that counts."""
    train, certify, _ = done
    monkeypatch.setattr(kept, "STORE_FORMAT", kept.STORE_FORMAT + 1)
    files.train(train.run, accuracy=0.8)
    few = dataclasses.replace(certify, images=5)
    keep(train, in_folder(train).result)
    keep(few, {"images": 5, "of": 50, "certified": 1.0})
    shutil.rmtree(train.run.folder)
    assert recall(few)["certified"] == 1.0
    assert recall(train)["accuracy"] == 0.8


def test_verifiers_with_other_defaults_are_another_question(done, monkeypatch):
    _, certify, _ = done
    assert recall(certify)["settings"] == kept.settings_of(certify.profile.preset)
    monkeypatch.setattr(kept, "settings_of", lambda preset: ["Crown(steps=3)"])
    assert not recall(certify)


def test_a_damaged_part_of_the_file_does_not_spoil_the_others(done):
    train, _, _ = done
    about = json.loads(train.run.kept.read_text())
    train.run.kept.write_text(json.dumps({**about, "trainings": [3, {}, *about["trainings"]]}))
    assert recall(train)["accuracy"] == 0.75


def test_experiments_that_share_a_run_may_come_in_any_order(plan_of, files, tmp_path):
    """A figure draws the epochs of a run of which a table needs the numbers only."""
    plans = [plan_of(name, "smoke", kept=tmp_path / "kept") for name in ("table1", "fig2")]
    for both in (plans, plans[::-1]):
        tasks = ordered(point for plan in both for point in plan.points)
        shutil.rmtree(tmp_path / "kept", ignore_errors=True)
        for task in tasks:
            if task.what == "train":
                files.train(task.run)
            else:
                files.certify(task, VERDICTS * 2)
        keep_all(tasks)
        assert all(recall(task) for task in tasks)
        shutil.rmtree(tmp_path / "runs")
        assert left(tasks) == []
        for task in plans[1].tasks:
            assert recall(task)["epochs"]["stage"] == [1, 1, 2, 2]
