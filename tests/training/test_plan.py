"""Global steps and their places."""

import pytest

from maar.methods.base import Stage
from maar.methods.schedules import Constant, Ramp, Smooth
from maar.training.plan import Epoch, Plan
from maar.training.seeds import derive, generator


def test_places_over_stages():
    plan = Plan([Stage("a", 2, Constant(0.0)), Stage("b", 3, Constant(0.0))], steps_per_epoch=4)
    assert plan.epochs == 5
    assert plan.steps == 20
    assert [plan.epoch(n) for n in range(5)] == [
        Epoch(0, 0, 0),
        Epoch(1, 0, 1),
        Epoch(2, 1, 0),
        Epoch(3, 1, 1),
        Epoch(4, 1, 2),
    ]
    with pytest.raises(IndexError):
        plan.epoch(5)
    assert [plan.since_stage(step) for step in (0, 1, 4, 7, 8, 19)] == [0, 0.25, 1, 1.75, 0, 2.75]


def test_a_stage_that_ends_before_eps_has_grown_is_named():
    def stage(name, ramp, shape=Ramp):
        return Stage(name, 4, shape(0.0, 0.1, ramp, begin=1.0))

    stages = [stage("fits", 3.0), stage("long", 6.0), Stage("flat", 4, Constant(0.1))]
    (line,) = Plan(stages, steps_per_epoch=2).unfinished()
    assert line == "stage 'long' ends after 4 epochs at eps = 0.05, before it has grown to 0.1"
    assert Plan([stage("smooth", 3.5, Smooth)], steps_per_epoch=2).unfinished()


def test_seeds_differ_by_purpose_and_position_only():
    seeds = {
        derive(seed, purpose, step)
        for seed in range(5)
        for purpose in ("loss", "order")
        for step in range(50)
    }
    assert len(seeds) == 500
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive(1, "loss", 23) != derive(12, "loss", 3) != derive(1, "loss2", 3)
    one, two = generator(1, "loss", 2), generator(1, "loss", 2)
    assert one.initial_seed() == two.initial_seed() == derive(1, "loss", 2)
