"""Planning: which runs an experiment takes, by which commands, and which are shared."""

import dataclasses

import pytest

from maar.config import config_hash, load, recipes
from maar.core.errors import UsageError
from maar.experiments.plan import ordered

MNIST = {"settings": ("mnist-0.1",)}


def runs(plan):
    found = {}
    for point in plan.points:
        for run in point.runs:
            found[point.row.label if point.x is None else point.x, run.seed] = run
    return found


def test_a_run_is_a_recipe_and_a_seed(plan_of):
    plan = plan_of("table1", methods=("maar",), **MNIST)
    assert [run.name for run in runs(plan).values()] == [
        f"mnist-0.1-maar-cpu-seed{seed}" for seed in (0, 1, 2)
    ]
    train, certify = plan.tasks[:2]
    folder = train.run.folder
    assert train.words == [
        *("train", "mnist-0.1-maar-cpu", "--seed", "0", "--threads", "1"),
        *("--runs", str(folder.parent), "--name", folder.name, "--resume"),
    ]
    assert certify.words == [
        *("certify", str(folder), "--preset", "complete", "--timeout", "10"),
        *("--workers", "1"),
    ]


def test_the_configuration_is_that_of_the_command(plan_of):
    (run, *_) = runs(plan_of("fig-lambda", **MNIST)).values()
    recipe = load("mnist-0.1-maar-cpu")
    wanted = dataclasses.replace(recipe, method=dataclasses.replace(recipe.method, lam=2.0))
    assert config_hash(run.config) == config_hash(wanted)
    assert run.name == "mnist-0.1-maar-cpu-lam-2-seed0"
    assert run.flags == ("--lam", "2")


def test_experiments_share_their_runs(plan_of):
    maar = runs(plan_of("table1", methods=("maar",), **MNIST))["MAAR", 0]
    assert runs(plan_of("fig-lambda", **MNIST))[6, 0] == maar
    assert runs(plan_of("ablation-weights", **MNIST))["MAAR, soft weight", 0] == maar
    assert runs(plan_of("fig-stages", **MNIST))["MAAR", 0] == maar
    others = runs(plan_of("fig-lambda", **MNIST))
    assert len({run.name for run in others.values()}) == 5


def test_experiments_share_their_certifications(plan_of):
    (_, certify) = plan_of("table1", methods=("maar",), seeds=(0,), **MNIST).tasks
    assert certify in plan_of("fig-eps", methods=("maar",), **MNIST).tasks
    assert certify in plan_of("table-stages", methods=("maar",), **MNIST).tasks
    assert certify in plan_of("fig-lambda", **MNIST).tasks


def test_several_experiments_at_once_do_nothing_twice(plan_of):
    plans = [plan_of(name, seeds=(0,), **MNIST) for name in ("fig-lambda", "ablation-weights")]
    together = ordered(point for plan in plans for point in plan.points)
    assert len(together) == sum(len(plan.tasks) for plan in plans) - 2


def test_every_row_has_its_first_seed_before_any_has_its_second(plan_of):
    plan = plan_of("table1", methods=("maar", "colt"), **MNIST)
    assert [task.run.seed for task in plan.tasks if task.what == "train"] == [0, 0, 1, 1, 2, 2]


def test_each_stage_is_certified_and_attacked(plan_of):
    plan = plan_of("table-stages", methods=("colt",), limit=100, **MNIST)
    assert [point.x for point in plan.points] == [1, 2, 3]
    commands = [" ".join(task.words[2:]) for task in plan.tasks[1:3]]
    weights = "--weights stage-1-last --limit 100"
    assert commands == [
        f"--preset complete --timeout 10 {weights} --workers 1",
        f"--layers 2 --steps 150 {weights}",
    ]
    assert "--weights" not in plan.tasks[-1].words  # the last stage is the run's end


@pytest.mark.parametrize(
    ("setting", "profile", "relu"),
    [
        ("cifar10-2_255", "paper", 3),
        ("cifar10-2_255", "cpu", 3),
        ("cifar10-2_255", "small", 2),
        ("mnist-0.1", "paper", 2),
    ],
)
def test_latent_robustness_is_measured_behind_the_last_convolution(plan_of, setting, profile, relu):
    plan = plan_of("table-stages", methods=("colt",), profile=profile, settings=(setting,))
    layers = [task.layer for task in plan.tasks if task.what == "evaluate"]
    assert set(layers) == {relu}


