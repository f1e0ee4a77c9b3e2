"""Training by bounds: every method's limits, and the terms by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from maar.attacks.pgd import PGD
from maar.core.eps import Eps
from maar.domains.bound import margins
from maar.domains.interval import Interval
from maar.methods import METHODS, shi
from maar.methods.base import Batch, Stage
from maar.methods.batchnorm import Statistics
from maar.methods.bounded import Bounded, worst_logits
from maar.methods.cc_ibp import CCIBP
from maar.methods.crown_ibp import CrownIBP
from maar.methods.diffai import DiffAI
from maar.methods.exp_ibp import ExpIBP
from maar.methods.ibp import IBP
from maar.methods.maar import MAAR
from maar.methods.mtl_ibp import MTLIBP
from maar.methods.pgd import PGDTraining
from maar.methods.sabr import SABR
from maar.methods.schedules import Constant
from maar.methods.taps import TAPS
from maar.networks import make
from maar.regions import Ball

ATTACK = PGD(steps=5, step_size=0.5)
EXPRESSIVE = [MTLIBP, CCIBP, ExpIBP]
BOUNDED = [name for name in METHODS if issubclass(METHODS[name], Bounded)]


def make_batch(net=None, eps=0.05, **at):
    generator = torch.Generator().manual_seed(0)
    if net is None:
        net = make("mlp", (1, 6, 6), 4, [0.5], [0.5], seed=0)
    return Batch(
        net=net,
        x=torch.rand(12, 1, 6, 6, generator=generator),
        y=torch.randint(4, (12,), generator=generator),
        eps=eps,
        stage=Stage("input", 1, Constant(eps)),
        generator=torch.Generator().manual_seed(1),
        at=at,
    )


def with_batch_norm():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Linear(36, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 4),
    )  # fmt: skip


def gradients(method, batch=None):
    batch = batch or make_batch()
    total = torch.stack(list(method.loss(batch).values())).sum()
    return total, torch.autograd.grad(total, list(batch.net.parameters()))


def total(method, batch=None):
    return gradients(method, batch)[0].item()


def test_ibp_by_hand():
    batch = make_batch()
    found = Interval()(batch.net, Ball(batch.x, batch.eps), margins(batch.y, 4))
    expected = (1 + (-found.lb).exp().sum(1)).log().mean()
    torch.testing.assert_close(torch.tensor(total(IBP())), expected.detach())


def test_worst_logits_are_no_better_than_any_point_of_the_box():
    batch = make_batch()
    found = Interval()(batch.net, Ball(batch.x, batch.eps), margins(batch.y, 4))
    worst = F.cross_entropy(worst_logits(found.lb, batch.y), batch.y, reduction="none")
    for seed in range(20):
        noise = torch.rand(batch.x.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        z = batch.net((batch.x + batch.eps * noise.sign()).clamp(0, 1))
        assert bool((F.cross_entropy(z, batch.y, reduction="none") <= worst + 1e-5).all())


def test_gowals_mixture():
    natural, worst = total(METHODS["standard"]()), total(IBP())
    found = total(IBP(natural=0.5), make_batch(kappa=0.7))
    assert found == pytest.approx(0.7 * natural + 0.3 * worst, rel=1e-5)
    [stage] = IBP(natural=0.5, ramp=4.0, warmup=1.0).stages(make_batch().net, Eps("0.1"), 9)
    kappa = [stage.schedules["kappa"](t) for t in (0, 1, 2, 3, 9)]
    assert kappa == pytest.approx([1 - 0.5 * stage.eps(t) / 0.1 for t in (0, 1, 2, 3, 9)])
    assert kappa[0] == 1
    assert kappa[-1] == 0.5


@pytest.mark.parametrize("net", [None, with_batch_norm])
def test_sabr_with_the_whole_ball_is_ibp(net):
    one = gradients(SABR(lam=1.0), make_batch(net and net()))
    other = gradients(IBP(), make_batch(net and net()))
    torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("method", EXPRESSIVE)
@pytest.mark.parametrize("net", [None, with_batch_norm])
def test_alpha_1_is_ibp(method, net):
    one = gradients(method(alpha=1.0, attack=ATTACK), make_batch(net and net()))
    torch.testing.assert_close(one, gradients(IBP(), make_batch(net and net())))


@pytest.mark.parametrize("method", EXPRESSIVE)
def test_alpha_0_is_adversarial_training(method):
    one = gradients(method(alpha=0.0, attack=ATTACK))
    torch.testing.assert_close(one, gradients(PGDTraining(attack=ATTACK)))


@pytest.mark.parametrize("method", EXPRESSIVE)
def test_the_attack_may_go_further_than_the_bounds(method):
    one = gradients(method(alpha=0.0, attack=ATTACK, attack_factor=2.1))
    torch.testing.assert_close(one, gradients(PGDTraining(attack=ATTACK), make_batch(eps=0.105)))
    bounds_alone = gradients(method(alpha=1.0, attack=ATTACK, attack_factor=2.1))
    torch.testing.assert_close(bounds_alone, gradients(IBP()))


@pytest.mark.parametrize("fusion", [False, True])
def test_crown_ibp_without_crown_is_ibp(fusion):
    method = CrownIBP(fusion=fusion)
    one = gradients(method, make_batch(beta=0.0))
    torch.testing.assert_close(one, gradients(IBP()))
    [stage] = CrownIBP(ramp=4.0).stages(make_batch().net, Eps("0.1"), 9)
    beta = [stage.schedules["beta"](t) for t in (0, 1, 2, 4)]
    assert beta == pytest.approx([1 - stage.eps(t) / 0.1 for t in (0, 1, 2, 4)])


def test_crowns_bounds_are_no_worse_and_fused_ones_are_bounds():
    """IBP >= fused CROWN-IBP >= the loss at any point; and CROWN-IBP <= IBP."""
    ibp, crown = total(IBP()), total(CrownIBP(), make_batch(beta=1.0))
    fused = total(CrownIBP(fusion=True), make_batch(beta=1.0))
    attacked = total(PGDTraining(attack=PGD(steps=20, step_size=0.2)))
    assert attacked <= crown < ibp
    assert attacked <= fused <= ibp
    assert fused < total(CrownIBP(fusion=True), make_batch(beta=0.5)) < ibp


def test_fused_bounds_are_mixed_before_the_logarithm():
    """Xu et al.: log(beta * U_CROWN + (1 - beta) * U_IBP), for each image."""
    batch, method = make_batch(beta=0.3), CrownIBP(fusion=True)
    out = method.outputs(batch)
    u_ibp = F.cross_entropy(out.of_box, batch.y, reduction="none").exp()
    expected = (0.3 * out.loss_of_box.exp() + 0.7 * u_ibp).log().mean()
    torch.testing.assert_close(method.worst(batch, out), expected)


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("net", [None, with_batch_norm])
def test_without_a_radius_every_gradient_is_that_of_cross_entropy(name, net):
    """A warm-up at eps = 0 has to train."""
    kind = METHODS[name]
    if name in ("taps", "staps"):
        method = kind(anneal=False, weight=1.0)
    elif name == "crown_ibp":
        method = kind(fusion=True)
    else:
        method = kind()
    _, found = gradients(method, make_batch(net and net(), eps=0.0, beta=1.0))
    batch = make_batch(net and net())
    natural = F.cross_entropy(batch.net(batch.x), batch.y)
    # (TAPS multiplies two losses, and both of them are the natural one)
    power = 2 if name in ("taps", "staps") else 1
    expected = torch.autograd.grad(natural.pow(power), list(batch.net.parameters()))
    torch.testing.assert_close(list(found), list(expected), rtol=1e-3, atol=1e-5)


def test_the_order_of_the_losses():
    losses = [total(IBP())]
    losses += [total(SABR(lam=lam, attack=ATTACK)) for lam in (0.7, 0.3, 0.0)]
    losses += [total(PGDTraining(attack=ATTACK))]
    assert losses[:-1] == sorted(losses[:-1], reverse=True)
    assert losses[-2] == pytest.approx(losses[-1], rel=1e-4)  # a box without a radius is a point
    for method in EXPRESSIVE:
        between = [total(method(alpha=a, attack=ATTACK)) for a in (1.0, 0.5, 0.1, 0.0)]
        assert between == sorted(between, reverse=True)


def test_the_expressive_losses_by_hand():
    batch = make_batch()
    ball = Ball(batch.x, batch.eps)
    lb = Interval()(batch.net, ball, margins(batch.y, 4)).lb
    x_adv = ball.point(ATTACK(batch.net, ball, batch.y, generator=batch.generator))
    z = batch.net(x_adv)
    point = F.cross_entropy(z, batch.y, reduction="none")
    box = (1 + (-lb).exp().sum(1)).log()
    ahead = (margins(batch.y, 4) @ z.unsqueeze(-1)).squeeze(-1)  # z_y - z_k
    expected = {
        MTLIBP: (0.7 * point + 0.3 * box).mean(),
        CCIBP: (1 + (-(0.7 * ahead + 0.3 * lb)).exp().sum(1)).log().mean(),
        ExpIBP: point.mean() ** 0.7 * box.mean() ** 0.3,
    }
    for method, value in expected.items():
        assert total(method(alpha=0.3, attack=ATTACK)) == pytest.approx(value.item(), rel=1e-5)


AROUND = [name for name in METHODS if name not in ("maar", "mat", "colt", "standard")]


@pytest.mark.parametrize("name", AROUND)
def test_maar_goes_around_each(name):
    """lam = 0 is the base; else the term is the KL to what the base calls the worst."""
    base = METHODS[name]()
    torch.testing.assert_close(gradients(MAAR(base=base, lam=0.0)), gradients(base), rtol=0, atol=0)
    batch = make_batch()
    outputs = base.outputs(batch)
    assert outputs.worst
    p = outputs.nat.log_softmax(1)
    weight = 1 - p.exp().gather(1, batch.y[:, None]).squeeze(1)
    expected = 0.0
    for share, worst in outputs.worst:
        expected += share * (weight * (p.exp() * (p - worst.log_softmax(1))).sum(1)).mean()
    terms = MAAR(base=base, lam=2.0).loss(make_batch())
    torch.testing.assert_close(terms["consistency"], 2 * expected)


def test_what_each_base_calls_the_worst():
    """Points where there is an attack, else the logits that bounds allow."""
    batch = make_batch()
    z_ibp = worst_logits(
        Interval()(batch.net, Ball(batch.x, batch.eps), margins(batch.y, 4)).lb, batch.y
    )
    for name, is_box in {"ibp": True, "mtl_ibp": False, "trades": False, "mart": False}.items():
        [(share, worst)] = METHODS[name]().outputs(make_batch()).worst
        assert share == 1
        ahead = worst - worst.gather(1, batch.y[:, None])
        assert bool((ahead <= z_ibp + 1e-5).all())
        assert torch.allclose(ahead, z_ibp, atol=1e-5) == is_box


def test_schedule_and_regularisers_fade():
    method = IBP(warmup=1.0, ramp=4.0, eps_factor=2.0)
    batch = make_batch()
    [stage] = method.stages(batch.net, Eps("0.1"), 9)
    assert [stage.eps(t) for t in (0, 1, 5, 9)] == [0, 0, 0.2, 0.2]
    assert stage.eps(2) < 0.05 < stage.eps(4)
    grown = [stage.schedules["grown"](t) for t in (0, 1, 2, 3, 5)]
    assert grown == pytest.approx([stage.eps(t) / 0.2 for t in (0, 1, 2, 3, 5)])
    full, half, none = (method.loss(make_batch(grown=g)) for g in (0.0, 0.5, 1.0))
    for name in ("tightness", "balance"):
        assert full[name].item() > 0
        assert half[name].item() == pytest.approx(full[name].item() / 2)
        assert none[name].item() == 0


def test_tightness_by_hand():
    wide = torch.tensor([[-1.0, 0.0]]), torch.tensor([[1.0, 4.0]])  # mean half width 1.5
    narrow = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.2, 0.2]])
    found = shi.tightness(torch.tensor(0.3), [wide, narrow])
    assert found.item() == pytest.approx((1 - (0.3 / 1.5) / 0.5) / 2)


def test_balance_by_hand():
    """Two active neurons (2, 5), one inactive (-1), one unstable (2): centres' mean is 2."""
    lb = torch.tensor([[1.0, 4.0, -1.5, -1.0]])
    ub = torch.tensor([[3.0, 6.0, -0.5, 5.0]])
    # means 7 to 1, variances 9 to 9: each of the two ratios has to be 0.5
    assert shi.balance([(lb, ub)]).item() == pytest.approx((0.5 - 1 / 7) / 0.5)
    # (all of one sign: both fall short)
    assert shi.balance([(lb + 9, ub + 9)]).item() == pytest.approx(2)
    assert shi.balance([(lb, ub), (lb + 9, ub + 9)]).item() == pytest.approx(
        (2.5 / 7 / 0.5 + 2) / 2
    )


