"""`maar data` as a user sees it."""

import subprocess
import sys

import numpy as np
import pytest

from maar.cli.main import main
from maar.data import DATASETS
from maar.data.mnist_mini import MNIST_MINI


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MAAR_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path / "cache"


@pytest.fixture
def run(capsys):
    def call(*args):
        code = main(["data", *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.npz"
    x = np.full((4, 6, 7, 3), 51, np.uint8)
    np.savez(path, x_train=x, y_train=[0, 1, 1, 1], x_test=x[:2], y_test=[0, 1], classes=["a", "b"])
    return f"npz:{path}"


def test_list(run, cache):
    code, out, _ = run("list")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for name in DATASETS:
        assert ("embedded" if name == "mnist_mini" else "absent") in lines[name]
    assert "3x32x32" in lines["cifar10"]
    assert str(cache) in out
    assert not cache.exists()


def test_info_of_an_absent_set_tells_what_is_known(run):
    code, out, _ = run("info", "cifar10")
    assert code == 0
    for told in ("3x32x32", "50,000", "0.4914 0.4822 0.4465", "maar data fetch cifar10"):
        assert told in out


def test_info_counts_and_measures(run, mine):
    code, out, _ = run("info", "mnist_mini")
    assert code == 0
    assert out.count("500") >= 10
    for told in ("CC BY-SA 3.0", MNIST_MINI.sha256, "0.1307", "measured"):
        assert told in out
    code, out, _ = run("info", mine)
    assert code == 0
    assert "0.2000 0.2000 0.2000" in out  # 51 / 255


def test_verify(run, mine):
    code, out, err = run("verify", "mnist_mini")
    assert (code, err) == (0, "")
    assert "mnist_mini: verified" in out
    code, out, _ = run("verify", mine)
    assert code == 0
    assert "4 train and 2 test images" in out


def test_verify_of_an_absent_set(run, cache):
    code, _, err = run("verify", "mnist")
    assert code == 1
    assert err == f"maar: error: mnist is not in {cache}/mnist: run `maar data fetch mnist`\n"


def test_verify_names_the_damaged_file_and_the_remedy(run, cache):
    folder = cache / "mnist"
    folder.mkdir(parents=True)
    for file in DATASETS["mnist"].files:
        (folder / file.name).write_bytes(bytes(file.size if "labels" in file.name else 5))
    code, out, err = run("verify", "mnist")
    assert code == 1
    assert "5 bytes, not 47,040,016" in out
    assert f"{folder}/t10k-labels-idx1-ubyte (SHA-256 " in err
    assert "run `maar data fetch mnist`" in err
    assert err.count("\n") == 1
    code, out, _ = run("list")
    assert code == 0
    assert "damaged" in out


def test_fetch(run, mine, tmp_path):
    code, out, _ = run("fetch", "mnist_mini")
    assert code == 0
    assert "already in" in out
    (tmp_path / "hand").mkdir()
    code, _, err = run("fetch", "mnist", "--from", str(tmp_path / "hand"))
    assert code == 1
    assert "lacks train-images-idx3-ubyte, train-labels-idx1-ubyte" in err
    code, _, err = run("fetch", mine)
    assert code == 2
    assert "nothing to fetch" in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["info", "mnits"], "unknown data set 'mnits'; did you mean 'mnist'?"),
        (["fetch", "mnist", "--from", "/nowhere"], "--from /nowhere is not a folder"),
        (["verify", "npz:/nowhere.npz"], "npz:/nowhere.npz is not a file"),
        (["lst"], "list, fetch, verify, info"),
        ([], "list, fetch, verify, info"),
        (["fetch"], "NAME"),
        (["list", "--form", "x"], "--form"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(run, args, said):
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("maar: error: ")
    assert err.count("\n") == 1


def test_no_torch(cache):
    code = (
        "import sys; from maar.cli.main import main\n"
        "assert main(['data', 'list']) == main(['data', 'info', 'mnist_mini']) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
