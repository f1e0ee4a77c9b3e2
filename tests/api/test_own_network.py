"""A module of the user's own, `FILE.py:NAME`, with weights from a file."""

import importlib.util
import json
import textwrap

import pytest
import torch

import maar
from maar.cli.main import main
from maar.core.errors import UsageError

CODE = """
    import torch
    from torch import nn
    from near import WIDTH

    class Net(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Flatten(), nn.Linear(784, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))

    def build(shape, classes, mean, std):
        return nn.Sequential(nn.Flatten(), nn.Linear(784, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))

    def ready():
        net = Net()
        for parameter in net.parameters():
            nn.init.constant_(parameter, 0.25)
        return net

    def wide(a, b):
        return Net()

    made = ready()
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "near.py").write_text("WIDTH = 5\n")
    (tmp_path / "mine.py").write_text(textwrap.dedent(CODE))
    return tmp_path / "mine.py"


@pytest.fixture
def weights(file):
    torch.manual_seed(1)
    state = {
        "1.weight": torch.randn(5, 784),
        "1.bias": torch.randn(5),
        "3.weight": torch.randn(10, 5),
        "3.bias": torch.randn(10),
    }
    torch.save(state, file.parent / "weights.pt")
    return file.parent / "weights.pt", state


@pytest.mark.parametrize("name", ["Net", "build"])
def test_weights_are_loaded(file, weights, name):
    path, state = weights
    net = maar.load(f"{file}:{name}", weights=str(path), data="mnist_mini").network
    assert torch.equal(net[-1].weight, state["3.weight"])
    assert not net.training


@pytest.mark.parametrize("name", ["ready", "made"])
def test_a_network_with_weights_of_its_own(file, name):
    net = maar.load(f"{file}:{name}", data="mnist_mini").network
    assert torch.equal(net[-1].bias, torch.full((10,), 0.25))


def test_mean_and_std_stand_in_front(file, weights):
    options = {"weights": str(weights[0]), "data": "mnist_mini"}
    plain = maar.load(f"{file}:Net", **options).network
    front = maar.load(f"{file}:Net", **options, mean=(0.5,), std=(0.25,)).network
    x = torch.rand(3, 1, 28, 28)
    torch.testing.assert_close(front(x), plain((x - 0.5) / 0.25))


def test_errors(file, weights):
    def error(name, **options):
        with pytest.raises(UsageError) as caught:
            maar.load(name, **{"data": "mnist_mini", **options})
        return str(caught.value)

    assert "has random weights: give --weights" in error(f"{file}:Net")
    assert "data is needed" in error(f"{file}:Net", data=None)
    assert "has no 'Nett'" in error(f"{file}:Nett")
    assert "did you mean 'Net'" in error(f"{file}:Nett")
    assert "must take (shape, classes, mean, std), or nothing" in error(f"{file}:wide")
    assert "holds weights, not what to compute" in error(str(weights[0]))
    assert "does not exist" in error("nowhere.pt")
    (file.parent / "bad.py").write_text("import nothing_like_this\n")
    assert "ModuleNotFoundError: No module named 'nothing_like_this' (bad.py, line 1)" in error(
        f"{file.parent / 'bad.py'}:f"
    )


def test_two_files_with_neighbours_of_one_name(file, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "near.py").write_text("WIDTH = 7\n")
    (other / "mine.py").write_text(file.read_text())
    for place, width in ((file, 5), (other / "mine.py", 7), (file, 5)):
        assert maar.load(f"{place}:ready", data="mnist_mini").network[1].out_features == width


def test_certify_and_audit(file, weights, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [f"{file.name}:Net", "--weights", str(weights[0]), "--data", "mnist_mini"]
    words += ["--eps", "0.01", "--limit", "3", "--workers", "1", "--preset", "fast"]
    assert main(["certify", *words, "--out", "out"]) == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["network"] == "mine.py:Net"
    assert manifest["source"]["weights"] == str(weights[0].resolve())
    if importlib.util.find_spec("onnxruntime"):
        monkeypatch.chdir("/")
        assert main(["audit", str(tmp_path / "out"), "--workers", "1"]) == 0
    capsys.readouterr()
    assert main(["certify", str(weights[0]), "--data", "mnist_mini", "--eps", "0.1"]) == 2
    assert "such as FILE.py:Net --weights" in capsys.readouterr().err