@pytest.mark.parametrize("kind", [IBP, TAPS, DiffAI])
def test_fresh_weights_are_as_tight_as_they_should_be(kind):
    """The width of the input counts as the layers see it, behind Normalize."""
    net = make("convmed_2_2_100", (1, 28, 28), 10, [0.1307], [0.3081], seed=0)
    method = kind(ramp=4.0, regularise=0.5, init="shi")
    method.initialise(net, torch.Generator().manual_seed(0))
    x = torch.rand(8, 1, 28, 28, generator=torch.Generator().manual_seed(0)) * 0.6 + 0.2
    batch = Batch(
        net=net,
        x=x,
        y=torch.arange(8),
        eps=0.1,
        stage=Stage("input", 1, Constant(0.1)),
        generator=torch.Generator().manual_seed(1),
        at={"grown": 0.5},
    )
    terms = method.loss(batch)
    assert terms["tightness"].item() < 0.01  # (in pixels it would be 0.15)
    with torch.no_grad():
        net[1].weight *= 4
    assert method.loss(batch)["tightness"].item() > 0.02


@pytest.mark.parametrize("name", BOUNDED)
def test_every_loss_is_the_same_in_bfloat16_but_for_rounding(name):
    method = METHODS[name](**({"anneal": False} if "taps" in name else {}))
    wanted = method.loss(make_batch(with_batch_norm(), beta=0.5))
    with torch.autocast("cpu", torch.bfloat16):
        found = method.loss(make_batch(with_batch_norm(), beta=0.5))
    assert found.keys() == wanted.keys()
    for term, value in found.items():
        assert value.item() == pytest.approx(wanted[term].item(), rel=0.1)


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_tightness_during_the_warm_up(name, precision):
    """It is that of a box that has hardly begun to grow, and moves the weights."""

    def tightness(eps, grown):
        net = with_batch_norm()
        with torch.no_grad():
            net[4].weight *= 5
        method = METHODS[name](warmup=1.0, regularise=0.5)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
            term = method.loss(make_batch(net, eps=eps, grown=grown))["tightness"]
        (slope,) = torch.autograd.grad(term, net[5].weight)
        return term.item(), slope.abs().sum().item()

    (none, slope), (little, _) = tightness(0.0, 0.0), tightness(1e-4, 1e-4)
    assert slope > 0
    assert none == pytest.approx(little, rel=0.02)


