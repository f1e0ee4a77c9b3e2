"""TRADES and MART: their terms by hand, and the point that TRADES climbs to."""

import pytest
import torch

from maar.attacks.pgd import PGD
from maar.core.errors import UsageError
from maar.methods.base import Batch, Stage
from maar.methods.consistency import consistency
from maar.methods.mart import MART
from maar.methods.schedules import Constant
from maar.methods.trades import TRADES
from maar.networks import make


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    net = make("mlp", (1, 6, 6), 4, [0.5], [0.5], seed=0)
    return Batch(
        net=net,
        x=torch.rand(16, 1, 6, 6, generator=generator),
        y=torch.randint(4, (16,), generator=generator),
        eps=0.1,
        stage=Stage("input", 1, Constant(0.1)),
        generator=torch.Generator().manual_seed(1),
    )


def parts(method, batch):
    state = batch.generator.get_state()
    outputs = method.outputs(batch)
    batch.generator.set_state(state)
    [(weight, z)] = outputs.worst
    assert weight == 1
    return outputs.nat.log_softmax(1), z.log_softmax(1), method.loss(batch)


def test_trades_by_hand(batch):
    p, q, terms = parts(TRADES(lam=2.0), batch)
    natural = -p[torch.arange(16), batch.y].mean()
    divergence = (p.exp() * (p - q)).sum(1).mean()
    torch.testing.assert_close(terms["natural"], natural)
    torch.testing.assert_close(terms["kl"], 2 * divergence)


@pytest.mark.parametrize(
    ("setting", "value", "accepted"),
    [
        ("restarts", 2, "1"),
        ("keep", "best", "'last'"),
        ("loss", "margin", "'cross_entropy'"),
        ("targeted", True, "false"),
        ("early_exit", True, "false"),
        ("random_start", False, "true"),
    ],
)
def test_trades_refuses_what_an_attack_without_labels_cannot_do(setting, value, accepted):
    with pytest.raises(UsageError, match=rf"attack\.{setting} = .*\(accepted: {accepted}:"):
        TRADES(attack=PGD(**{"steps": 3, "step_size": 0.5, setting: value}))


def test_mart_by_hand(batch):
    p, q, terms = parts(MART(lam=3.0), batch)
    boosted = kl = 0.0
    for i, y in enumerate(batch.y.tolist()):
        others = [q[i, k].exp().item() for k in range(4) if k != y]
        boosted += -q[i, y].item() - torch.tensor(1 - max(others) + 1e-4).log().item()
        distance = (p[i].exp() * (p[i] - q[i])).sum().item()
        kl += distance * (1 - p[i, y].exp().item())
    assert terms["boosted"].item() == pytest.approx(boosted / 16, rel=1e-4)
    assert terms["kl"].item() == pytest.approx(3 * kl / 16, rel=1e-4)


def test_trades_climbs_the_divergence(batch):
    """More steps are further away; and the labels play no part."""
    distances = []
    for steps in (0, 1, 10):
        batch.generator.manual_seed(1)
        method = TRADES(attack=PGD(steps=steps, step_size=0.25))
        with torch.no_grad():
            z, z_adv = batch.net(batch.x), batch.net(method.adversary(batch))
        distances.append(consistency(z, z_adv).mean().item())
    assert distances == sorted(distances)
    assert distances[2] > 1.5 * distances[0]
    batch.generator.manual_seed(1)
    here = TRADES().adversary(batch)
    batch.generator.manual_seed(1)
    batch.y = (batch.y + 1) % 4
    assert torch.equal(TRADES().adversary(batch), here)


def test_the_fast_gradient_of_soft_labels_is_autograds(batch, monkeypatch):
    method = TRADES(attack=PGD(steps=3, step_size=0.25))
    fast = method.adversary(batch)
    monkeypatch.setattr("maar.attacks.rows.Rows.climber", None)
    batch.generator.manual_seed(1)
    torch.testing.assert_close(method.adversary(batch), fast)


def test_gradients_flow_through_both_distributions(batch):
    terms = TRADES().loss(batch)
    terms["kl"].backward()
    assert all(p.grad.any() for p in batch.net.parameters())
