"""With `rounding=True` a bound holds for the real-number network, to the last bit.

Random networks seldom come near the worst case of rounding, so most cases here are made so that
errors add up: sums that lose every small term, numbers at the edge of underflow, other orders of
summation. docs/soundness.md has the argument that these tests try to break.
"""

import copy
import math
from fractions import Fraction

import pytest
import torch
from bound_checks import How, ask, encloses_a_finer_box, encloses_exactly, largest, no_shortcut
from bound_domains import DOMAINS
from bound_truth import fractions
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_nets import cases, make_case
from torch import nn

from maar.core.errors import UsageError
from maar.domains.alpha_crown import AlphaCrown, never_below
from maar.domains.bound import Corners
from maar.domains.crown import Crown
from maar.domains.graph import compile_network
from maar.domains.interval import Interval
from maar.domains.relax import parallel_lines, upper_line
from maar.domains.rounding import gamma, outward, unit
from maar.domains.rows import Rows
from maar.domains.zonotope import Zonotope

BY_NAME = {domain.name: domain for domain in DOMAINS}
ROUNDED = [Interval(True), Crown(rounding=True), Crown("interval", True)]
ROUNDED += [Zonotope(rounding=True), AlphaCrown(steps=1, rounding=True)]
every_bound = pytest.mark.parametrize("bound", ROUNDED, ids=repr)
either_form = pytest.mark.parametrize("compiled", [False, True], ids=["live", "compiled"])


def linear(weight, bias=None):
    """A Linear layer of the given float32 numbers."""
    weight = torch.as_tensor(weight, dtype=torch.float32)
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(torch.as_tensor(bias, dtype=torch.float32))
    return layer


def lower_bound(bound, net, box, compiled):
    net.eval()
    given = compile_network(net, box.lb.shape[1:]) if compiled else net
    with torch.no_grad():
        return fractions(bound(given, box).lb[0])[0]


# ---------------------------------------------------------------- float32 against float64


def assume_same_signs(a, b):
    """Leave out boxes that end at 0, where rounding decides whether a neuron is worth bounding."""
    for (lb, ub), (other_lb, other_ub) in zip(a.pre, b.pre, strict=True):
        assume(torch.equal((lb < 0) & (ub > 0), (other_lb < 0) & (other_ub > 0)))


@pytest.mark.parametrize("name", ["interval", "zonotope", "crown", "crown interval"])
@settings(max_examples=12)
@given(case=cases())
def test_float32_is_on_the_safe_side_of_float64(name, case):
    with no_shortcut():
        safe = ask(BY_NAME[name], case, How(torch.float32, rounding=True, compiled=True))
        good = ask(BY_NAME[name], case, How(torch.float64, compiled=True))
    assume_same_signs(safe, good)
    for mine, theirs in [
        ((safe.lb, safe.ub), (good.lb, good.ub)),
        *zip(safe.pre, good.pre, strict=True),
    ]:
        assert bool((mine[0].double() <= theirs[0]).all())
        assert bool((mine[1].double() >= theirs[1]).all())


@settings(max_examples=12)
@given(case=cases())
def test_the_float32_zonotope_is_within_the_slack_of_the_float64_one(case):
    with no_shortcut():
        plain = ask(BY_NAME["zonotope"], case, How(torch.float32, compiled=True))
        safe = ask(BY_NAME["zonotope"], case, How(torch.float32, rounding=True, compiled=True))
        good = ask(BY_NAME["zonotope"], case, How(torch.float64, compiled=True))
    assume_same_signs(safe, good)
    below, above = plain.lb - safe.lb, safe.ub - plain.ub
    assert bool(((plain.lb.double() - good.lb).abs() <= below).all())
    assert bool(((plain.ub.double() - good.ub).abs() <= above).all())


@pytest.mark.parametrize("name", ["interval", "zonotope", "crown", "alpha_crown last"])
@settings(max_examples=5)
@given(case=cases())
def test_the_slack_is_small(name, case):
    """Honesty must not cost more than a few digits of float32, and next to nothing in float64."""
    for dtype, digits in ((torch.float32, 1e-3), (torch.float64, 1e-11)):
        with no_shortcut():
            plain = ask(BY_NAME[name], case, How(dtype, compiled=True))
            safe = ask(BY_NAME[name], case, How(dtype, rounding=True, compiled=True))
        assert float((plain.lb - safe.lb).max()) <= digits * (1 + largest(case))


