"""RS: its terms by hand, and the pruning at the end."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from maar.attacks.pgd import PGD
from maar.config import Config, TrainConfig
from maar.domains.graph import trace
from maar.domains.interval import Interval
from maar.methods.base import Batch, Stage
from maar.methods.maar import MAAR
from maar.methods.pgd import PGDTraining
from maar.methods.rs import RS, matrix_norm, prune_neurons, prune_weights
from maar.methods.schedules import Constant
from maar.networks import make
from maar.regions import Ball
from maar.training.run import load_network
from maar.training.trainer import Trainer, train

ATTACK = PGD(steps=3, step_size=0.5)


def make_batch(net, eps=0.05, **at):
    generator = torch.Generator().manual_seed(0)
    return Batch(
        net=net,
        x=torch.rand(12, 1, 6, 6, generator=generator),
        y=torch.randint(3, (12,), generator=generator),
        eps=eps,
        stage=Stage("input", 1, Constant(eps)),
        generator=torch.Generator().manual_seed(1),
        at=at,
    )


def mlp():
    return make("mlp", (1, 6, 6), 3, [0.5], [0.5], seed=0)


def test_the_terms_by_hand():
    batch = make_batch(mlp(), radius=0.1)
    terms = RS(attack=ATTACK, stability=2e-3, l1=1e-4).loss(batch)
    assert set(terms) == {"adversarial", "stability", "l1"}
    pre = Interval()(batch.net, Ball(batch.x, 0.1)).pre
    stable = sum(math.tanh(1 + x) for lb, ub in pre for x in (lb * ub).flatten().tolist())
    assert terms["stability"].item() == pytest.approx(-2e-3 * stable / len(batch.x), rel=1e-4)
    layers = [layer for layer in batch.net if isinstance(layer, nn.Linear)]
    norm = sum(float(layer.weight.detach().abs().sum()) for layer in layers[:-1])
    assert terms["l1"].item() == pytest.approx(1e-4 * norm, rel=1e-5)


def test_the_stability_of_a_convolution_is_a_sum_or_a_mean_over_its_positions():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(18, 5), nn.ReLU(), nn.Linear(5, 3),
    )  # fmt: skip
    batch = make_batch(net, radius=0.1)
    (conv, linear) = (
        (1 + lb * ub).tanh().sum().item() / len(batch.x)
        for lb, ub in Interval()(net, Ball(batch.x, 0.1)).pre
    )
    summed, mean = (
        RS(attack=ATTACK, stability=1.0, l1=0.0, positions=how).loss(batch)["stability"].item()
        for how in ("sum", "mean")
    )
    assert summed == pytest.approx(-(conv + linear), rel=1e-5)
    assert mean == pytest.approx(-(conv / 9 + linear), rel=1e-5)


def test_a_convolution_counts_as_the_matrix_that_it_is():
    conv = nn.Conv2d(1, 2, 3, 2, 1, bias=False)
    net = nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(18, 3))
    expected = 9 * conv.weight.abs().sum()  # 3 x 3 positions; the last layer is left out
    torch.testing.assert_close(matrix_norm(trace(net, (1, 6, 6))), expected)


def test_without_its_terms_it_is_adversarial_training():
    found = RS(attack=ATTACK, stability=0.0, l1=0.0).loss(make_batch(mlp()))
    expected = PGDTraining(attack=ATTACK).loss(make_batch(mlp()))
    torch.testing.assert_close(found["adversarial"], expected["adversarial"])
    assert found["stability"] == 0


def test_better_bounds_find_more_ReLUs_stable():
    batches = [make_batch(mlp()) for _ in range(2)]
    loose, tight = (
        RS(attack=ATTACK, error_terms=terms).loss(batch)["stability"]
        for terms, batch in zip((0, 36), batches, strict=True)
    )
    assert tight < loose
    assert batches[1].notes["unstable_relu_2"][0] < batches[0].notes["unstable_relu_2"][0]


def test_small_weights_go_but_for_the_last_layer():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[0.5, -0.01], [0.02, -0.5]]))
        net[2].weight.fill_(1e-6)
    assert prune_weights(net, 0.015) == 0.25
    assert net[0].weight.tolist() == [[0.5, 0.0], [pytest.approx(0.02), -0.5]]
    assert bool((net[2].weight != 0).all())


def test_idle_neurons_are_silenced_and_a_channel_only_as_a_whole():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3, 1, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(8, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2),
    ).eval()  # fmt: skip
    channels = torch.tensor([[[True, True], [True, True]], [[True, False], [True, True]]])
    assert prune_neurons(net, [channels, torch.tensor([False, True, False])]) == 4 + 1
    h = net[0](torch.rand(5, 1, 2, 2))
    assert not h[:, 0].any()
    assert h[:, 1].any()
    assert not net[3:5](torch.rand(5, 8))[:, 1].any()


@pytest.fixture
def config(tmp_path):
    import numpy as np

    rng = np.random.RandomState(0)
    y = np.arange(120) % 3
    x = rng.randint(0, 120, (120, 1, 6, 6))
    x[np.arange(120), 0, 2 * y] += 130
    x, path = x.astype(np.uint8), tmp_path / "tiny.npz"
    np.savez(path, x_train=x, y_train=y, x_test=x[:30], y_test=y[:30], layout="NCHW")
    return Config(
        data=f"npz:{path}",
        network="mlp",
        method=RS(attack=ATTACK, prune=0.02),
        threads=1,
        train=TrainConfig(epochs=1, batch=24, average="ema"),
    )


def test_a_run_ends_pruned_and_says_so(config, tmp_path):
    result = train(config, tmp_path / "run")
    assert 0.05 < result["finish"]["weights_pruned"] < 1
    net, _ = load_network(tmp_path / "run")
    first = next(layer for layer in net if isinstance(layer, nn.Linear))
    assert bool(((first.weight == 0) | (first.weight.abs() >= 0.02)).all())
    assert bool((first.weight == 0).any())
    before, _ = load_network(tmp_path / "run", "stage-1-last")
    assert not bool((before[2].weight == 0).any())


def test_a_run_that_is_stopped_while_it_is_finished_ends_the_same(config, tmp_path, monkeypatch):
    train(config, tmp_path / "whole")

    class Crash(BaseException):
        pass

    def crash(*_):
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_result", crash)
        with pytest.raises(Crash):
            train(config, tmp_path / "stopped")
    assert (tmp_path / "stopped" / "model.safetensors").exists()
    train(config, tmp_path / "stopped", resume=True)
    files = [tmp_path / run / "model.safetensors" for run in ("whole", "stopped")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_maar_around_it_prunes_too(config, tmp_path):
    config = dataclasses.replace(config, method=MAAR(base=config.method))
    assert train(config, tmp_path / "run")["finish"]["weights_pruned"] > 0.05
