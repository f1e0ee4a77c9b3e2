"""The checks must bite: typical bugs are planted one by one, and each must be caught.

A bug is a function that patches one rule of maar.domains. The fixed cases below must pass all
checks as they are, and fail at least one with the bug in place. A new domain brings its own bugs.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from bound_checks import (
    How,
    Truth,
    composing,
    encloses,
    encloses_a_finer_box,
    no_shortcut,
    tiling,
)
from bound_domains import DOMAINS
from bound_truth import hard_points
from random_nets import Case, make_case
from torch import nn

from maar.domains import affine, backward, interval, learned_zonotope, relax, rounding, zonotope
from maar.domains.backward import Backward
from maar.domains.reduced import local, tiles
from maar.domains.reduced import network as reduced
from maar.domains.reduced.blocks import Blocks
from maar.domains.reduced.near import Place
from maar.domains.reduced.network import Reduced
from maar.domains.reduced.tiles import Tile
from maar.domains.rows import Rows
from maar.networks.layers import Normalize, Residual
from maar.networks.maps import Add

# ---------------------------------------------------------------- the cases and checks


def _conv_net() -> nn.Sequential:
    """Strides, padding and dilation differ in height and width; convolutions follow directly."""
    return nn.Sequential(
        Normalize([0.4, 0.2], [0.3, 0.5]),
        nn.Conv2d(2, 4, (2, 3), (2, 1), (1, 2), (1, 2), groups=2),
        nn.ReLU(),
        nn.Conv2d(4, 3, 3, (1, 2), (1, 0)),
        nn.Conv2d(3, 4, 2, 1, 1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, 6),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.Linear(6, 3),
    )


def _large_conv_net() -> nn.Sequential:
    """Large enough for windows to stay windows through three layers, and for composing."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, 1, 1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, 1, 1, groups=4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 49, 8),
        nn.ReLU(),
        nn.Linear(8, 3),
    )


def _residual_net() -> nn.Sequential:
    first = Residual(nn.Sequential(nn.Conv2d(2, 2, 3, 1, 1), nn.ReLU(), nn.Conv2d(2, 2, 3, 1, 1)))
    body = nn.Sequential(nn.Conv2d(2, 3, 3, 2, 1), nn.ReLU(), nn.Conv2d(3, 3, 3, 1, 1))
    second = Residual(body, nn.Sequential(nn.Conv2d(2, 3, 1, 2), nn.ReLU()))
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, 1, 1),
        nn.ReLU(),
        first,
        nn.ReLU(),
        second,
        nn.ReLU(),
        nn.AvgPool2d(3, 1, 1),
        nn.Flatten(),
        nn.Linear(27, 3),
    )


def _flat_net() -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(4, 8), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Linear(8, 8), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(8, 3))


@functools.cache
def cases() -> tuple[tuple[Case, Truth], ...]:
    made = [
        make_case(_conv_net(), (2, 4, 4), (0.02, 0.3), seed=1),
        make_case(_large_conv_net(), (1, 14, 14), (0.03,), seed=2),
        make_case(_residual_net(), (1, 5, 5), (0.05, 1.0), seed=3),
        make_case(_flat_net(), (4,), (0.2, 0.0, 3.0), seed=4),
    ]
    return tuple((case, Truth.at(case, hard_points(case))) for case in made)


BY_NAME = {domain.name: domain for domain in DOMAINS}
EXACT = [How(torch.float64), How(torch.float64, compiled=True)]
ROUNDED = [How(rounding=True), How(rounding=True, compiled=True)]
# (these compile the network themselves)
COMPILED = ["alpha_crown all", "alpha_crown grouped", "learned_zonotope"]
CHECKED = ["interval", "zonotope", "zonotope free slopes", "crown", *COMPILED]


def all_checks() -> Iterator[Callable[[], None]]:
    yield functools.partial(encloses_a_finer_box, BY_NAME["interval"], compiled=False)
    for case, truth in cases():
        # (the reduced network of a small net has seldom a reason to compose)
        yield functools.partial(_composed, case, truth)
    yield _tiled
    for name in CHECKED:
        hows = [EXACT[1], ROUNDED[1]] if name in COMPILED else [*EXACT, *ROUNDED]
        for how in hows:
            for case, truth in cases():
                yield functools.partial(encloses, BY_NAME[name], case, how, truth)


