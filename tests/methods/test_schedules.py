"""Schedules at their corners."""

import pytest

from maar.methods.schedules import Constant, Halving, OneCycle, Ramp, Smooth, Steps


def test_constant():
    assert Constant(3.0)(0.0) == Constant(3.0)(99.5) == 3.0


def test_ramp():
    ramp = Ramp(1.0, 3.0, 4.0)
    assert [ramp(t) for t in (0.0, 1.0, 4.0, 100.0)] == [1.0, 1.5, 3.0, 3.0]
    assert Ramp(1.0, 3.0, 0.0)(0.0) == 3.0
    later = Ramp(1.0, 3.0, 0.0, begin=2.0)
    assert [later(t) for t in (0.0, 1.99, 2.0)] == [1.0, 1.0, 3.0]


def test_steps():
    steps = Steps(1.0, 0.5, (2.0, 3.0))
    assert [steps(t) for t in (0.0, 1.99, 2.0, 2.5, 3.0, 50.0)] == [1, 1, 0.5, 0.5, 0.25, 0.25]


def test_halving_counts_from_its_beginning():
    halving = Halving(1.0, 0.5, begin=60.0, every=10.0)
    times = (0.0, 59.9, 60.0, 69.9, 70.0, 79.9, 80.0, 105.0)
    assert [halving(t) for t in times] == [1, 1, 1, 1, 0.5, 0.5, 0.25, 0.0625]


def test_one_cycle_rises_to_its_peak_and_falls_to_nearly_nothing():
    cycle = OneCycle(2.0, 100.0)
    assert cycle(0.0) == pytest.approx(2.0 / 25)
    assert cycle(15.0) == pytest.approx((2.0 + 2.0 / 25) / 2)
    assert cycle(30.0) == 2.0
    assert cycle(65.0) == pytest.approx(1.0, rel=1e-4)
    assert cycle(100.0) == pytest.approx(2.0 / 250_000)
    assert all(cycle(t / 10) < cycle((t + 1) / 10) for t in range(300))
    assert all(cycle(t / 10) > cycle((t + 1) / 10) for t in range(300, 1000))


def test_smooth_is_slow_at_first_and_has_one_slope_at_the_bend():
    smooth, ramp = Smooth(1.0, 3.0, epochs=8.0, begin=2.0), Ramp(1.0, 3.0, epochs=8.0, begin=2.0)
    for schedule in (smooth, ramp):
        assert [schedule(t) for t in (0.0, 2.0, 10.0, 50.0)] == [1.0, 1.0, 3.0, 3.0]
    values = [smooth(2 + 8 * i / 100) for i in range(101)]
    assert values == sorted(values)
    assert all(value <= ramp(2 + 8 * i / 100) + 1e-12 for i, value in enumerate(values))
    before, after = (values[25] - values[24]), (values[26] - values[25])
    assert before == pytest.approx(after, rel=0.1)
