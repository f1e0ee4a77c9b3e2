"""Splits, hashes, and what a data set gives out."""

import numpy as np
import pytest
import torch

from maar.core.errors import UsageError
from maar.data.dataset import Arrays, Info, make, split_indices


def example(n=40, dtype=np.uint8):
    x = np.arange(n * 6, dtype=np.int64).reshape(n, 1, 2, 3) % 256
    x = x.astype(np.uint8) if dtype == np.uint8 else (x / 255).astype(dtype)
    y = np.arange(n) % 3
    info = Info("example", (1, 2, 3), ("a", "b", "c"), n, n, (0.5,), (0.25,))
    return info, Arrays(x, y, x[::-1].copy(), y[::-1].copy())


def test_images_are_floats_in_0_1_and_labels_integers():
    info, arrays = example()
    found = make(info, arrays)
    x, y = found.images("train"), found.labels("train")
    assert x.dtype == torch.float32
    assert y.dtype == torch.int64
    expected = arrays.x_train.astype(np.float32) / np.float32(255)
    assert np.array_equal(x.numpy(), expected)  # the very same rounding as a division
    assert x.min() == 0
    assert found.x_train.dtype == torch.uint8


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize(
    "index", [None, slice(2, 5), [3, 1], torch.tensor([3, 1]), torch.arange(40) > 30]
)
def test_indexed_images_are_fresh_tensors(index, dtype):
    info, arrays = example(dtype=dtype)
    found = make(info, arrays)
    x = found.images("test", index)
    every = found.images("test").clone()
    assert torch.equal(x, every if index is None else every[index])
    assert torch.equal(found.labels("test", index), found.y_test[... if index is None else index])
    x.fill_(0.5)
    assert torch.equal(found.images("test"), every)


def test_the_validation_images_come_from_train_only_and_are_always_the_same():
    info, arrays = example()
    whole, found, again = (
        make(info, arrays),
        make(info, arrays, valid=10),
        make(*example(), valid=10),
    )
    assert [found.size(split) for split in ("train", "valid", "test")] == [30, 10, 40]
    assert whole.size("valid") == 0
    assert torch.equal(found.x_valid, again.x_valid)
    assert torch.equal(found.x_test, whole.x_test)
    together = torch.cat([found.x_train, found.x_valid]).flatten(1)
    assert sorted(together.tolist()) == sorted(whole.x_train.flatten(1).tolist())
    assert found.sha256 == whole.sha256


def test_the_split_never_changes():
    # Written down once: a new numpy or a new seed would make tuned results incomparable.
    _, held_out = split_indices("mnist", 60_000, 5_000)
    assert held_out[:5].tolist() == [15, 21, 27, 44, 49]
    _, smaller = split_indices("mnist", 60_000, 100)
    assert set(smaller) < set(held_out)


@pytest.mark.parametrize("valid", [-1, 40, 41, 2.5, True, "5"])
def test_impossible_validation_sizes(valid):
    with pytest.raises(UsageError, match="valid = "):
        make(*example(), valid=valid)


def test_the_global_random_state_is_left_alone():
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    make(*example(), valid=10)
    assert np.array_equal(np.random.get_state()[1], before)


def test_the_hash_sees_content_shape_and_place():
    _, arrays = example()
    parts = (arrays.x_train, arrays.y_train, arrays.x_test, arrays.y_test)
    assert Arrays(*(part.copy() for part in parts)).sha256 == arrays.sha256
    assert Arrays(*(np.asfortranarray(part) for part in parts)).sha256 == arrays.sha256
    changed = arrays.x_test.copy()
    changed[-1, 0, 1, 2] ^= 1
    others = [
        (*parts[:2], changed, parts[3]),
        (parts[2], parts[3], parts[0], parts[1]),
        (parts[0].reshape(40, 1, 3, 2), *parts[1:]),
        (parts[0], parts[1].astype(np.int32), *parts[2:]),
        (parts[0][:0], parts[1][:0], *parts[2:]),
    ]
    assert len({Arrays(*other).sha256 for other in others} | {arrays.sha256}) == len(others) + 1


def test_a_split_that_is_not_there():
    found = make(*example())
    with pytest.raises(UsageError, match="example has no valid images"):
        found.images("valid")
    with pytest.raises(UsageError, match="unknown split 'tets'; did you mean 'test'"):
        found.labels("tets")


def test_to_another_device():
    moved = make(*example(), valid=3).to("meta")
    assert {getattr(moved, f"{kind}_{split}").device.type for kind in "xy" for split in
            ("train", "valid", "test")} == {"meta"}  # fmt: skip
