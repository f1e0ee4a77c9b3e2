"""`maar networks`: the list, one network layer by layer, and what it refuses."""

import numpy as np
import pytest

from maar.cli.main import main
from maar.networks import NETWORKS


@pytest.fixture
def maar(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")

    def run(*args):
        code = main(["networks", *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def row(text, start):
    """The cells of the table row whose first cell is `start`."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        if cells and cells[0] == start:
            return cells
    raise AssertionError(f"no row {start!r} in\n{text}")


def test_the_list(maar):
    code, out, _ = maar()
    assert code == 0
    assert "mnist (1x28x28, 10 classes)" in out
    assert {name for name in NETWORKS if row(out, name)} == set(NETWORKS)
    assert row(out, "convmed_2_2_100")[2:] == ["348,374", "9,508"]
    assert "ResNet-2B" in out


def test_the_list_for_another_data_set(maar):
    _, out, _ = maar("--data", "cifar10")
    assert row(out, "convmedbig_2_2_4_250")[2:] == ["2,133,736", "49,402"]


def test_one_network_layer_by_layer(maar):
    code, out, _ = maar("resnet_small", "--data", "cifar10")
    assert code == 0
    assert row(out, "3.shortcut.0")[1:] == ["conv 16 k1 s2 p0", "16x8x8", "144", ""]
    assert row(out, "4")[1:] == ["relu", "16x8x8", "", "1,024"]
    assert row(out, "")[1:] == ["in all", "", "112,006", "6,244"]


def test_an_own_file(maar, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def tiny(shape, classes, mean, std):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(784, classes))\n"
    )
    code, out, _ = maar(f"{tmp_path / 'mine.py'}:tiny")
    assert code == 0
    assert row(out, "1")[1:] == ["fc 10", "10", "7,850", ""]


def test_a_network_too_deep_for_the_images_is_told_in_its_row(maar, tmp_path):
    images = np.zeros((2, 1, 1), np.uint8)
    labels = np.array([0, 1])
    np.savez(tmp_path / "dots.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    code, out, _ = maar("--data", f"npz:{tmp_path / 'dots.npz'}")
    assert code == 0
    assert row(out, "mlp")[2:] == ["66,818", "512"]
    assert row(out, "cnn5")[2:] == ["", ""]
    assert "larger than the padded image" in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["cnn8"], ["'cnn8'", "did you mean 'cnn7'"]),
        (["mlp", "--data", "mnits"], ["'mnits'", "did you mean 'mnist'"]),
        (["nowhere.py:net"], ["nowhere.py", "does not exist"]),
        (["nowhere.onnx"], ["nowhere.onnx", "does not exist"]),
    ],
)
def test_refused_in_one_line(maar, args, words):
    code, out, err = maar(*args)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("maar: error: ")
    assert all(word in err for word in words), err
