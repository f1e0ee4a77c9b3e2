"""When a trial is stopped early."""

from maar.tuning.pruning import is_hopeless

TEN = [n / 10 for n in range(1, 11)]


def curve(height, until=10):
    return [(at, height * at) for at in TEN[:until]]


OTHERS = [curve(height) for height in (0.5, 0.52, 0.54, 0.6)]


def test_far_behind_is_hopeless():
    assert is_hopeless(curve(0.2, 5), OTHERS)


def test_a_little_behind_is_not():
    assert not is_hopeless(curve(0.5, 5), OTHERS)
    # (the lowest quarter, but within two points of the median)
    assert not is_hopeless(curve(0.49, 3), OTHERS)


def test_nobody_is_stopped_early_or_at_the_end():
    assert not is_hopeless(curve(0.0, 1), OTHERS)
    assert not is_hopeless(curve(0.0), OTHERS)
    assert not is_hopeless([], OTHERS)


def test_a_few_others_say_nothing():
    assert not is_hopeless(curve(0.2, 5), OTHERS[:3])
    # (those that have not come so far do not count)
    assert not is_hopeless(curve(0.2, 5), [*OTHERS[:3], curve(0.6, 4)])
