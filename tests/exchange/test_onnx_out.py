"""What is written is what torch computes under onnxruntime, and reads back as the same network."""

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from maar.core.errors import MaarError, RunError, UsageError
from maar.exchange.onnx_in import read_onnx, read_with_shape
from maar.exchange.onnx_out import onnx_bytes, write_onnx
from maar.networks import NETWORKS, Normalize, Residual, make, weights_hash

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


def run(content, x):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


def randomised(net):
    """Statistics as after training: fresh BatchNorms and Normalizes would hide mistakes."""
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.2, 3)
                if layer.affine:
                    layer.weight.normal_()
                    layer.bias.normal_()
    return net.eval()


@torch.no_grad()
def agree(net, shape, tmp_path):
    """Write, run and read back; returns the network that was read."""
    x = torch.rand(3, *shape)
    path = tmp_path / "net.onnx"
    write_onnx(net, path, shape)
    onnx.checker.check_model(str(path), full_check=True)
    z = net(x)
    scale = max(1.0, float(z.abs().max()))
    torch.testing.assert_close(run(path.read_bytes(), x), z, rtol=0, atol=1e-5 * scale)
    again, found = read_with_shape(path)
    assert found == shape
    assert torch.equal(again(x), z)
    return again


def tensors(net):
    """All that decides the outputs; BatchNorm's counter of batches does not."""
    return {k: v for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}


def same(net, again):
    assert [type(layer) for layer in net.modules()] == [type(layer) for layer in again.modules()]
    mine, theirs = tensors(net), tensors(again)
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        assert torch.equal(tensor, theirs[name]), name


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)], ids=["mnist", "cifar10"])
def test_every_network(name, shape, tmp_path):
    channels = shape[0]
    mean, std = [0.1307, 0.5, 0.4][:channels], [0.3081, 0.2, 0.25][:channels]
    torch.manual_seed(0)
    net = randomised(make(name, shape, 10, mean, std, seed=0))
    same(net, agree(net, shape, tmp_path))


def test_the_same_hash(tmp_path):
    net = make("mlp", (1, 4, 4), 3, seed=0).eval()  # a Normalize of mean 0 and std 1
    assert weights_hash(agree(net, (1, 4, 4), tmp_path)) == weights_hash(net)


ODD = {
    "grouped": [nn.Conv2d(2, 4, (2, 3), (1, 2), (2, 1), 2, 2, bias=False), nn.Flatten()],
    "pooled": [nn.AvgPool2d((2, 3), (2, 1), (1, 0)), nn.Flatten()],
    "global pool": [nn.AvgPool2d((6, 5)), nn.Flatten()],
    "no weights": [nn.Flatten()],
    "batch norm without weights": [nn.BatchNorm2d(2, eps=0.01, affine=False), nn.Flatten()],
    "flat": [nn.Flatten(), nn.BatchNorm1d(60), nn.ReLU(), Normalize([0.5] * 60, [2.0] * 60)],
    "linear without bias": [nn.Flatten(), nn.Linear(60, 4, bias=False), nn.Linear(4, 2)],
    "twice x": [Residual(nn.Sequential()), nn.Flatten()],
    "nested": [
        Residual(
            nn.Sequential(
                nn.Conv2d(2, 4, 3, padding=1, bias=False),
                Residual(nn.Sequential(nn.ReLU(), nn.Conv2d(4, 4, 1))),
            ),
            nn.Sequential(nn.Conv2d(2, 4, 1)),
        ),
        nn.Flatten(),
    ],
    "flattened inside": [
        Residual(
            nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(60, 3)),
            nn.Sequential(nn.Flatten(), nn.Linear(60, 3)),
        )
    ],
    "normalised shortcut": [
        Residual(
            nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU()),
            nn.Sequential(Normalize([0.1, 0.2], [1.0, 1.0])),
        ),
        nn.Flatten(),
    ],
}


@pytest.mark.parametrize("layers", ODD.values(), ids=ODD)
def test_odd_layers(layers, tmp_path):
    torch.manual_seed(1)
    net = randomised(nn.Sequential(*layers))
    again = agree(net, (2, 6, 5), tmp_path)
    assert len(again) == len(net)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_network(data, tmp_path_factory):
    shape = (data.draw(st.integers(1, 2)), data.draw(st.integers(3, 6)), 5)
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    channels, layers = shape[0], []
    for kind in data.draw(st.lists(st.sampled_from(["conv", "relu", "bn", "norm", "residual"]))):
        conv = nn.Conv2d(channels, channels, 3, padding=1, bias=data.draw(st.booleans()))
        layers.append(
            {
                "conv": conv,
                "relu": nn.ReLU(),
                "bn": nn.BatchNorm2d(channels),
                "norm": Normalize([0.3] * channels, [0.7] * channels),
                "residual": Residual(nn.Sequential(conv, nn.ReLU())),
            }[kind]
        )
    features = shape[0] * shape[1] * shape[2]
    net = randomised(nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3)))
    same(net, agree(net, shape, tmp_path_factory.mktemp("net")))


@pytest.fixture
def small():
    return make("mlp", (1, 4, 4), 3, seed=0).eval()


def test_the_same_bytes_again(small):
    assert onnx_bytes(small, (1, 4, 4)) == onnx_bytes(small.train(), (1, 4, 4))


def test_a_fixed_batch(small, tmp_path):
    content = onnx_bytes(small, (1, 4, 4), batch=2)
    assert run(content, torch.rand(2, 1, 4, 4)).shape == (2, 3)
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT|Got invalid dimensions"):
        run(content, torch.rand(3, 1, 4, 4))
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    same(small, read_onnx(path))


def test_an_older_file_stays_if_writing_fails(small, tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(b"old")
    with pytest.raises(MaarError):
        write_onnx(small.double(), path, (1, 4, 4))
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("change", "shape", "batch", "words"),
    [
        (lambda net: net.double(), (1, 4, 4), None, ["float64", "float32"]),
        (lambda net: net, (1, 5, 5), None, ["layer 2", "16 features"]),
        (lambda net: net, (1, 4, 4), 0, ["batch = 0"]),
        (lambda net: nn.Sequential(nn.PReLU()), (1, 4, 4), None, ["layer 0", "PReLU"]),
    ],
)
def test_refused_in_one_clear_line(small, change, shape, batch, words):
    with pytest.raises(UsageError) as error:
        onnx_bytes(change(small), shape, batch=batch)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_without_the_onnx_package(monkeypatch, small):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(RunError, match=r"pip install 'maar\[onnx\]'"):
        onnx_bytes(small, (1, 4, 4))
