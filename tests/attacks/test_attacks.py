"""What holds for every attack on every region. A new one of either is one row in a table here."""

import pytest
import torch
from torch import nn

from maar.attacks import APGD, PGD, margin
from maar.attacks.attack import suffix_of
from maar.core.errors import UsageError
from maar.regions import Ball, LatentBox, LatentZonotope, SmallBox

ATTACKS = {
    "pgd": PGD(steps=5),
    "pgd_best": PGD(steps=5, keep="best"),
    "pgd_exit": PGD(steps=5, early_exit=True),
    "pgd_restarts": PGD(steps=3, restarts=3, loss="margin"),
    "pgd_targeted": PGD(steps=3, targeted=True, keep="best", early_exit=True),
    "pgd_centre": PGD(steps=4, random_start=False, loss="dlr"),
    "pgd_no_steps": PGD(steps=0),
    "apgd": APGD(steps=10),
    "apgd_no_exit": APGD(steps=10, early_exit=False, loss="cross_entropy"),
    "apgd_targeted": APGD(steps=6, restarts=2, targeted=True, loss="dlr"),
    "apgd_no_steps": APGD(steps=0),
}


def zonotope(net, ball):
    pre = []
    with torch.no_grad():
        for layer, v in ((net[2], net[:2](ball.x)), (net[5], net[:5](ball.x))):
            assert isinstance(layer, nn.ReLU)
            pre.append((v - 0.4, v + 0.4))
    return LatentZonotope(net[:6], ball, pre)


REGIONS = {
    "ball": lambda net, x: Ball(x, 0.1),
    "ball_per_image": lambda net, x: Ball(x, torch.linspace(0, 0.2, len(x))),
    "ball_per_pixel": lambda net, x: Ball(x, 0.1 * torch.linspace(0, 1, 28).view(1, 28)),
    "small_box": lambda net, x: SmallBox(Ball(x, 0.1), x, 0.4),
    "latent_box": lambda net, x: LatentBox(net[:3](x) - 0.1, net[:3](x) + 0.1, at=3),
    "latent_zonotope": lambda net, x: zonotope(net, Ball(x, 0.1)),
}