def test_the_regularisers_have_a_gradient_during_the_warm_up():
    batch = make_batch(eps=0.0, grown=0.0)
    with torch.no_grad():
        for parameter in batch.net.parameters():
            parameter *= 3
    terms = IBP(warmup=1.0).loss(batch)
    (slope,) = torch.autograd.grad(terms["tightness"], batch.net[2].weight)
    assert slope.abs().sum().item() > 0


def test_without_a_ramp_eps_grows_over_half_of_the_epochs():
    [stage] = IBP(warmup=1.0).stages(make_batch().net, Eps("0.1"), 9)
    assert [stage.eps(t) for t in (1, 5, 9)] == [0, 0.1, 0.1]
    assert 0 < stage.eps(4.9) < 0.1
    assert set(IBP(ramp=0.0).loss(make_batch())) == {"worst"}


def test_shis_weights():
    net = make("convmed_2_2_100", (1, 28, 28), 10, [0.5], [0.5], seed=0)
    last = net[-1].weight.clone()
    IBP().initialise(net, torch.Generator().manual_seed(0))
    for layer in (net[1], net[3]):
        fan_in = layer.weight[0].numel()
        assert layer.weight.std().item() == pytest.approx(math.sqrt(2 * math.pi) / fan_in, rel=0.1)
    assert torch.equal(net[-1].weight, last)


