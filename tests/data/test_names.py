"""Names: what each built-in set says of itself before any image is read."""

import subprocess
import sys

import pytest

from maar import data
from maar.core.errors import RunError, UsageError
from maar.data.augment import AUGMENTS

# One row a data set: channels, size, classes, train, test.
ROWS = {
    "mnist": (1, 28, 10, 60_000, 10_000),
    "fashion_mnist": (1, 28, 10, 60_000, 10_000),
    "cifar10": (3, 32, 10, 50_000, 10_000),
    "mnist_mini": (1, 28, 10, 5_000, 1_000),
}


def test_every_data_set_has_a_row():
    assert list(ROWS) == list(data.DATASETS)


@pytest.mark.parametrize("name", ROWS)
def test_info(name):
    info = data.info(name)
    channels, size, classes, n_train, n_test = ROWS[name]
    assert info.name == name
    assert info.shape == (channels, size, size)
    assert (info.n_classes, info.n_train, info.n_test) == (classes, n_train, n_test)
    assert len(set(info.classes)) == classes
    assert len(info.mean) == len(info.std) == channels
    assert all(0 < value < 1 for value in (*info.mean, *info.std))
    assert info.augment in AUGMENTS
    assert info.origin
    assert info.licence


def test_info_needs_no_torch_and_no_data(tmp_path):
    code = (
        "import sys, maar.data\n"
        "assert [maar.data.info(name).shape for name in maar.data.DATASETS]\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"MAAR_DATA": str(tmp_path)}, capture_output=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mnits", "unknown data set 'mnits'; did you mean 'mnist'"),
        ("mnist:x", "unknown data set 'mnist:x'"),
        ("npy:x.npz", "unknown data set 'npy:x.npz'"),
        ("", "unknown data set ''"),
        ("npz", "'npz' lacks its path"),
        ("folder:", "'folder:' lacks its path"),
    ],
)
def test_bad_names(name, said):
    with pytest.raises(UsageError, match=said):
        data.source(name)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10"])
def test_absent_data_name_the_command(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MAAR_DATA", str(tmp_path))
    with pytest.raises(RunError, match=f"run `maar data fetch {name}`"):
        data.load(name)


def test_the_cache_is_below_home_unless_told(monkeypatch, tmp_path):
    monkeypatch.delenv("MAAR_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data.DATASETS["mnist"].folder == tmp_path / ".cache" / "maar" / "mnist"
    monkeypatch.setenv("MAAR_DATA", "~/elsewhere")
    assert data.DATASETS["mnist"].folder == tmp_path / "elsewhere" / "mnist"