# ---------------------------------------------------------------- errors that add up


def losing_sum(count):
    """v_0 - v_1 - ... - v_n, where adding the v_j to v_0 one by one changes nothing in float32.

    All ReLUs are just unstable, so their relaxation costs next to nothing, and their inputs are
    small differences of large numbers: 1/rho times larger on the way than in the end.
    """
    rho, small, more = 2.0**-10, 0.98 * 2.0**-26, 1 + 2.0**-12
    weight = torch.zeros(count, 2, dtype=torch.float64)
    weight[0] = torch.tensor([1, -1]) * 0.5 / rho * more
    weight[1:, 0] = small / rho * more
    bias = torch.full((count,), small - small / rho * more, dtype=torch.float64)
    bias[0] = 1
    signs = torch.full((1, count), -1.0)
    signs[0, 0] = 1
    net = nn.Sequential(linear(weight, bias), nn.ReLU(), linear(signs))
    x = torch.ones(1, 2)
    return net, Corners(x - rho, x + rho)


@either_form
@every_bound
def test_a_sum_over_many_unstable_relus(bound, compiled):
    net, box = losing_sum(3000)
    corner = torch.stack([box.lb[0, 0], box.ub[0, 1]]).double()
    truth = net.double()(corner).item()
    assert lower_bound(bound, net.float(), box, compiled) <= truth


@either_form
@every_bound
def test_a_sum_over_many_active_relus(bound, compiled):
    """As above with stable ReLUs and a convolution in front, which the reduced network composes."""
    count, rho, small = 1000, 2.0**-10, 0.98 * 2.0**-25
    weight = torch.zeros(count, 2, dtype=torch.float64)
    weight[0] = torch.tensor([1, -1]) / rho
    weight[1:, 0] = small / rho
    bias = -weight.sum(1) + 3 * weight.abs().amax(1) * rho
    first = nn.Conv2d(2, count, 1)
    with torch.no_grad():
        first.weight.copy_(weight[:, :, None, None])
        first.bias.copy_(bias)
    signs = torch.full((1, count), -1.0)
    signs[0, 0] = 1
    net = nn.Sequential(first, nn.ReLU(), nn.Flatten(), linear(signs))
    x = torch.ones(1, 2, 1, 1)
    box = Corners(x - rho, x + rho)
    worst = torch.stack([box.lb[0, 0], box.ub[0, 1]]).view(1, 2, 1, 1).double()
    truth = min(net.double()(point).item() for point in (worst, box.ub.double()))
    assert lower_bound(bound, net.float(), box, compiled) <= truth


def test_the_sum_of_intercepts_in_any_order(monkeypatch):
    """Two sums lose their small terms at once: the coefficients' and the intercepts'.

    A processor may add one after the other; most add several sums side by side, so the order is
    made here.
    """

    def one_by_one(rows, field):
        products = (rows.A * rows.look_up(field)).flatten(1)
        total = torch.zeros(len(rows))
        for column in products.unbind(1):
            total = total + column
        return total

    count = 3000
    weight = torch.full((count, 1), 0.98 * 2.0**-24)
    weight[0] = 1
    net = nn.Sequential(linear(weight), nn.ReLU(), linear(torch.full((1, count), -1.0)))
    box = Corners(-torch.ones(1, 1), torch.ones(1, 1))
    truth = -weight.double().sum().item()
    monkeypatch.setattr(Rows, "dot", one_by_one)
    assert lower_bound(Crown("interval", True), net, box, False) <= truth


