"""Lower precision in the loss: weights stay float32, and what a device cannot do is refused."""

import dataclasses

import pytest
import torch

import maar.training.precision
import maar.training.trainer
from maar.attacks import APGD, PGD
from maar.core.eps import Eps
from maar.domains.cauchy.estimate import Cauchy
from maar.methods.base import Batch
from maar.methods.colt import COLT
from maar.methods.maar import MAAR
from maar.networks import make
from maar.regions import Ball
from maar.training.checkpoint import load_weights
from maar.training.display import Display
from maar.training.precision import check_precision
from maar.training.trainer import train


def replaced(config, **values):
    """The configuration with settings of its `train` table changed."""
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **values))


class Warnings(Display):
    """Keeps what it is told."""

    def __init__(self):
        self.lines = []

    def warn(self, line):
        self.lines.append(line)


def test_bf16_trains_float32_weights(tiny_pgd, tmp_path, monkeypatch):
    monkeypatch.setattr(maar.training.precision, "cpu_flags", lambda: {"avx2"})
    seen, display = set(), Warnings()
    loss = type(tiny_pgd.method).loss

    def watched(self, batch):
        seen.add(batch.net(batch.x).dtype)
        return loss(self, batch)

    monkeypatch.setattr(type(tiny_pgd.method), "loss", watched)
    train(replaced(tiny_pgd, precision="bf16"), tmp_path / "bf16", display=display)
    assert seen == {torch.bfloat16}
    assert display.lines == [
        "this CPU has no bfloat16 arithmetic: precision = 'bf16' is slower than '32' here"
    ]
    low, _ = load_weights(tmp_path / "bf16" / "model.safetensors")
    assert all(weight.dtype == torch.float32 for weight in low.values())
    train(tiny_pgd, tmp_path / "32")
    full, _ = load_weights(tmp_path / "32" / "model.safetensors")
    assert not all(torch.equal(low[key], full[key]) for key in full)
    assert all(torch.allclose(low[key], full[key], atol=0.1) for key in full)


@pytest.mark.parametrize(
    ("precision", "dtype"), [(None, None), (torch.bfloat16, torch.bfloat16), (torch.float16, None)]
)
def test_of_layerwise_bounds_projections_alone_are_in_bf16(monkeypatch, precision, dtype):
    seen = []

    def enclose(self, problem):
        seen.append((self.dtype, torch.is_autocast_enabled("cpu")))
        return enclosed(self, problem)

    enclosed = Cauchy.enclose
    monkeypatch.setattr(Cauchy, "enclose", enclose)
    net = make("convmed_2_2_100", (1, 28, 28), 10, [0.1], [0.3])
    method = COLT()
    stage = method.stages(net, Eps(0.1), 20)[1]
    at = {name: schedule(0.0) for name, schedule in stage.schedules.items()}
    batch = Batch(
        net=net, x=torch.rand(2, 1, 28, 28), y=torch.tensor([1, 2]), eps=0.1, stage=stage,
        generator=torch.Generator(), at=at, index=torch.arange(2), memo={},
    )  # fmt: skip
    with torch.autocast("cpu", precision, enabled=precision is not None):
        method.loss(batch)
    assert set(seen) == {(dtype, False)}


@pytest.mark.parametrize(
    "attack",
    [
        PGD(steps=2, keep="best"),
        PGD(steps=2, restarts=2),
        PGD(steps=2, early_exit=True),
        APGD(steps=3),
    ],
)
def test_every_attack_runs_within_autocast(attack):
    net = make("convmed_2_2_100", (1, 28, 28), 10, [0.1], [0.3])
    ball = Ball(torch.rand(3, 1, 28, 28), 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        (e,) = attack(net, ball, torch.tensor([1, 2, 3]), generator=torch.Generator())
    assert e.dtype == torch.float32
    assert e.abs().max() <= 1


def test_layerwise_training_runs_in_bf16(tiny, conv_network, tmp_path):
    """Its bounds are estimates for training, so they may."""
    config = dataclasses.replace(tiny, method=MAAR(), network=conv_network)
    result = train(replaced(config, precision="bf16"), tmp_path / "run")
    assert {"natural", "adversarial", "consistency"} <= set(result["loss"])


def test_a_cpu_with_bfloat16_needs_no_warning(monkeypatch):
    monkeypatch.setattr(maar.training.precision, "cpu_flags", lambda: {"avx2", "amx_bf16"})
    assert check_precision("bf16", torch.device("cpu")) == ""
    assert check_precision("32", torch.device("cpu")) == ""