def test_batch_norm_policies():
    x = torch.rand(12, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    found = {}
    for policy in ("clean", "last", "population"):
        net = with_batch_norm().train()
        passes = Statistics(net, policy)
        nat = passes.clean(x)
        running = [m.running_mean.clone() for m in net if hasattr(m, "running_mean")]
        with passes.fixed():
            again = net(x)
        worst = passes.worst(x / 2)
        after = [m.running_mean for m in net if hasattr(m, "running_mean")]
        moved = not all(map(torch.equal, running, after))
        found[policy] = torch.allclose(nat, again, atol=1e-5), moved
        assert all(m.training for m in net)
        assert worst.shape == nat.shape
    # the clean batch again, statistics and all; and who leaves a mark on the running ones
    assert found == {"clean": (True, False), "last": (True, True), "population": (False, False)}


def test_the_policy_matters_where_points_pass_the_network():
    """With `last` bounds have the adversarial points' statistics; without points it is `clean`."""

    def losses(name):
        method = METHODS[name]
        return [
            total(method(batchnorm=policy), make_batch(with_batch_norm()))
            for policy in ("clean", "last", "population")
        ]

    clean, last, population = losses("mtl_ibp")
    assert len({clean, last, population}) == 3
    clean, last, population = losses("ibp")
    assert clean == last != population


def test_the_clean_statistics_have_a_gradient():
    """Bounds behind BatchNorm see how the weights move the batch's statistics."""
    net = with_batch_norm().double().train()
    x = torch.rand(6, 1, 6, 6, generator=torch.Generator().manual_seed(0)).double()

    def value():
        passes = Statistics(net, "clean")
        passes.clean(x)
        with passes.fixed():
            return Interval()(net, Ball(x, 0.01)).ub.sum()

    (gradient,) = torch.autograd.grad(value(), net[0].weight)
    step = 1e-6
    with torch.no_grad():
        net[0].weight[0, 0, 0, 0] += step
        above = value()
        net[0].weight[0, 0, 0, 0] -= 2 * step
        below = value()
    assert gradient[0, 0, 0, 0].item() == pytest.approx(
        ((above - below) / 2 / step).item(), rel=1e-4
    )


def test_kappa_falls_to_what_is_asked_for():
    batch = make_batch()

    def kappa(**knobs):
        [stage] = IBP(warmup=1.0, ramp=2.0, ramp_shape="linear", **knobs).stages(
            batch.net, Eps("0.1"), 4
        )
        schedule = stage.schedules.get("kappa")
        return schedule and [schedule(t) for t in (0, 2, 4)]

    assert kappa() is None
    assert kappa(natural=0.5) == [1.0, 0.75, 0.5]
    assert kappa(natural_start=1.0) == [1.0, 0.5, 0.0]
    assert kappa(natural=0.5, natural_start=0.5) == [0.5, 0.5, 0.5]
    terms = IBP(natural_start=1.0).loss(make_batch(kappa=0.25))
    plain = IBP().loss(make_batch())
    torch.testing.assert_close(terms["worst"], 0.75 * plain["worst"])
    natural = F.cross_entropy(batch.net(batch.x), batch.y)
    torch.testing.assert_close(terms["natural"], 0.25 * natural)


def test_weights_behind_the_sum_of_a_residual_block_are_halved():
    net = make("resnet_small", (1, 16, 16), 10, [0.5], [0.5], seed=0)
    shi.initialise(net, torch.Generator().manual_seed(0))
    layers = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    scale = [m.weight.std().item() * m.weight[0].numel() / math.sqrt(2 * math.pi) for m in layers]
    # conv | block of two and a shortcut | block of two behind the sum | linear behind the sum
    assert scale[:-1] == pytest.approx([1, 1, 1, 1, 0.5, 1, 0.5], rel=0.15)