@either_form
@every_bound
def test_a_deep_chain(bound, compiled):
    """Sixty biases, each lost when it is added to the constant."""
    layers = [linear([[1.0]], [0.98 * 2.0**-24]) for _ in range(60)]
    layers[0] = linear([[1.0]], [-1.0])
    net = nn.Sequential(*layers, linear([[1.0]], [1.0]))
    box = Corners(torch.zeros(1, 1), torch.full((1, 1), 2.0**-20))
    exact = sum(Fraction(layer.bias.item()) for layer in net)
    assert lower_bound(bound, net, box, compiled) <= exact


def test_the_gradient_trick_of_alpha_crown_keeps_bounds_to_the_last_bit():
    generator = torch.Generator().manual_seed(0)
    old = -torch.rand(10000, generator=generator)
    new = old + torch.randn(10000, generator=generator) * 1000
    assert bool((never_below(old, new) <= torch.maximum(old, new)).all())


# ---------------------------------------------------------------- weights that are derived


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@either_form
@every_bound
def test_weights_that_are_no_floats(bound, compiled, dtype):
    """1/9, 1/std and 1/sqrt(var + eps): the real network has them exactly."""
    net = nn.Sequential(
        nn.BatchNorm2d(1), nn.AvgPool2d(3, 2, 1), nn.ReLU(), nn.AvgPool2d(3, 1, 1), nn.Flatten(),
        nn.Linear(9, 2),
    )  # fmt: skip
    case = make_case(net, (1, 5, 5), (0.05,), seed=1)
    domain = next(d for d in DOMAINS if type(d.make(True, graph_of(case))) is type(bound))
    encloses_exactly(domain, case, How(dtype, True, compiled), torch.stack([case.lb, case.ub]))


def graph_of(case):
    return compile_network(case.net, case.shape)


# ---------------------------------------------------------------- the relaxation

SPECIAL = [2.0**-149, 3 * 2.0**-149, 2.0**-126, 1e-40, 1e-30, 1.0, 1 + 2.0**-23, 1e20]
positive = st.one_of(
    st.sampled_from([float(torch.tensor(v, dtype=torch.float32)) for v in SPECIAL]),
    st.floats(2.0**-149, 2.0**100, width=32),
)


@settings(max_examples=200)
@given(below=positive, above=positive, slope=st.none() | st.floats(-0.125, 1.125, width=32))
def test_the_lines_hold_for_real_numbers(below, above, slope):
    """s v <= s v + t, and s v + t >= relu(v) at both ends, in rational numbers."""
    lb, ub = torch.tensor([-below]), torch.tensor([above])
    given_slope = None if slope is None else torch.tensor([slope])
    for s, t in (upper_line(lb, ub), parallel_lines(lb, ub, given_slope)):
        (s,), (t,), (low,), (high,) = map(fractions, (s, t, lb, ub))
        assert 0 <= s <= 1
        assert s * low + t >= 0
        assert s * high + t >= high
        # and not wasteful: within a few units of the least intercept
        least = max(-s * low, (1 - s) * high)
        assert t <= least * (1 + Fraction(1, 2**18)) + Fraction(1, 2**120)


# ---------------------------------------------------------------- underflow


@either_form
@every_bound
def test_products_that_underflow(bound, compiled):
    """Each product is half a unit of the smallest float: some are rounded up, others away."""
    count, tiny = 1000, 2.0**-75
    net = nn.Sequential(linear(torch.full((1, count), tiny)))
    box = Corners(torch.full((1, count), 2.0**-94), torch.full((1, count), 2 * tiny))
    truth = count * Fraction(tiny) * Fraction(2.0**-94)
    assert lower_bound(bound, net, box, compiled) <= truth


@either_form
@every_bound
def test_coefficients_that_underflow(bound, compiled):
    """1e-25 twice is 0 in float32, but the value that it multiplies is 1e35."""
    net = nn.Sequential(*(linear([[w]]) for w in (1e35, 1e-25, 1e-25)))
    box = Corners(-torch.ones(1, 1), torch.ones(1, 1))
    truth = -math.prod(Fraction(layer.weight.item()) for layer in net)
    assert lower_bound(bound, net, box, compiled) <= truth