def test_profile_paper_measures_in_its_own_region_and_on_its_own_networks(plan_of):
    plan = plan_of("table-stages", methods=("colt",), profile="paper", **MNIST)
    evaluations = [task for task in plan.tasks if task.what == "evaluate"]
    assert all(task.words[task.words.index("--bounds") + 1] == "cauchy" for task in evaluations)
    assert not any("--bounds" in task.words for task in plan_of("table-stages", **MNIST).tasks)
    for setting, network in (
        ("mnist-0.1", "convmed_2_2_100"),
        ("cifar10-8_255", "convmed_2_4_250"),
    ):
        plan = plan_of("table1", methods=("ibp", "crown_ibp"), profile="paper", settings=(setting,))
        assert {run.config.network for run in runs(plan).values()} == {network}
        assert {run.recipe for run in runs(plan).values()} == {
            f"{setting}-{method}-papernet" for method in ("ibp", "crown_ibp")
        }
    # elsewhere they have the published settings, on CNN7
    plan = plan_of("methods", methods=("ibp",), profile="paper", **MNIST)
    assert {run.config.network for run in runs(plan).values()} == {"cnn7"}


def test_figures_of_trainings_note_accuracy_on_test_images(plan_of):
    assert all("--test-accuracy" in task.words for task in plan_of("fig2", **MNIST).tasks)
    assert not any("--test-accuracy" in task.words for task in plan_of("table1", **MNIST).tasks)


def test_trainings_on_gpus(plan_of):
    plan = plan_of("table1", methods=("maar",), profile="gpu", **MNIST)
    train, certify = plan.tasks[:2]
    assert train.words[train.words.index("--device") + 1] == "cuda"
    assert "--device" not in certify.words
    assert train.run.recipe == "mnist-0.1-maar-paper"
    assert train.run.name == "mnist-0.1-maar-gpu-seed0"


def test_several_radii(plan_of):
    plan = plan_of("fig-eps", methods=("colt",), **MNIST)
    assert [point.x for point in plan.points] == ["0.05", "0.075", "0.1", "0.125"]
    asked = [task.eps for task in plan.tasks if task.what == "certify"]
    assert asked == ["0.05", "0.075", None, "0.125"]


def test_curves_need_no_certification(plan_of):
    assert {task.what for task in plan_of("fig2", "smoke").tasks} == {"train"}


def test_around_another_method_its_own_knobs_are_kept(plan_of):
    found = runs(plan_of("beyond-1", methods=("ibp",), profile="smoke"))
    bare, around = found["IBP", 0].config, found["MAAR around IBP", 0].config
    assert around.method.name == "maar"
    assert around.method.base == bare.method


def test_a_row_without_a_recipe_is_skipped(plan_of, monkeypatch):
    there = [name for name in recipes() if name != "mnist-0.1-mat-cpu"]
    monkeypatch.setattr("maar.config.recipes", lambda: there)
    plan = plan_of("table1", methods=("maar", "mat"), **MNIST)
    assert plan.skipped == [("MAT (mnist-0.1)", "there is no recipe mnist-0.1-mat-cpu")]
    assert {point.row.label for point in plan.points} == {"MAAR"}
    with pytest.raises(UsageError, match=r"nothing to run here .*no recipe mnist-0\.1-mat-cpu"):
        plan_of("table1", methods=("mat",), **MNIST)


@pytest.mark.parametrize(
    ("name", "there", "skipped"),
    [
        (
            "table1",
            15,
            [
                *("cifar10-2_255-rs", "cifar10-2_255-diffai"),
                *("cifar10-8_255-crown_ibp", "cifar10-8_255-ibp"),
                *("cifar10-8_255-rs", "cifar10-8_255-diffai"),
            ],
        ),
        (
            "methods",
            23,
            [
                *("cifar10-2_255-diffai", "cifar10-2_255-rs", "cifar10-2_255-taps"),
                *("cifar10-2_255-staps", "cifar10-2_255-exp_ibp"),
                *("cifar10-2_255-trades", "cifar10-2_255-mart"),
            ],
        ),
    ],
)
def test_rows_that_the_cpu_has_no_recipe_for(plan_of, name, there, skipped):
    """As docs/reproduce.md says: change it with this."""
    plan = plan_of(name)
    assert [reason for _, reason in plan.skipped] == [
        f"there is no recipe {recipe}-cpu" for recipe in skipped
    ]
    assert len(plan.points) == there
    assert plan_of(name, "paper").skipped == []


def test_smoke_knows_one_setting(plan_of):
    plan = plan_of("fig2", "smoke")
    assert plan.skipped == [("cifar10-2_255", "profile smoke knows mnist-0.1 only")]
    assert all(task.run.config.data == "mnist_mini" for task in plan.tasks)
    with pytest.raises(UsageError, match=r"knows mnist-0\.1 only"):
        plan_of("fig2", "smoke", settings=("cifar10-2_255",))


def test_a_part_does_not_replace_the_whole(plan_of):
    assert plan_of("fig2").stem == "fig2"
    assert plan_of("fig2", methods=("colt",), **MNIST).stem == "fig2-mnist-0.1-colt"


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"settings": ("mnist-0.2",)}, "unknown --setting of table1 'mnist-0.2'; did you mean"),
        ({"methods": ("mar",)}, "unknown method of table1 'mar'; did you mean 'maar'"),
    ],
)
def test_what_is_not_there(plan_of, choice, message):
    with pytest.raises(UsageError, match=message):
        plan_of("table1", **choice)
