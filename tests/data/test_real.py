"""The published sets as they are in the world."""

import pytest
import torch

from maar import data


@pytest.mark.data
def test_mnist(mnist):
    assert mnist.x_train.shape == (60_000, 1, 28, 28)
    assert mnist.y_train[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert mnist.y_test[:5].tolist() == [7, 2, 1, 0, 4]
    x = mnist.images("train")
    assert x.mean().item() == pytest.approx(mnist.mean[0], abs=1e-4)
    assert x.double().std().item() == pytest.approx(mnist.std[0], abs=1e-4)
    assert (x.min(), x.max()) == (0, 1)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10"])
def test_fetched_afresh(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MAAR_DATA", str(tmp_path))
    assert data.fetch(name)
    found = data.load(name)
    assert found.size("train") == found.info.n_train
    counts = torch.bincount(found.y_test)
    assert counts.sum() == found.info.n_test
    assert len(counts) == found.info.n_classes
