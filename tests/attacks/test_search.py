"""The attack of certification: only confirmed counterexamples, inside the ball, for open images."""

import pytest
import torch
from torch import nn

from maar.attacks import APGD, PGD, search
from maar.core.errors import UsageError
from maar.regions import Ball

QUICK = (
    PGD(steps=5, step_size=0.2, keep="best"),
    APGD(steps=10, restarts=2),
    APGD(steps=5, targeted=True),
)


@pytest.fixture
def found(trained, generator):
    ball = Ball(trained.x, 0.12)
    return search(trained.net, ball, trained.y, attacks=QUICK, generator=generator)


def test_counterexamples_hold_one_by_one(trained, found):
    assert 0 < found.broken.sum() < len(trained.x)
    with torch.no_grad():
        for i in found.broken.nonzero().squeeze(1).tolist():
            z = trained.net(found.point[i : i + 1])[0]
            assert z.argmax() != trained.y[i]
            assert found.margin[i] > 0


def test_points_are_inside_the_real_ball(trained, found):
    distance = (found.point.double() - trained.x.double()).abs().max()
    assert distance <= 0.12
    assert found.point.min() >= 0
    assert found.point.max() <= 1


@pytest.mark.parametrize(("targeted", "rows"), [(False, 3), (True, 2 * 9 + 1)])
def test_only_open_targets_are_attacked(trained, generator, targeted, rows):
    seen = []
    handle = trained.net[4].register_forward_hook(lambda _, v, __: seen.append(len(v[0])))
    targets = torch.zeros(len(trained.x), 10, dtype=torch.bool)
    targets[:2] = True  # y itself is no target, whatever the mask says
    targets[2, (trained.y[2] + 1) % 10] = True
    ball = Ball(trained.x, 0.0)  # nothing breaks, so every row runs to the end
    attack = PGD(steps=4, keep="best", targeted=targeted)
    search(trained.net, ball, trained.y, attacks=(attack,), generator=generator, targets=targets)
    handle.remove()
    assert seen.count(rows) == 5


def test_a_confirmed_point_is_never_replaced(trained):
    attacks = (PGD(steps=5, keep="best"), PGD(steps=50, keep="best", restarts=2, early_exit=False))
    ball = Ball(trained.x, 0.12)
    first = search(
        trained.net,
        ball,
        trained.y,
        attacks=attacks[:1],
        generator=torch.Generator().manual_seed(1),
    )
    both = search(
        trained.net, ball, trained.y, attacks=attacks, generator=torch.Generator().manual_seed(1)
    )
    assert torch.equal(first.point[first.broken], both.point[first.broken])
    assert both.broken[first.broken].all()


def test_a_find_that_is_only_rounding_does_not_count(generator):
    """z_0 - z_1 is 0 as real numbers; float32 sums 1e8 + 1 - 1e8 to another result per class."""

    class Rounding(nn.Module):
        def forward(self, x):
            v = x.flatten(1).sum(1)
            return torch.stack([v + 1, (v + 1e8 + 1) - 1e8], dim=1)

    x, y = torch.full((4, 3), 0.5), torch.ones(4, dtype=torch.long)
    net = nn.Sequential(Rounding())
    with torch.no_grad():
        z = net(x)
    assert (z[:, 0] > z[:, 1]).all()  # float32 is taken in
    result = search(net, Ball(x, 0.1), y, attacks=QUICK[:1], generator=generator)
    assert not result.broken.any()


def test_nan_weights_break_nothing(trained, generator):
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    with torch.no_grad():
        net[1].weight.fill_(float("nan"))
    result = search(
        net, Ball(trained.x[:5], 0.1), trained.y[:5], attacks=QUICK, generator=generator
    )
    assert not result.broken.any()


def test_labels_out_of_range_are_named(trained, generator):
    y = trained.y.clone()
    y[3] = 10
    with pytest.raises(UsageError, match=r"label 10 is out of range \(accepted: 0 to 9"):
        search(trained.net, Ball(trained.x, 0.1), y, generator=generator)


def test_training_mode_is_refused_where_it_matters(generator):
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 3))
    ball, y = Ball(torch.rand(5, 4), 0.1), torch.zeros(5, dtype=torch.long)
    with pytest.raises(UsageError, match=r"layer 1 \(BatchNorm1d\) is in training mode"):
        search(net, ball, y, generator=generator)
    search(net.eval(), ball, y, attacks=QUICK, generator=generator)


def test_weights_are_left_alone(trained, found):
    for parameter in trained.net.parameters():
        assert parameter.grad is None
        assert parameter.requires_grad
