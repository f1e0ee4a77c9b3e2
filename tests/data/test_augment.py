"""Augmentation against the plain loop over images that it stands for."""

import pytest
import torch

from maar.data.augment import AUGMENTS, affine, crop_flip, edge_flip, shift


def by_loop(x, generator, padding=4, flips=True, edge=False):
    """The same random numbers, one image after the other."""
    n, channels, height, width = x.shape
    shifts = 2 * padding + 1
    down, right, mirror = (
        torch.randint(high, (n,), generator=generator).tolist()
        for high in (shifts, shifts, 2 if flips else 1)
    )
    out = torch.empty_like(x)
    for i in range(n):
        large = torch.zeros(channels, height + shifts - 1, width + shifts - 1, dtype=x.dtype)
        large[:, padding:-padding, padding:-padding] = x[i]
        if edge:
            rows = [min(max(r - padding, 0), height - 1) for r in range(height + shifts - 1)]
            columns = [min(max(c - padding, 0), width - 1) for c in range(width + shifts - 1)]
            large = x[i][:, rows][:, :, columns]
        part = large[:, down[i] : down[i] + height, right[i] : right[i] + width]
        out[i] = part.flip(-1) if mirror[i] else part
    return out


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(64, 3, 32, 32), (7, 1, 28, 20), (1, 3, 5, 5)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_all_are_the_loop(shape, dtype):
    x = torch.randint(1, 256, shape, generator=seeded(1)).to(dtype)
    before = x.clone()
    assert torch.equal(crop_flip(x, seeded()), by_loop(x, seeded()))
    assert torch.equal(shift(x, seeded()), by_loop(x, seeded(), padding=2, flips=False))
    assert torch.equal(edge_flip(x, seeded()), by_loop(x, seeded(), padding=2, edge=True))
    assert torch.equal(x, before)


def test_every_shift_and_both_sides_occur():
    x = torch.zeros(2000, 1, 9, 9)
    x[:, :, 4, 4] = 1  # with padding 4 the point stays inside
    x[:, :, 4, 5] = 2
    moved = crop_flip(x, seeded()).flatten(1)
    places = moved.eq(1).float().argmax(1)
    assert len(places.unique()) == 81
    assert 0.4 < (moved.eq(2).float().argmax(1) > places).float().mean() < 0.6


@pytest.mark.parametrize("name", AUGMENTS)
def test_a_generator_set_back_gives_the_same_images(name):
    x = torch.rand(8, 3, 8, 8, generator=seeded(1))
    generator = seeded(5)
    AUGMENTS[name](x, generator)
    state = generator.get_state()
    first = AUGMENTS[name](x, generator)
    end = generator.get_state()
    generator.set_state(state)
    assert torch.equal(AUGMENTS[name](x, generator), first)
    generator.set_state(state)
    AUGMENTS[name](torch.zeros_like(x), generator)  # what is in the images must not matter
    assert torch.equal(generator.get_state(), end)


def a_dot(n, row, column, size=21):
    x = torch.zeros(n, 1, size, size)
    x[:, :, row, column] = 1
    return x


def centre(x):
    """(row, column) of the mean brightness of each image."""
    rows, columns = torch.arange(x.shape[2]).float(), torch.arange(x.shape[3]).float()
    mass = x.sum((1, 2, 3))
    return torch.stack([x.sum((1, 3)) @ rows / mass, x.sum((1, 2)) @ columns / mass], 1)


def test_affine_with_nothing_to_change_changes_nothing():
    x = torch.rand(5, 3, 9, 12, generator=seeded(1))
    same = affine(x, seeded(), degrees=0, scale=0, padding=0)
    torch.testing.assert_close(same, x, atol=1e-5, rtol=0)


def test_affine_shifts_by_pixels():
    moved = centre(affine(a_dot(500, 10, 8), seeded(), degrees=0, scale=0)) - torch.tensor([10, 8])
    assert moved.abs().max() <= 2 + 1e-4
    for axis in range(2):
        assert moved[:, axis].min() < -1.9
        assert moved[:, axis].max() > 1.9


def test_affine_turns_about_the_centre_also_where_sides_differ():
    x = torch.zeros(400, 1, 31, 41)
    x[:, :, 15, 32] = 1  # twelve to the right of the centre
    place = centre(affine(x, seeded(), degrees=30, scale=0, padding=0)) - torch.tensor([15, 20])
    angle = torch.rad2deg(torch.atan2(place[:, 0], place[:, 1]))
    assert -30.5 < angle.min() < -28
    assert 28 < angle.max() < 30.5
    # A dot between pixels is smeared over four of them, which moves its centre a little.
    torch.testing.assert_close(place.norm(dim=1), torch.full((400,), 12.0), atol=0.4, rtol=0)


def test_affine_stretches():
    far = centre(affine(a_dot(400, 10, 18), seeded(), degrees=0, padding=0))[:, 1] - 10
    assert 7.0 < far.min() < 7.4
    assert 8.6 < far.max() < 9.0


def test_affine_stays_within_the_images_own_range():
    x = torch.rand(200, 3, 16, 16, generator=seeded(1))
    x[:, :, 4:12, 4:12] = 1
    moved = affine(x, seeded())
    assert moved.min() >= 0
    assert moved.max() <= 1
    bright = affine((255 * x).to(torch.uint8), seeded())
    assert bright.dtype == torch.uint8
    assert (bright.float() / 255 - moved).abs().max() < 0.01
