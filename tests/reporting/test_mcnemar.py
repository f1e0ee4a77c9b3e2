"""McNemar's test against numbers by hand, and the interval against simulated images."""

import math
import random

import pytest

from maar.reporting.mcnemar import difference, p_values


def test_by_hand():
    # 12 tosses, at most 2 of one side: (1 + 12 + 66) / 4096, twice; mid-p leaves 66 / 4096 out
    exact, mid = p_values(10, 2)
    assert exact == pytest.approx(158 / 4096)
    assert mid == pytest.approx(92 / 4096)
    assert p_values(2, 10) == (exact, mid)
    assert p_values(1, 0) == (1.0, 0.5)


@pytest.mark.parametrize("same", [0, 1, 7, 300])
def test_as_many_each_is_no_evidence(same):
    assert p_values(same, same) == (1.0, 1.0)


def test_against_scipy():
    binomtest = pytest.importorskip("scipy.stats").binomtest
    for b, c in ((61, 40), (5, 30), (400, 350), (0, 12)):
        assert p_values(b, c)[0] == pytest.approx(binomtest(b, b + c).pvalue, rel=1e-9)


def test_a_whole_test_set_of_differences():
    assert 0 < p_values(5200, 4800)[0] < 1e-4
    assert p_values(9000, 1000) == pytest.approx((0.0, 0.0), abs=1e-300)


def test_the_interval_by_hand():
    points, low, high = difference(14, 9, 1000)
    assert points == pytest.approx(0.005)
    one, other = 15 / 1002, 10 / 1002
    reach = 1.959964 * math.sqrt((one + other - (one - other) ** 2) / 1002)
    assert (low, high) == pytest.approx((one - other - reach, one - other + reach))


def test_the_interval_holds_the_truth_nineteen_times_in_twenty():
    chance, hits = random.Random(0), 0
    for _ in range(1000):
        drawn = [chance.random() for _ in range(150)]
        b, c = sum(x < 0.08 for x in drawn), sum(0.08 <= x < 0.12 for x in drawn)
        _, low, high = difference(b, c, 150)
        hits += low <= 0.04 <= high
    assert 930 <= hits <= 975


def test_the_interval_stays_within_all_differences():
    for b, c, n in ((1, 0, 1), (0, 1, 1), (5, 0, 5), (0, 0, 3)):
        points, low, high = difference(b, c, n)
        assert -1 <= low <= points <= high <= 1
