"""A data set of 120 tiny images and configurations that train on it in a blink."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from maar.config import Config, TrainConfig
from maar.methods import METHODS
from maar.methods.pgd import PGDTraining


@pytest.fixture(scope="session")
def images(tmp_path_factory) -> str:
    """`npz:PATH` of 6x6 images in three classes: a bright row each, under noise."""
    rng = np.random.RandomState(0)

    def draw(n):
        y = np.arange(n) % 3
        x = rng.randint(0, 120, (n, 1, 6, 6))
        x[np.arange(n), 0, 2 * y] += 130
        return x.astype(np.uint8), y.astype(np.int64)

    path = tmp_path_factory.mktemp("images") / "tiny.npz"
    (x_train, y_train), (x_test, y_test) = draw(120), draw(30)
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test, layout="NCHW")
    return f"npz:{path}"


@pytest.fixture(scope="session")
def staged_module():
    """The test's own method with two stages."""
    path = Path(__file__).parent / "staged_run.py"
    spec = importlib.util.spec_from_file_location("staged_run", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["staged_run"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def staged(staged_module, monkeypatch):
    """Its class, registered as `staged`."""
    monkeypatch.setitem(METHODS._entries, "staged", "staged_run:Staged")
    return staged_module.Staged


@pytest.fixture(scope="session")
def conv_network(tmp_path_factory) -> str:
    """`FILE.py:net` with a convolution, for layerwise training in two stages."""
    path = tmp_path_factory.mktemp("network") / "mine.py"
    path.write_text(
        "from torch import nn\n"
        "from maar.networks import Normalize\n"
        "def net(shape, classes, mean, std):\n"
        "    return nn.Sequential(Normalize(mean, std), nn.Conv2d(shape[0], 4, 3), nn.ReLU(),\n"
        "        nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, classes))\n"
    )
    return f"{path}:net"


@pytest.fixture
def tiny(images, staged) -> Config:
    """Two stages of two epochs of six steps, with validation."""
    return Config(
        name="tiny",
        data=images,
        valid=20,
        network="mlp",
        method=staged(),
        threads=1,
        train=TrainConfig(epochs=2, batch=16, lr=1e-2),
    )


@pytest.fixture
def tiny_pgd(images) -> Config:
    """One stage of adversarial training."""
    return Config(
        name="tiny",
        data=images,
        valid=20,
        network="mlp",
        method=PGDTraining(),
        threads=1,
        train=TrainConfig(epochs=2, batch=16, lr=1e-2),
    )
