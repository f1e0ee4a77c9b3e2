"""Latent robustness at the end of each stage: what `maar evaluate` says, and no other training."""

import dataclasses

import pytest
import torch

from maar.attacks import PGD
from maar.core.errors import UsageError
from maar.data import load as load_data
from maar.methods.colt import COLT
from maar.records.runs import read_run
from maar.training import trainer
from maar.training.evaluate import latent_robustness
from maar.training.metrics import LATENT, measure
from maar.training.run import load_network
from maar.training.tensorboard import _scalars
from maar.training.trainer import train

LAYERS = ("latent_robustness_0", "latent_robustness_1", "latent_robustness_2")


@pytest.fixture
def tiny_colt(tiny, conv_network):
    """Two stages of two epochs, and 15 of the 20 validation images for latent robustness."""
    method = COLT(attack=PGD(steps=1, step_size=0.5))
    config = dataclasses.replace(tiny, network=conv_network, method=method, seed=3)
    return replaced(config, average="ema", latent_images=15, latent_steps=20)


def replaced(config, **values):
    """The configuration with settings of its `train` table changed."""
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **values))


def outcome(run):
    """The weights, and the metrics without times and latent robustness."""
    lines = read_run(run).metrics
    for line in lines:
        del line["seconds"], line["images_per_second"]
        line["valid"] = {name: x for name, x in line["valid"].items() if name not in LAYERS}
    return (run / "model.safetensors").read_bytes(), lines


def latent(run):
    """By epoch of the run."""
    found = [[line["valid"].get(layer) for layer in LAYERS] for line in read_run(run).metrics]
    return [None if set(shares) == {None} else shares for shares in found]


def test_it_is_that_of_the_stages_weights_and_changes_nothing_else(
    tiny_colt, tmp_path, monkeypatch
):
    asked = []

    def watched(config, net, *others):
        asked.append({name: value.clone() for name, value in net.state_dict().items()})
        return latent_robustness(config, net, *others)

    monkeypatch.setattr(trainer, "latent_robustness", watched)
    train(tiny_colt, tmp_path / "with")
    train(replaced(tiny_colt, latent_images=0), tmp_path / "without")
    assert outcome(tmp_path / "with") == outcome(tmp_path / "without")
    assert latent(tmp_path / "without") == [None] * 4
    found = latent(tmp_path / "with")
    data = load_data(tiny_colt.data, valid=tiny_colt.valid)
    for stage in (1, 2):
        net, config = load_network(tmp_path / "with", f"stage-{stage}-last")

        def shares(steps, limit, net=net, eps=float(config.eps)):
            attack = dataclasses.replace(LATENT, steps=steps)
            there = measure(net, data, eps, split="valid", limit=limit, attack=attack, seed=3)
            return list(there.latent_robustness.values())

        # The average's, which is what is judged: shares of 15 images might well be the same.
        for name, value in net.state_dict().items():
            assert torch.equal(asked[stage - 1][name], value)
        assert found[2 * stage - 1] == shares(20, 15)
        assert found[2 * stage - 1] not in (shares(150, 15), shares(20, 20))
    assert found[0] is found[2] is None
    assert len(asked) == 2
    scalars = dict(_scalars(read_run(tmp_path / "with").metrics[3]))
    assert [scalars[f"valid/{layer}"] for layer in LAYERS] == found[3]


def test_a_resumed_run_has_it_and_may_ask_for_it_later(tiny_colt, tmp_path, monkeypatch):
    train(tiny_colt, tmp_path / "whole")
    for name, asked in (("same", tiny_colt), ("later", replaced(tiny_colt, latent_images=0))):
        with monkeypatch.context() as patch:
            patch.setattr(COLT, "loss", crash_at(20))
            with pytest.raises(Crash):
                train(asked, tmp_path / name)
        train(tiny_colt, tmp_path / name, resume=True)
        assert outcome(tmp_path / name) == outcome(tmp_path / "whole")
    first, whole = latent(tmp_path / "later"), latent(tmp_path / "whole")
    assert latent(tmp_path / "same") == whole
    assert first == [None, None, None, whole[3]]


class Crash(Exception):
    """The end of a process."""


def crash_at(step):
    """COLT's loss, for so many steps."""
    loss, steps = COLT.loss, iter(range(step))

    def counted(self, batch):
        if next(steps, None) is None:
            raise Crash
        return loss(self, batch)

    return counted


def test_it_needs_images_to_validate_on(tiny_colt, tmp_path):
    with pytest.raises(UsageError, match="latent_images = 15 needs images to validate on"):
        train(dataclasses.replace(tiny_colt, valid=0), tmp_path / "run")
    assert not (tmp_path / "run").exists()
