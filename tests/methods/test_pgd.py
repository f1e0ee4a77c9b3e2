"""Adversarial training: the point, the loss at it, and its limits."""

import pytest
import torch
import torch.nn.functional as F

from maar.attacks.pgd import PGD
from maar.core.eps import Eps
from maar.methods.base import Batch, Stage
from maar.methods.pgd import PGDTraining
from maar.methods.schedules import Constant
from maar.methods.standard import Standard
from maar.networks import make


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    return Batch(
        net=make("mlp", (1, 6, 6), 3, [0.5], [0.5], seed=0),
        x=torch.rand(64, 1, 6, 6, generator=generator),
        y=torch.randint(3, (64,), generator=generator),
        eps=0.1,
        stage=Stage("input", 1, Constant(0.1)),
        generator=torch.Generator().manual_seed(1),
    )


def test_the_point_is_in_the_ball_and_in_the_pixel_range(batch):
    x_adv = PGDTraining().adversary(batch)
    assert not x_adv.requires_grad
    assert float((x_adv - batch.x).abs().max()) <= 0.1
    assert 0 <= float(x_adv.min()) <= float(x_adv.max()) <= 1


def test_the_loss_is_the_cross_entropy_at_the_point_and_no_less_than_at_the_image(batch):
    x_adv = PGDTraining().adversary(batch)
    batch.generator.manual_seed(1)
    loss = PGDTraining().loss(batch)["adversarial"]
    assert torch.equal(loss, F.cross_entropy(batch.net(x_adv), batch.y))
    assert loss > Standard().loss(batch)["cross_entropy"]


def test_with_eps_0_it_is_standard_training(batch):
    batch.eps = 0.0
    loss = PGDTraining().loss(batch)["adversarial"]
    assert torch.equal(loss, Standard().loss(batch)["cross_entropy"])


def test_more_steps_find_worse_points(batch):
    few = PGDTraining(attack=PGD(steps=0)).loss(batch)["adversarial"]
    many = PGDTraining(attack=PGD(steps=20)).loss(batch)["adversarial"]
    assert many > few


def test_robust_images_are_right_ones(batch):
    judged = PGDTraining().judge(batch)
    assert not (judged["robust_accuracy"] & ~judged["accuracy"]).any()
    assert judged["robust_accuracy"].sum() < judged["accuracy"].sum()


def test_eps_ramps_up(batch):
    (stage,) = PGDTraining(ramp=4.0).stages(batch.net, Eps("0.2"), 8)
    assert [stage.eps(t) for t in (0.0, 2.0, 4.0, 7.9)] == pytest.approx([0.0, 0.1, 0.2, 0.2])
    (stage,) = PGDTraining().stages(batch.net, Eps("0.2"), 8)
    assert stage.eps(0.0) == 0.2
