"""DiffAI: its limits, its schedules, and the box that grows."""

import pytest
import torch
import torch.nn.functional as F

from maar.attacks.pgd import PGD
from maar.core.eps import Eps
from maar.domains.bound import margins
from maar.domains.hybrid_zonotope import HybridZonotope
from maar.methods.base import Batch, Stage
from maar.methods.bounded import worst_logits
from maar.methods.diffai import DiffAI
from maar.methods.ibp import IBP
from maar.methods.maar import MAAR
from maar.methods.pgd import PGDTraining
from maar.methods.schedules import Constant
from maar.networks import make
from maar.regions import Ball

ATTACK = PGD(steps=3, step_size=0.5)


def make_batch(eps=0.05, **at):
    generator = torch.Generator().manual_seed(0)
    return Batch(
        net=make("mlp", (1, 6, 6), 4, [0.5], [0.5], seed=0),
        x=torch.rand(12, 1, 6, 6, generator=generator),
        y=torch.randint(4, (12,), generator=generator),
        eps=eps,
        stage=Stage("input", 1, Constant(eps)),
        generator=torch.Generator().manual_seed(1),
        at=at,
    )


def gradients(method, **at):
    batch = make_batch(**at)
    total = torch.stack(list(method.loss(batch).values())).sum()
    return total.detach(), torch.autograd.grad(total, list(batch.net.parameters()))


@pytest.mark.parametrize("knobs", [{"domain": "box"}, {"error_terms": 0}])
def test_the_region_alone_in_boxes_is_ibp(knobs):
    one = gradients(DiffAI(share=1.0, sampling=False, **knobs))
    torch.testing.assert_close(one, gradients(IBP(init="usual", regularise=0.0)))


def test_the_point_alone_is_adversarial_training():
    one = gradients(DiffAI(share=0.0, attack=ATTACK))
    torch.testing.assert_close(one, gradients(PGDTraining(attack=ATTACK)))


def test_the_mix_by_hand():
    batch = make_batch()
    ball = Ball(batch.x, batch.eps)
    lb = HybridZonotope(8)(batch.net, ball, margins(batch.y, 4)).lb
    region = F.cross_entropy(worst_logits(lb, batch.y), batch.y)
    natural = F.cross_entropy(batch.net(batch.x), batch.y)
    terms = DiffAI(point="natural").loss(make_batch(share=0.3))
    torch.testing.assert_close(terms["point"], 0.7 * natural)
    torch.testing.assert_close(terms["region"], 0.3 * region)


def test_the_hybrid_zonotope_is_no_looser_than_the_box():
    box = gradients(DiffAI(share=1.0, domain="box"))[0]
    few, some, all_pixels = (
        gradients(DiffAI(share=1.0, error_terms=count))[0] for count in (8, 16, 36)
    )
    assert few < box * (1 + 1e-6)
    assert some < 0.95 * box
    assert all_pixels < 0.6 * box


def test_the_schedules():
    [stage] = DiffAI(ramp=4.0, warmup=1.0).stages(make_batch().net, Eps("0.1"), 9)
    assert [stage.eps(t) for t in (0, 1, 3, 9)] == [0, 0, 0.05, 0.1]
    assert [stage.schedules["share"](t) for t in (0, 1, 3, 9)] == [0, 0, 0.25, 0.5]


def test_the_box_grows_from_a_random_point_to_the_ball():
    method, widths = DiffAI(), []
    for grown in (0.0, 0.25, 1.0):
        batch = make_batch(grown=grown)
        ball = Ball(batch.x, batch.eps)
        box = method._box(batch, ball)
        assert bool((box.lb >= ball.lb).all() and (box.ub <= ball.ub).all())
        widths.append(float((box.ub - box.lb).mean() / (ball.ub - ball.lb).mean()))
    assert widths[0] == pytest.approx(0, abs=1e-5)
    assert widths[1] == pytest.approx(0.25, abs=0.02)
    assert widths[2] == 1


def test_maar_around_it_takes_both_parts():
    terms = MAAR(base=DiffAI(), lam=2.0).loss(make_batch(share=0.5))
    assert set(terms) == {"point", "region", "consistency"}
    assert terms["consistency"] > 0
