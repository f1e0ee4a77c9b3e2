"""The embedded subset: its size, its balance, and that it is what it says."""

import numpy as np
import pytest
import torch

from maar import data
from maar.data.mnist_mini import MNIST_MINI


def test_it_is_small_and_its_licence_lies_beside_it():
    assert (MNIST_MINI.folder / "mnist_mini.npz").stat().st_size <= 2_000_000
    text = (MNIST_MINI.folder / "mnist_mini.txt").read_text()
    assert "LeCun" in text
    assert "CC BY-SA 3.0" in text


def test_it_is_balanced(mnist_mini):
    assert torch.bincount(mnist_mini.y_train).tolist() == [500] * 10
    assert torch.bincount(mnist_mini.y_test).tolist() == [100] * 10
    assert mnist_mini.x_train.shape == (5000, 1, 28, 28)
    assert mnist_mini.x_test.shape == (1000, 1, 28, 28)
    assert mnist_mini.sha256 == MNIST_MINI.sha256


def test_it_is_there_without_a_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MAAR_DATA", str(tmp_path / "nowhere"))
    assert data.fetch("mnist_mini") == ""
    assert MNIST_MINI.faults() == []
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.data
def test_it_holds_the_first_images_of_each_digit(mnist, mnist_mini):
    for split, count in (("train", 500), ("test", 100)):
        y = getattr(mnist, f"y_{split}").numpy()
        chosen = np.sort(np.concatenate([np.flatnonzero(y == k)[:count] for k in range(10)]))
        assert torch.equal(getattr(mnist_mini, f"x_{split}"), getattr(mnist, f"x_{split}")[chosen])
        assert torch.equal(getattr(mnist_mini, f"y_{split}"), getattr(mnist, f"y_{split}")[chosen])
