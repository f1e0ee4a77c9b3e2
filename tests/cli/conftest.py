"""A run to ask about: tiny images, a network trained for a second."""

import shutil

import numpy as np
import pytest

from maar.cli.main import main

IMAGES = 24


def make_run(folder, images, settings):
    """Fill a folder with tiny images of two classes and a network trained on them."""
    rng = np.random.RandomState(0)
    y = np.arange(200) % 2
    # class 1 is brighter, by enough for some images to be robust
    x = np.clip(rng.normal(0.35 + 0.3 * y[:, None, None], 0.25, (200, 3, 3)), 0, 1)
    x = (255 * x).astype(np.uint8)
    np.savez(folder / "my.npz", x_train=x, y_train=y, x_test=x[:images], y_test=y[:images])
    (folder / "net.py").write_text(
        "from torch import nn\n"
        "def small(shape, classes, mean, std):\n"
        "    last = nn.Linear(8, classes)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(9, 8), nn.ReLU(), last)\n"
    )
    (folder / "my.toml").write_text(
        f'data = "npz:my.npz"\nnetwork = "net.py:small"\nthreads = 1\n{settings}\n'
        '[method]\nname = "standard"\n[train]\nepochs = 10\nbatch = 20\nlr = 0.02\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "my.toml"]) == 0
    return folder


@pytest.fixture(scope="session")
def run_maker():
    """The function, for files that ask for a run of their own."""
    return make_run


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with tiny images of two classes and a network trained on them."""
    return make_run(tmp_path_factory.mktemp("runs"), IMAGES, "eps = 0.1")


@pytest.fixture
def here(trained, tmp_path, monkeypatch):
    """A copy of that folder, to work in."""
    shutil.copytree(trained, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path / "here"
