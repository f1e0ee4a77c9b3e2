"""best_of: what it refuses, and that it carries bounds on."""

import pytest
import torch

from maar.core.errors import UsageError
from maar.domains.best_of import BestOf
from maar.domains.cauchy.estimate import Cauchy
from maar.domains.crown import Crown
from maar.domains.graph import compile_network
from maar.domains.interval import Interval
from maar.domains.zonotope import Zonotope


def test_estimates_are_refused():
    with pytest.raises(UsageError, match="cauchy is an estimate"):
        BestOf((Interval(), Cauchy()))
    with pytest.raises(UsageError, match="at least one"):
        BestOf(())


def test_the_worked_example(worked):
    """The zonotope has z2 in [-9/4, 9/4], CROWN in [-5/2, 5/2]; for z1 they agree."""
    net, box = worked
    for parts in ((Crown(), Zonotope()), (Zonotope(), Crown()), (Interval(), Crown(), Zonotope())):
        found = BestOf(parts)(net, box)
        expected = torch.tensor([[0, -9 / 4]]).double(), torch.tensor([[9 / 2, 9 / 4]]).double()
        torch.testing.assert_close((found.lb, found.ub), expected)


def test_each_part_gets_what_the_others_have_found(residual_net):
    net, box = residual_net
    graph = compile_network(net, (1, 6, 6))
    crown = Crown()(graph, box)
    after_crown = BestOf((Crown(), Interval()))(graph, box)
    for mine, theirs in zip(after_crown.pre, crown.pre, strict=True):
        assert bool((mine[0] >= theirs[0]).all())
        assert bool((mine[1] <= theirs[1]).all())
    with_crown = Interval()(graph, box, known=crown.pre)
    assert bool((after_crown.lb >= with_crown.lb).all())
    assert bool((with_crown.lb > Interval()(graph, box).lb).any())
