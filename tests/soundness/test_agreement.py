"""Where two ways of computing must agree, and which bounds may never be looser than which.

In float64, so that "equal" means to nine digits of the largest number on the way.
"""

from dataclasses import replace

import pytest
import torch
from bound_checks import (
    How,
    ask,
    bounds_of,
    composing,
    largest,
    no_looser,
    no_shortcut,
    same,
    specification,
)
from bound_domains import DOMAINS
from hypothesis import given, settings
from random_nets import RADII, cases

from maar.domains import rows as rows_module
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Corners, Enclosure
from maar.domains.crown import Crown
from maar.domains.graph import compile_network, trace
from maar.domains.interval import Interval
from maar.domains.zonotope import Zonotope

BY_NAME = {domain.name: domain for domain in DOMAINS}
LIVE = How(torch.float64)
COMPILED = replace(LIVE, compiled=True)


def digits(case):
    return 1e-9 * (1 + largest(case))


@pytest.mark.parametrize("name", ["crown", "crown lower only", "crown chunked", "interval"])
@settings(max_examples=12)
@given(case=cases())
def test_a_compiled_network_has_the_bounds_of_the_live_one(name, case):
    """For CROWN: the reduced network's bounds are the network's, residual blocks included."""
    domain = BY_NAME[name]
    with no_shortcut():
        same(ask(domain, case, LIVE), ask(domain, case, COMPILED), digits(case))


@pytest.mark.parametrize("name", ["zonotope", "zonotope free slopes"])
@settings(max_examples=12)
@given(case=cases())
def test_the_reduced_zonotope_is_the_forward_one(name, case):
    """The forward one bounds stable neurons too, so its boxes are tighter there; given those, the
    two are the same."""
    graph = compile_network(case.net, case.shape, torch.float64)
    bound = BY_NAME[name].make(False, graph)
    live = ask(BY_NAME[name], case, LIVE)
    with no_shortcut():
        reduced = bound(graph, case.box(torch.float64), specification(case, LIVE), live.pre)
    same(live, reduced, digits(case))


@settings(max_examples=12)
@given(case=cases())
def test_chunks_do_not_matter(case):
    same(ask(BY_NAME["crown"], case, LIVE), ask(BY_NAME["crown chunked"], case, LIVE), digits(case))


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@settings(max_examples=3)
@given(case=cases(most_images=3))
def test_a_batch_is_its_images(domain, case):
    whole = ask(domain, case, LIVE)
    parts = [
        ask(
            domain,
            replace(case, lb=case.lb[n : n + 1], ub=case.ub[n : n + 1], y=case.y[n : n + 1]),
            LIVE,
        )
        for n in range(len(case.lb))
    ]
    same(whole, Enclosure.stack(parts), digits(case))


@settings(max_examples=12)
@given(case=cases())
def test_windows_and_dense_rows_agree(case):
    windows = ask(BY_NAME["crown"], case, LIVE)
    reduced = ask(BY_NAME["crown"], case, COMPILED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module.Rows, "settle", rows_module.Rows.dense)
        same(windows, ask(BY_NAME["crown"], case, LIVE), digits(case))
        same(reduced, ask(BY_NAME["crown"], case, COMPILED), digits(case))


@settings(max_examples=12)
@given(case=cases())
def test_composing_changes_nothing(case):
    with composing(True):
        always = ask(BY_NAME["crown"], case, COMPILED)
    with composing(False):
        same(always, ask(BY_NAME["crown"], case, COMPILED), digits(case))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("slopes", ["last", "all"])
@settings(max_examples=10)
@given(case=cases())
def test_alpha_crown_is_never_looser_than_crown(slopes, dtype, case):
    """(Up to rounding: the two may come to the same bound by different sums.)"""
    crown = bounds_of(Crown(), case, dtype)
    alpha = bounds_of(AlphaCrown(slopes, steps=5), case, dtype)
    tolerance = 10 * torch.finfo(dtype).eps * (1 + largest(case))
    assert bool((alpha.lb >= crown.lb - tolerance).all())


@settings(max_examples=12)
@given(case=cases())
def test_crown_with_interval_boxes_is_crown_that_knows_only_those(case):
    """CROWN-IBP's relaxations are those on the interval's boxes, whoever gives them."""
    pre = bounds_of(Interval(), case).pre
    ibp = bounds_of(Crown("interval"), case)
    for mine, theirs in zip(ibp.pre, pre, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    again = ask_known(Crown("interval"), case, pre)
    same(ibp, again, digits(case))


def ask_known(bound, case, known, compiled=False):
    graph = (compile_network if compiled else trace)(case.net_in(torch.float64), case.shape)
    with torch.no_grad():
        return bound(graph, case.box(torch.float64), specification(case, LIVE), known)


KNOWING = [Interval(), Zonotope(), Crown(), Crown("interval"), AlphaCrown(steps=2)]


@pytest.mark.parametrize("bound", KNOWING, ids=repr)
@settings(max_examples=6)
@given(case=cases())
def test_what_is_known_is_kept(bound, case):
    """`known` comes out again at the ReLUs, or something tighter, in live and compiled networks."""
    known = bounds_of(Crown(), case).pre
    for compiled in (False, True):
        found = ask_known(bound, case, known, compiled)
        for (lb, ub), (known_lb, known_ub) in zip(found.pre, known, strict=True):
            assert bool((lb >= known_lb).all())
            assert bool((ub <= known_ub).all())


@settings(max_examples=10)
@given(case=cases())
def test_knowing_more_makes_intervals_tighter(case):
    """Interval bounds are monotone in what is known. (Those of zonotopes and CROWN are not.)"""
    plain = bounds_of(Interval(), case)
    known = ask_known(Interval(), case, bounds_of(Crown(), case).pre)
    no_looser(known, plain, digits(case))


@settings(max_examples=3)
@given(case=cases(radii=RADII[:1]))
def test_a_point_is_bounded_by_itself(case):
    """eps = 0: every sound domain gives f(x), to the digits of float64."""
    z = case.net_in(torch.float64)(case.lb.double()).flatten(1).detach()
    for domain in DOMAINS:
        for how in (LIVE, COMPILED):
            found = ask(domain, case, replace(how, specified=False))
            torch.testing.assert_close(found.lb, z, rtol=0, atol=digits(case))
            torch.testing.assert_close(found.ub, z, rtol=0, atol=digits(case))


@settings(max_examples=10)
@given(case=cases())
def test_a_smaller_box_is_not_bounded_worse_by_intervals(case):
    middle = (case.lb + case.ub) / 2
    inner = Corners((case.lb + middle) / 2, (case.ub + middle) / 2)
    small = replace(case, lb=inner.lb, ub=inner.ub)
    no_looser(bounds_of(Interval(), small), bounds_of(Interval(), case), digits(case))