@pytest.fixture
def batch(trained):
    return trained.net, trained.x[:12], trained.y[:12]


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_every_attack_runs_on_every_region(attack, region, batch, generator):
    net, x, y = batch
    region = REGIONS[region](net, x)
    e = ATTACKS[attack](net, region, y, generator=generator)
    assert tuple(group.shape for group in e) == tuple(region.shapes)
    for group in e:
        assert not group.requires_grad
        assert group.abs().max() <= 1
    again = ATTACKS[attack](net, region, y, generator=torch.Generator().manual_seed(0))
    for one, other in zip(e, again, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("attack", [name for name in ATTACKS if "no_steps" not in name])
def test_an_attack_is_worse_than_a_random_point(attack, region, batch, generator):
    net, x, y = batch
    region = REGIONS[region](net, x)
    e = ATTACKS[attack](net, region, y, generator=generator)
    with torch.no_grad():
        suffix = suffix_of(net, region)
        found = margin(suffix(region.point(e)), y)
        random = margin(suffix(region.point(region.random_start(generator))), y)
    # A targeted last iterate may be worse for one image; the batch shows that it climbs.
    assert found.mean() > random.mean()


@pytest.mark.parametrize("attack", ATTACKS)
def test_weights_are_left_alone(attack, batch, generator):
    net, x, y = batch
    net[1].bias.requires_grad_(False)  # frozen by the caller, must stay so
    try:
        before = {name: p.detach().clone() for name, p in net.named_parameters()}
        flags = {name: p.requires_grad for name, p in net.named_parameters()}
        ATTACKS[attack](net, Ball(x, 0.1), y, generator=generator)
        for name, parameter in net.named_parameters():
            assert parameter.grad is None
            assert parameter.requires_grad == flags[name]
            assert torch.equal(parameter, before[name])
    finally:
        net[1].bias.requires_grad_(True)


def test_flags_come_back_after_an_interrupt(batch, generator):
    net, x, y = batch

    def interrupt(*_):
        raise KeyboardInterrupt

    handle = net[4].register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        PGD()(net, Ball(x, 0.1), y, generator=generator)
    handle.remove()
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_no_weight_gradient_is_computed(batch, generator):
    net, x, y = batch
    seen = []
    handle = net[4].register_forward_hook(lambda layer, *_: seen.append(layer.weight.requires_grad))
    PGD(steps=2)(net, Ball(x, 0.1), y, generator=generator)
    handle.remove()
    assert seen == [False, False]


def test_steps_are_updates_and_each_is_one_forward_pass(batch, generator):
    net, x, y = batch
    passes = []
    handle = net[4].register_forward_hook(lambda *_: passes.append(1))
    ball = Ball(x, 0.1)
    start = ball.random_start(torch.Generator().manual_seed(0))[0]
    (last,) = PGD(steps=7, step_size=0.01)(net, ball, y, generator=generator)
    assert len(passes) == 7
    assert (last - start).abs().max() == pytest.approx(0.07, abs=1e-5)
    PGD(steps=7, keep="best")(net, ball, y, generator=generator)
    assert len(passes) == 7 + 8
    APGD(steps=7, early_exit=False)(net, ball, y, generator=generator)
    assert len(passes) == 7 + 8 + 8
    handle.remove()


def test_attack_works_where_gradients_are_off(batch, generator):
    net, x, y = batch
    with torch.no_grad():
        (e,) = PGD()(net, Ball(x, 0.1), y, generator=generator)
    assert e.abs().max() == 1


def test_graph_behind_a_latent_box_survives_the_attack(batch, generator):
    """TAPS: the attack runs on bounds that still carry the gradient to the weights before them."""
    net, x, y = batch
    hidden = net[:3](x)
    box = LatentBox(hidden - 0.1, hidden + 0.1, at=3)
    for attack in (PGD(steps=2), PGD(steps=2, early_exit=True, restarts=2)):
        e = attack(net, box, y, generator=generator)
    nn.functional.cross_entropy(net[3:](box.point(e)), y).backward()
    assert net[1].weight.grad.abs().sum() > 0
    net.zero_grad(set_to_none=True)


def test_an_empty_batch_is_no_trouble(batch, generator):
    net, x, y = batch
    for attack in ATTACKS.values():
        (e,) = attack(net, Ball(x[:0], 0.1), y[:0], generator=generator)
        assert len(e) == 0


def test_any_module_at_the_input_but_a_sequential_behind_it(batch, generator):
    net, x, y = batch

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net

        def forward(self, v):
            return self.inner(v)

    PGD(steps=1)(Wrapped(), Ball(x, 0.1), y, generator=generator)
    with pytest.raises(UsageError, match=r"needs an nn\.Sequential"):
        PGD(steps=1)(Wrapped(), REGIONS["latent_box"](net, x), y, generator=generator)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"steps": -1}, "steps = -1"),
        ({"steps": 2.5}, "steps = 2.5"),
        ({"restarts": 0}, "restarts = 0"),
        ({"loss": "marign"}, "did you mean 'margin'"),
        ({"step_size": 0}, "step_size = 0"),
        ({"step_size": float("nan")}, "step_size = nan"),
        ({"keep": "lost"}, "did you mean 'last'"),
        ({"restarts": 2, "random_start": False}, "restarts = 2 without random_start"),
    ],
)
def test_bad_settings_are_named(settings, says):
    with pytest.raises(UsageError, match=says):
        PGD(**settings)


def test_labels_of_another_length_are_refused(batch, generator):
    net, x, y = batch
    for attack in (PGD(), PGD(early_exit=True)):
        with pytest.raises(UsageError, match="11 labels for a region of 12 images"):
            attack(net, Ball(x, 0.1), y[1:], generator=generator)