@either_form
@every_bound
def test_a_box_of_one_unit_of_the_smallest_float(bound, compiled):
    """Its half is no float; the next weight makes a visible number of it."""
    net = nn.Sequential(linear([[2.0**-100]]), nn.ReLU(), linear([[-(2.0**120)]]))
    box = Corners(torch.zeros(1, 1), torch.full((1, 1), 2.0**-49 * 1.01))
    truth = -Fraction(2.0**20) * Fraction(float(box.ub))
    assert lower_bound(bound, net, box, compiled) <= truth


# ---------------------------------------------------------------- what comes from outside


@settings(max_examples=200)
@given(
    value=st.floats(allow_nan=False, allow_infinity=False),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_outward(value, dtype):
    lb, ub = outward(*torch.tensor([[value], [value]], dtype=torch.float64), dtype)
    assert lb.dtype == ub.dtype == dtype
    assert lb.item() < value < ub.item()
    close = max(2 * float(torch.finfo(dtype).eps) * abs(value), 4 * torch.finfo(dtype).tiny)
    if abs(value) < 0.99 * torch.finfo(dtype).max:
        assert max(value - lb.item(), ub.item() - value) <= close


@either_form
@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_a_box_in_another_precision(domain, compiled):
    encloses_a_finer_box(domain, compiled)


@either_form
@every_bound
def test_what_is_known_in_another_precision(bound, compiled):
    """0.1 in float64 is not 0.1 in float32: the box goes outwards."""
    net = nn.Sequential(linear([[1.0]]), nn.ReLU(), linear([[1.0]])).eval()
    given = compile_network(net, (1,)) if compiled else net
    known = torch.tensor([[0.1]], dtype=torch.float64), torch.tensor([[0.7]], dtype=torch.float64)
    box = Corners(torch.zeros(1, 1), torch.ones(1, 1))
    found = bound(given, box, known=[known])
    ((lb, ub),) = found.pre
    assert lb.item() <= known[0].item()
    assert ub.item() >= known[1].item()


@either_form
@every_bound
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf, 3e38])
def test_what_is_no_number_verifies_nothing(bound, compiled, broken):
    """NaN, infinite or overflowing weights, at every place: no lower bound is > 0."""
    for layer, place in ((0, (0, 0)), (0, (1, 0)), (2, (0, 1))):
        net = nn.Sequential(
            linear([[1.0], [-1.0]], [5.0, -5.0]), nn.ReLU(), linear([[1e3, 1e3]], [1.0])
        )
        with torch.no_grad():
            net[layer].weight[place] = broken
        given = compile_network(net, (1,)) if compiled else net
        with torch.no_grad():
            found = bound(given, Corners(torch.tensor([[-2.0]]), torch.tensor([[2.0]])))
            truth = net.double()(torch.tensor([[-2.0], [2.0]], dtype=torch.float64))
        assert not bool((found.lb > 0).any()) or bool((truth >= found.lb.double()).all())


# ---------------------------------------------------------------- the model of the arithmetic


@given(n=st.integers(1, 10**6), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_gamma(n, dtype):
    u = Fraction(unit(dtype))
    assert unit(dtype) == torch.finfo(dtype).eps / 2
    assert Fraction(gamma(n, dtype)) >= n * u / (1 - n * u)
    assert gamma(10**9, torch.float32) == math.inf


def test_a_slack_that_rounding_may_spoil_is_refused():
    """gamma is inflated by a percent; sums that may lose more than that need float64."""
    wide = nn.Sequential(nn.Linear(200_000, 1))
    box = Corners(torch.zeros(1, 200_000), torch.ones(1, 200_000))
    with pytest.raises(UsageError, match=r"200000 neurons.*float64"):
        Interval(True)(wide, box)
    Interval(True)(wide.double(), box)


@pytest.mark.parametrize("bound", ROUNDED, ids=repr)
def test_reduced_precision_is_refused(bound):
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).requires_grad_(False)
    box = Corners(torch.zeros(1, 2), torch.ones(1, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(UsageError, match="autocast"):
        bound(net, box)
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(UsageError, match=r"(matmul_|fp32_)precision"):
            bound(net, box)
        bound(net.double(), box)
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("name", ["ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"])
def test_onednn_told_to_use_fewer_bits_is_refused(name, monkeypatch):
    net, box = nn.Linear(2, 2), Corners(torch.zeros(1, 2), torch.ones(1, 2))
    monkeypatch.setenv(name, "BF16")
    with pytest.raises(UsageError, match=f"{name} = BF16"):
        Interval(rounding=True)(net, box)
    Interval(rounding=True)(net.double(), box)
    monkeypatch.setenv(name, "STRICT")
    Interval(rounding=True)(net.float(), box)


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "conv"), reason="torch is too old for it")
@pytest.mark.parametrize("part", ["conv", "matmul"])
def test_torch_told_to_use_fewer_bits_is_refused(part):
    place = getattr(torch.backends.mkldnn, part)
    before = place.fp32_precision
    place.fp32_precision = "bf16"
    try:
        with pytest.raises(UsageError, match=f"mkldnn.{part}.fp32_precision = bf16|matmul_prec"):
            Interval(rounding=True)(nn.Linear(2, 2), Corners(torch.zeros(1, 2), torch.ones(1, 2)))
    finally:
        place.fp32_precision = before


