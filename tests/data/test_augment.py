"""Augmentation against the plain loop over images that it stands for."""

import pytest
import torch

from maar.data.augment import AUGMENTS, crop_flip, shift


def by_loop(x, generator, padding=4, flips=True):
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
        part = large[:, down[i] : down[i] + height, right[i] : right[i] + width]
        out[i] = part.flip(-1) if mirror[i] else part
    return out


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(64, 3, 32, 32), (7, 1, 28, 20), (1, 3, 5, 5)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_both_are_the_loop(shape, dtype):
    x = torch.randint(1, 256, shape, generator=seeded(1)).to(dtype)
    before = x.clone()
    assert torch.equal(crop_flip(x, seeded()), by_loop(x, seeded()))
    assert torch.equal(shift(x, seeded()), by_loop(x, seeded(), padding=2, flips=False))
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
