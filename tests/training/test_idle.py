"""What the configuration calls a setting without effect has none."""

import dataclasses

import pytest

from maar.attacks.pgd import PGD
from maar.config.idle import idle
from maar.methods import METHODS
from maar.training.trainer import train

# method, its settings, and values of settings that are idle with them
CASES = {
    "stage_epochs": ("colt", {"stage_epochs": (1, 1)}, {}, {"epochs": 5}),
    "adam": ("standard", {}, {}, {"momentum": 0.1, "lr_decay": 0.9, "lr_decay_epochs": (1,)}),
    "one_cycle": ("standard", {}, {}, {"lr_decay_from": 1, "lr_decay_every": 1}),
    "average": ("standard", {}, {}, {"ema_decay": 0.1, "average_from": 1, "latent_steps": 3}),
    "mix": ("colt", {"mix": 0.0}, {"anneal": True}, {}),
    "max_stages": (
        "colt",
        {"max_stages": 1},
        {"eps_growth": 2.0, "lr_growth": 0.1, "stability_growth": 9.0},
        {},
    ),
    "stability": (
        "colt",
        {"stability": 0.0},
        {"stability_growth": 9.0, "stability_images": 0.5},
        {},
    ),
    "lam": ("maar", {"lam": 0.0}, {"weight": "hard"}, {}),
    "suffix": (
        "taps",
        {"suffix": 0},
        {"weight": 1.0, "reach": 1.0, "anneal": False, "latent": PGD(steps=1)},
        {},
    ),
    "whole box": ("staps", {"lam": 1.0}, {"attack": PGD(steps=1)}, {}),
    "ramp": ("ibp", {"ramp": 0.0}, {"ramp_shape": "linear"}, {}),
    "domain": ("diffai", {"domain": "box"}, {"error_terms": 1}, {}),
    "positions": ("rs", {"stability": 0.0}, {"positions": "mean"}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_an_idle_setting_changes_no_weight(tiny_pgd, conv_network, tmp_path, case):
    name, settings, other_method, other_train = CASES[case]
    config = dataclasses.replace(
        tiny_pgd, network=conv_network, valid=0, method=METHODS[name](**settings)
    )
    other = dataclasses.replace(
        config,
        method=dataclasses.replace(config.method, **other_method),
        train=dataclasses.replace(config.train, **other_train),
    )
    paths = {path for path, _ in idle(other)}
    for key in other_method:
        assert any(path[:2] == ("method", key) for path in paths), key
    for key in other_train:
        assert ("train", key) in paths
    for folder, each in (("one", config), ("other", other)):
        train(each, tmp_path / folder)
    one, two = ((tmp_path / folder / "model.safetensors") for folder in ("one", "other"))
    # (the header has the hash of the configuration)
    assert tensors(one) == tensors(two)


def tensors(path):
    data = path.read_bytes()
    return data[8 + int.from_bytes(data[:8], "little") :]