def _composed(case: Case, truth: Truth) -> None:
    with composing(True):
        encloses(BY_NAME["crown"], case, EXACT[1], truth)


@functools.cache
def tiled_case() -> tuple[Case, Truth]:
    case = make_case(_large_conv_net(), (1, 14, 14), (0.15,), seed=2)
    return case, Truth.at(case, hard_points(case))


def _tiled() -> None:
    with tiling(), no_shortcut():
        case, truth = tiled_case()
        encloses(BY_NAME["crown"], case, EXACT[1], truth)


# ---------------------------------------------------------------- planting

BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}


def bug(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    BUGS[plant.__name__] = plant


def swap(patch: pytest.MonkeyPatch, module: Any, name: str, make: Callable) -> None:
    """Replace a function in every module of maar.domains that has imported it."""
    old = getattr(module, name)
    new = make(old)
    for key, user in list(sys.modules.items()):
        if key.startswith("maar.domains") and getattr(user, name, None) is old:
            patch.setattr(user, name, new)


def swap_rule(patch: pytest.MonkeyPatch, module: Any, *kinds: type, make: Callable) -> None:
    """Replace rules of a domain's table."""
    for kind in kinds:
        patch.setitem(module.RULES, kind, make(module.RULES[kind]))


# ---------------------------------------------------------------- ReLU


@bug
def slope_of_the_wrong_side(patch):
    swap(patch, relax, "upper_line", lambda old: lambda lb, ub: (
        relax.lower_slope(lb, ub), torch.zeros_like(ub)))  # fmt: skip


@bug
def lower_slope_above_one(patch):
    swap(patch, relax, "lower_slope", lambda old: lambda lb, ub: 1.2 * old(lb, ub))


@bug
def intercept_missing(patch):
    swap(patch, relax, "upper_line", lambda old: lambda lb, ub: (
        old(lb, ub)[0], torch.zeros_like(ub)))  # fmt: skip


@bug
def intercept_of_free_slopes_from_one_end_only(patch):
    swap(patch, relax, "intercept_above", lambda old: lambda slope, lb, ub: -slope * lb)


@bug
def unstable_treated_as_stable(patch):
    swap(patch, relax, "upper_line", lambda old: lambda lb, ub: old(
        torch.where(ub > -3 * lb, lb.clamp(min=0), lb), ub))  # fmt: skip


@bug
def clip_at_the_wrong_end(patch):
    def wrong(old):
        def relu(boxes, i):
            value = boxes.graph.nodes[i].inputs[0]
            return boxes.lb[value].clamp(min=0), boxes.ub[value], None

        return relu

    swap_rule(patch, interval, nn.ReLU, make=wrong)


@bug
def mu_left_out_of_the_centre(patch):
    def wrong(old):
        def relu(value, k, lb, ub, slope):
            lines = relax.parallel_lines(lb, ub, slope)
            return replace(old(value, k, lb, ub, slope), centre=value.centre * lines[0])

        return relu

    swap(patch, zonotope, "_relu", wrong)


@bug
def new_error_terms_left_out(patch):
    def wrong(old):
        def relu(value, k, lb, ub, slope):
            after = old(value, k, lb, ub, slope)
            return replace(after, groups={g: e for g, e in after.groups.items() if g != k})

        return relu

    swap(patch, zonotope, "_relu", wrong)


@bug
def slopes_of_alpha_not_clamped(patch):
    patch.setattr(torch.Tensor, "clamp_", lambda tensor, *_: tensor)


@bug
def inner_bounds_of_learned_slopes_too_tight(patch):
    def wrong(old):
        def rebounded(net, slopes):
            made = old(net, slopes)
            layers = [replace(layer, ub=(layer.lb + layer.ub) / 2) for layer in made.layers]
            return replace(made, layers=layers)

        return rebounded

    swap(patch, learned_zonotope, "rebounded", wrong)


# ---------------------------------------------------------------- affine layers


@bug
def abs_forgotten(patch):
    def wrong(old):
        def affine_(boxes, i, apply, apply_abs, bias, terms):
            def linear(x):
                return apply(x) - apply(torch.zeros_like(x))

            return old(boxes, i, apply, linear, bias, terms)

        return affine_

    swap(patch, interval, "_affine", wrong)


def _flipped(old):
    def rule(run, i, rows):
        before = run.constant
        below = old(run, i, rows)
        run.constant = before - (run.constant - before)
        return below

    return rule


@bug
def bias_sign_flipped_in_linear(patch):
    swap_rule(patch, backward, nn.Linear, make=_flipped)


@bug
def bias_sign_flipped_in_convolutions(patch):
    swap_rule(patch, backward, nn.Conv2d, make=_flipped)


def _moved(change):
    """Windows come out of a convolution at another place."""

    def make(old):
        def rule(run, i, rows):
            below = old(run, i, rows)
            if below.corner is None:
                return below
            op = run.boxes.graph.nodes[i].op
            return replace(below, corner=below.corner + change(op, rows))

        return rule

    return make


@bug
def window_corner_off_by_one(patch):
    swap_rule(patch, backward, nn.Conv2d, make=_moved(lambda op, rows: torch.tensor([0, 1])))


@bug
def padding_dropped_for_windows(patch):
    change = _moved(lambda op, rows: torch.tensor(op.padding))
    swap_rule(patch, backward, nn.Conv2d, make=change)


@bug
def stride_transposed(patch):
    def change(op, rows):
        stride = torch.tensor(op.stride)
        return rows.corner * (stride.flip(0) - stride)

    swap_rule(patch, backward, nn.Conv2d, make=_moved(change))


@bug
def padding_dropped_in_the_transposed_convolution(patch):
    def wrong(old):
        def transposed(A, weight, conv, shape):
            if shape is None:
                return old(A, weight, conv, None)
            (top, left), (height, width) = conv.padding, shape[1:]
            whole = torch.Size((shape[0], height + 2 * top, width + 2 * left))
            wide = old(A, weight, replace(conv, padding=(0, 0)), whole)
            return wide[:, :, :height, :width]

        return transposed

    swap(patch, backward, "_transposed", wrong)


@bug
def groups_ignored(patch):
    """Every group gets the weights of the first."""

    def wrong(old):
        def transposed(A, weight, conv, shape):
            first = weight[: len(weight) // conv.groups]
            return old(A, first.repeat(conv.groups, 1, 1, 1), conv, shape)

        return transposed

    swap(patch, backward, "_transposed", wrong)


@bug
def padding_not_masked(patch):
    """A window keeps what it has in the padding, and the convolution below adds it up."""
    patch.setattr(Rows, "masked", lambda rows, shape: rows)


@bug
def batch_norm_shift_forgotten(patch):
    def wrong(old):
        return lambda op: (old(op)[0], torch.zeros_like(old(op)[1]))

    swap(patch, affine, "scale_of", wrong)


@bug
def batch_norm_scale_taken_as_positive(patch):
    def wrong(old):
        return lambda op: (old(op)[0].abs(), old(op)[1])

    swap(patch, affine, "scale_of", wrong)


@bug
def batch_norm_shift_forgotten_in_proofs(patch):
    def wrong(old):
        def enclosed_scale(*arguments):
            scale, shift = old(*arguments)
            return scale, torch.zeros_like(shift)

        return enclosed_scale

    swap(patch, affine, "enclosed_scale", wrong)


@bug
def batch_norm_scale_of_three_digits_in_proofs(patch):
    def wrong(old):
        def enclosed_scale(*arguments):
            scale, shift = old(*arguments)
            return scale.bfloat16().to(scale), shift

        return enclosed_scale

    swap(patch, affine, "enclosed_scale", wrong)


@bug
def pool_divided_by_one_side(patch):
    def wrong(old):
        def conv_of(op, channels):
            conv = old(op, channels)
            if isinstance(op, nn.AvgPool2d):
                conv = replace(conv, weight=conv.weight * conv.weight.shape[-1])
            return conv

        return conv_of

    swap(patch, affine, "conv_of", wrong)


# ---------------------------------------------------------------- residual blocks


@bug
def residual_branch_dropped_backwards(patch):
    patch.setattr(Backward, "_meet", lambda run, value, left, right: left)


@bug
def residual_branch_dropped_by_intervals(patch):
    def wrong(old):
        def add(boxes, i):
            left, _ = boxes.graph.nodes[i].inputs
            return boxes.lb[left], boxes.ub[left], old(boxes, i)[2]

        return add

    swap_rule(patch, interval, Add, make=wrong)


@bug
def error_terms_of_a_branch_dropped(patch):
    def wrong(old):
        return lambda op, left, right: replace(old(op, left, right), groups=left.groups)

    swap_rule(patch, zonotope, Add, make=wrong)


# ---------------------------------------------------------------- specification, reduced network


@bug
def sign_of_the_rows_of_C(patch):
    swap(patch, backward, "specification", lambda old: lambda *given: -old(*given))


@bug
def columns_off_by_one(patch):
    old = Rows.columns
    patch.setattr(Rows, "columns", lambda rows, *given: old(rows, *given).roll(1, dims=1))


@bug
def composed_rows_without_their_constant(patch):
    def wrong(old):
        def compose(A, rows):
            made = old(A, rows)
            return replace(made, c=torch.zeros_like(made.c))

        return compose

    swap(patch, reduced, "_compose", wrong)


@bug
def composed_rows_without_their_unstable_relus(patch):
    def wrong(old):
        def compose(A, rows):
            made = old(A, rows)
            return replace(made, Z=torch.zeros_like(made.Z))

        return compose

    swap(patch, reduced, "_compose", wrong)


# (with boxes for all z, `quick`, a tile that sees too little may still be right by chance)


@bug
def windows_written_one_place_off(patch):
    old = Place.write

    def wrong(place, rows):
        return old(replace(place, left=place.left + 1, right=place.right + 1), rows)

    patch.setattr(Place, "write", wrong)


@bug
def tiles_without_their_last_relus(patch):
    def wrong(tile, rows):
        first = tile.relaxed[-1][0]
        cut = replace(rows, Z=rows.Z[:, :first])
        return old(replace(tile, relaxed=tile.relaxed[:-1]), cut)

    old = Tile.lower
    patch.setattr(Tile, "lower", wrong)


@bug
def a_guess_taken_for_a_proof(patch):
    def wrong(old):
        def settled(rows, pair, lower):
            lb, ub = old(rows, pair, lower)
            return lb, torch.where(pair[0] + pair[1] < 0, ub.clamp(max=0), ub)

        return settled

    swap(patch, tiles, "settled", wrong)


@bug
def blocks_that_forget_some(patch):
    old = Blocks.times
    patch.setattr(
        Blocks, "times", lambda all_, weight: old(replace(all_, parts=all_.parts[::2]), weight)
    )


@bug
def upper_bounds_by_the_lower_lines(patch):
    def wrong(old):
        def relaxed(net, rows, slopes, upper):
            X, c, e = old(net, rows, slopes, upper)
            return (X, old(net, rows, slopes, False)[1], e) if upper else (X, c, e)

        return relaxed

    patch.setattr(Reduced, "_relaxed", wrong(Reduced._relaxed))


@bug
def groups_that_see_too_little(patch):
    swap(patch, local, "_first", lambda old: lambda seen: old(seen)[:, :-1])


@bug
def groups_that_do_not_see_through_relus(patch):
    def wrong(old):
        def sees(rows, before, member):
            return [*old(rows, before, member)[:-1], old(rows, [], member)[-1]]

        return sees

    swap(patch, local, "_sees", wrong)


@bug
def neurons_of_a_group_mixed_up(patch):
    def wrong(old):
        def groups(*given):
            found = old(*given)
            return found and replace(found, slot=found.slot.roll(1))

        return groups

    swap(patch, local, "grouped", wrong)


# ---------------------------------------------------------------- rounding


@bug
def rounding_slack_zero(patch):
    swap(patch, rounding, "gamma", lambda old: lambda n, dtype: 0.0)


@bug
def box_rounded_to_nearest(patch):
    def wrong(old):
        return lambda lb, ub, dtype=None: (lb.to(dtype or lb.dtype), ub.to(dtype or ub.dtype))

    swap(patch, rounding, "outward", wrong)


# ---------------------------------------------------------------- the tests


def run_all() -> None:
    for check in all_checks():
        check()


def test_without_a_bug_every_check_passes():
    run_all()


@pytest.mark.parametrize("name", BUGS)
def test_caught(name, monkeypatch):
    BUGS[name](monkeypatch)
    with pytest.raises(AssertionError, match="leaves its bounds"):
        run_all()


def test_there_are_dozens():
    assert len(BUGS) >= 24
