"""Windows: every operation gives what the dense rows give."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maar.domains.rows import Rows, add, neurons


@st.composite
def windows(draw, shape=None):
    """Rows over a value of shape [2, h, w], hanging over its edges, for a batch of two."""
    shape = shape or torch.Size((2, draw(st.integers(1, 5)), draw(st.integers(1, 5))))
    height, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    count = draw(st.integers(0, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    corner = torch.stack(
        [torch.randint(-n - 1, side + 2, (count,), generator=generator)
         for n, side in ((height, shape[1]), (width, shape[2]))], 1
    )  # fmt: skip
    A = torch.randn(count, 2, height, width, generator=generator, dtype=torch.float64)
    image = torch.randint(0, 2, (count,), generator=generator)
    return shape, Rows(A, draw(st.sampled_from([image, None])), corner)


def field_for(rows, shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = 1 if rows.image is None else 2
    return torch.randn(images, *shape, generator=generator, dtype=torch.float64)


def by_hand(rows, shape):
    """The dense rows, element by element."""
    whole = torch.zeros(len(rows), *shape, dtype=rows.A.dtype)
    for r in range(len(rows)):
        top, left = rows.corner[r].tolist()
        for y in range(rows.A.shape[2]):
            for x in range(rows.A.shape[3]):
                if 0 <= top + y < shape[1] and 0 <= left + x < shape[2]:
                    whole[r, :, top + y, left + x] = rows.A[r, :, y, x]
    return Rows(whole, rows.image)


@settings(max_examples=60, deadline=None)
@given(windows())
def test_dense(made):
    shape, rows = made
    torch.testing.assert_close(rows.dense(shape).A, by_hand(rows, shape).A)
    torch.testing.assert_close(rows.masked(shape).dense(shape).A, by_hand(rows, shape).A)


@settings(max_examples=60, deadline=None)
@given(windows())
def test_products(made):
    shape, rows = made
    field, dense = field_for(rows, shape), by_hand(rows, shape)
    torch.testing.assert_close(rows.dot(field), dense.dot(field))
    torch.testing.assert_close(rows.dot_abs(field.abs()), dense.dot_abs(field.abs()))
    torch.testing.assert_close((-rows).dot(field), -dense.dot(field))
    passed = rows.with_A(rows.A * rows.look_up(field))
    torch.testing.assert_close(passed.dense(shape).A, dense.A * dense.look_up(field))


@settings(max_examples=60, deadline=None)
@given(windows())
def test_columns(made):
    shape, rows = made
    index = torch.arange(shape.numel())[::2]
    torch.testing.assert_close(
        rows.columns(index, shape), by_hand(rows, shape).A.flatten(1)[:, index]
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_sums(data):
    shape, left = data.draw(windows())
    right = data.draw(windows(shape))[1]
    count = min(len(left), len(right))
    image = None if left.image is None else left.image[:count]
    left = Rows(left.A[:count], image, left.corner[:count])
    right = Rows(right.A[:count], image, right.corner[:count])
    if data.draw(st.booleans()):  # side by side, as the branches of a residual block are
        right = Rows(right.A, image, left.corner)
    total = add(left, right, shape)
    expected = by_hand(left, shape).A + by_hand(right, shape).A
    torch.testing.assert_close(total.dense(shape).A, expected)
    half = add(left, by_hand(right, shape), shape)
    torch.testing.assert_close(half.dense(shape).A, expected)


@settings(max_examples=60, deadline=None)
@given(windows())
def test_the_count_of_coefficients_is_never_too_small(made):
    """`gated` says how many coefficients of a row are not zero, for the rounding error."""
    shape, rows = made
    field = field_for(rows, shape)
    gate = field > 0
    passed = rows.gated(rows.A * rows.look_up(gate.to(rows.A)), gate)
    if len(rows):
        live = int((passed.dense(shape).A != 0).flatten(1).sum(1).max())
        assert passed.terms is not None
        assert live <= passed.terms <= rows.A[0].numel()


@pytest.mark.parametrize("shape", [(3, 4, 5), (7,)])
def test_neurons(shape):
    shape = torch.Size(shape)
    index = torch.arange(shape.numel())
    rows = neurons(shape, index, None, torch.float64)
    assert rows.unit
    field = torch.rand(1, *shape, dtype=torch.float64)
    torch.testing.assert_close(rows.dot(field), field.flatten())
    torch.testing.assert_close(rows.dense(shape).A.flatten(1), torch.eye(len(index)).double())