@pytest.mark.parametrize("batch", [1, 2, 16, 33])
@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_this_machine_convolves_directly(batch, groups, dtype):
    """A huge pixel must not disturb outputs that do not see it, as it would by Winograd or FFT."""
    x = torch.ones(batch, 8, 16, 16, dtype=dtype)
    x[:, :, 4, 4] = 1e9
    for kernel in (3, 5):
        weight = torch.full((8, 8 // groups, kernel, kernel), 0.1, dtype=dtype)
        out = nn.functional.conv2d(x, weight, padding=kernel // 2, groups=groups)
        far = torch.ones(16, 16, dtype=torch.bool)
        reach = kernel // 2 + 1
        far[4 - reach + 1 : 4 + reach, 4 - reach + 1 : 4 + reach] = False
        alone = nn.functional.conv2d(torch.ones_like(x), weight, padding=kernel // 2, groups=groups)
        n = weight[0].numel()
        error = (out - alone).abs()[:, :, far].max()
        assert float(error) <= 2 * gamma(n, dtype) * float(alone.max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_this_machine_multiplies_directly(dtype):
    """No row or column of a matrix product disturbs another, as Strassen's algorithm would."""
    left, right = torch.ones(256, 256, dtype=dtype), torch.ones(256, 256, dtype=dtype)
    left[3] = 1e9
    right[:, 5] = 1e9
    product = left @ right
    rest = torch.ones(256, 256, dtype=torch.bool)
    rest[3], rest[:, 5] = False, False
    assert bool((product[rest] == 256).all())


@pytest.mark.parametrize("bound", ROUNDED, ids=repr)
def test_flushing_of_subnormal_numbers_is_refused(bound):
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).requires_grad_(False)
    box = Corners(torch.zeros(1, 2), torch.ones(1, 2))
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush")
    try:
        for module in (net, copy.deepcopy(net).double()):
            with pytest.raises(UsageError, match="subnormal numbers are flushed"):
                bound(module, box)
    finally:
        torch.set_flush_denormal(False)
    bound(net, box)


@pytest.mark.parametrize("bound", ROUNDED, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_types_of_few_bits_are_refused(bound, dtype):
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).requires_grad_(False)
    box = Corners(torch.zeros(1, 2, dtype=dtype), torch.ones(1, 2, dtype=dtype))
    with pytest.raises(UsageError, match=f"{dtype} cannot account for rounding"):
        bound(net.to(dtype), box)


@pytest.mark.parametrize("bound", ROUNDED, ids=repr)
def test_rows_that_would_be_rounded_are_refused(bound):
    """C in float64 over a network in float32: 1 + 1e-9 would become 1."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).requires_grad_(False)
    box = Corners(torch.zeros(1, 2), torch.ones(1, 2))
    C = torch.tensor([[[1 + 1e-9, -1.0]]], dtype=torch.float64)
    with pytest.raises(UsageError, match=r"C has numbers that are no torch\.float32"):
        bound(net, box, C)
    bound(net, box, C.round())
    bound(net.double(), box, C)
