"""Settings without effect are refused where somebody asks for them, and nowhere else."""

import pytest

from maar.config import Config, load, recipes, to_toml
from maar.config.dump import to_table
from maar.config.flags import parse_command
from maar.config.idle import effective, idle
from maar.core.errors import UsageError
from maar.core.settings import OnlyWith, hints, is_group
from maar.methods import METHODS
from maar.methods.maar import MAAR

HEAD = 'data = "mnist_mini"\n[method]\nname = "colt"\n'


def parsed(*words):
    return parse_command(words, prog="maar x", description="")[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--epochs 1",
            "--epochs 1 has no effect with stage_epochs = 8,3,2 "
            "(give --stage-epochs 1 instead, or --stage-epochs none too)",
        ),
        ("--momentum 0.9", "--momentum 0.9 has no effect with optimizer = adam (give --opt"),
        ("--lr-decay 0.5", r"one_cycle (give --lr-schedule steps or --lr-schedule halving too)"),
        ("--lr-decay-epochs 5", "with lr_schedule = one_cycle (give --lr-schedule steps too)"),
        ("--lr-decay-from 5 --lr-schedule steps", "--lr-decay-from 5 has no effect"),
        ("--lr-decay-every 5 --lr-schedule constant", "--lr-decay-every 5 has no effect"),
        ("--ema-decay 0.5 --average swa", "has no effect with average = swa (give --average ema"),
        ("--average-from 2", "(give --average ema or --average swa too)"),
        ("--latent-steps 5", "with latent_images = 0 (give another --latent-images)"),
        ("--anneal true --mix 0", "--anneal true has no effect with mix = 0.0 (give another"),
        ("--stability 0 --stability-growth 2", "--stability-growth 2.0 has no effect"),
        ("--max-stages 1 --stability-growth 2", "has no effect with max_stages = 1"),
        ("--stability 0 --stability-images 0.5", "--stability-images 0.5 has no effect"),
        ("--max-stages 1 --eps-growth 1", "--eps-growth 1.0 has no effect with max_stages = 1"),
        ("--max-stages 1 --lr-growth 1", "--lr-growth 1.0 has no effect with max_stages = 1"),
        ("--lam 0 --weight hard", "--weight hard has no effect with lam = 0.0"),
        ("--method taps --suffix 0 --weight 2", "--weight 2.0 has no effect with suffix = 0"),
        ("--method taps --suffix 0 --latent.steps 4", "--latent.steps 4 has no effect"),
        ("--method staps --lam 1 --attack.steps 3", "--attack.steps 3 has no effect with lam"),
        ("--method ibp --ramp 0 --ramp-shape linear", "--ramp-shape linear has no effect"),
        ("--method diffai --domain box --error-terms 3", "(give --domain hybrid too)"),
        ("--method rs --stability 0 --positions mean", "--positions mean has no effect"),
    ],
)
def test_flags(words, message):
    with pytest.raises(UsageError) as caught:
        parsed("demo", *words.split())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        "--stage-epochs none --epochs 1",
        "--stage-epochs 1",
        "--method standard --epochs 1",
        "--optimizer sgd --momentum 0.5",
        "--lr-schedule steps --lr-decay 0.5 --lr-decay-epochs 3",
        "--lr-schedule halving --lr-decay 0.5 --lr-decay-from 1 --lr-decay-every 3",
        "--average ema --ema-decay 0.9 --average-from 1",
        "--latent-images 10 --latent-steps 4",
        "--anneal true",
        "--anneal false --mix 0",
        "--lr-decay-epochs none",
        "--method staps --lam 0.5 --attack.steps 3",
        "--method ibp --ramp-shape linear",
    ],
)
def test_flags_with_an_effect(words):
    parsed("demo", *words.split())


def test_stage_epochs_can_be_unset():
    config = parsed("demo", "--stage-epochs", "none", "--epochs", "3")
    assert (config.method.base.stage_epochs, config.train.epochs) == ((), 3)


def test_a_flag_may_make_a_setting_of_the_file_idle(tmp_path):
    (tmp_path / "c.toml").write_text(f'{HEAD}[train]\noptimizer = "sgd"\nmomentum = 0.5\n')
    config = parsed(str(tmp_path / "c.toml"), "--optimizer", "adam")
    assert config.train.optimizer == "adam"


def test_a_file_that_contradicts_itself(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(f"{HEAD}stage_epochs = [2, 1]\n[train]\nmomentum = 0.9\nepochs = 7\n")
    message = (
        "c.toml:7: train.epochs = 7 has no effect with stage_epochs = 2,1 "
        r"\(give method.stage_epochs = \[7\] instead, or method.stage_epochs = \[\] too\)"
    )
    with pytest.raises(UsageError, match=message):
        load(path)
    with pytest.raises(UsageError, match=message):
        parsed(str(path))
    path.write_text(f"{HEAD}[method.attack]\nsteps = 3\n[train]\nmomentum = 0.5\n")
    with pytest.raises(
        UsageError, match=r"momentum = 0.5 .* \(give train.optimizer = \"sgd\" too\)"
    ):
        load(path)


def test_a_default_that_is_written_out_contradicts_nothing(tmp_path):
    (tmp_path / "c.toml").write_text(f"{HEAD}[train]\nmomentum = 0.9\nlr_decay = 0.2\n")
    load(tmp_path / "c.toml")


def test_the_file_of_a_run_is_taken_as_it_is(tmp_path):
    """Runs from before may have been begun with such flags."""
    text = to_toml(load("demo")).replace("epochs = 20", "epochs = 7")
    assert "epochs = 7" in text
    (tmp_path / "config.toml").write_text(text)
    assert load(tmp_path).train.epochs == 7
    assert parsed(str(tmp_path), "--seed", "1").train.epochs == 7
    with pytest.raises(UsageError, match="--epochs 7 has no effect"):
        parsed(str(tmp_path), "--epochs", "7")


@pytest.mark.parametrize("name", recipes())
def test_no_recipe_contradicts_itself(name):
    load(name)


def marks(cls):
    for name, hint in hints(cls).items():
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, OnlyWith):
                yield name, mark
        if is_group(hint) and cls is Config and name == "train":
            yield from marks(type(Config().train))


@pytest.mark.parametrize("name", METHODS)
def test_the_other_setting_exists(name):
    """A name with a typing mistake would never be found idle."""
    for cls in (Config, METHODS[name]):
        for _, mark in marks(cls):
            if mark.name == "method.stage_epochs":
                assert "stage_epochs" in hints(METHODS["colt"])
            else:
                assert mark.name in hints(cls) or mark.name in hints(type(Config().train))


def test_what_is_idle_by_default():
    names = {".".join(path) for path, _ in idle(Config(method=MAAR()))}
    assert names == {
        *("train.lr_decay", "train.lr_decay_epochs", "train.lr_decay_from", "train.lr_decay_every"),
        *("train.momentum", "train.ema_decay", "train.average_from", "train.latent_steps"),
        "method.base.anneal",
    }


def test_a_comparison_sees_settings_with_an_effect_only():
    table = to_table(Config(method=MAAR()))
    kept = effective(table)
    assert "momentum" in table["train"]  # of sgd
    assert "momentum" not in kept["train"]
    assert kept["train"]["lr"] == table["train"]["lr"]
    assert effective({"method": {"name": "maar"}}) == {"method": {"name": "maar"}}
    assert effective({"method": {"name": "gone"}}) == {"method": {"name": "gone"}}
