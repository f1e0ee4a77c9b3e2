"""Every registered network: its size, its layers, its weights; and what `make` refuses."""

import copy

import pytest
import torch
from torch import nn

from maar.core.errors import UsageError
from maar.networks import NETWORKS, Normalize, describe, make
from maar.networks.operations import OPERATIONS

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)

# One row a network: parameters and ReLUs on MNIST and CIFAR shapes, counted by hand. 9,508,
# 16,634, 49,402 and 6,244 ReLUs are also the published figures of COLT's networks and ResNet-2B.
ROWS = {
    "convmed_2_2_100": ((348_374, 9_508), (445_974, 12_388)),
    "convmed_2_2_100_bn": ((348_766, 9_508), (446_366, 12_388)),
    "convmed_2_4_250": ((1_637_256, 12_794), (2_118_856, 16_634)),
    "convmedbig_2_2_4_250": ((1_653_160, 37_882), (2_133_736, 49_402)),
    "convmedbig_2_2_4_250_bn": ((1_654_044, 37_882), (2_134_620, 49_402)),
    "convmedbig_2_2_4_250_k334": ((1_645_992, 37_882), (2_126_568, 49_402)),
    "mlp": ((269_322, 512), (855_050, 512)),
    "cnn5": ((820_954, 17_760), (1_067_002, 23_040)),
    "cnn5_64_bn": ((3_415_882, 69_504), (4_400_074, 90_624)),
    "cnn7": ((13_259_338, 176_128), (17_192_650, 229_888)),
    "resnet_small": ((87_862, 4_804), (112_006, 6_244)),
}


def test_every_network_has_its_row():
    assert set(ROWS) == set(NETWORKS)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("shape", [MNIST, CIFAR], ids=["mnist", "cifar"])
def test_size_and_output(name, shape):
    net = make(name, shape, 10, mean=[0.5] * shape[0], std=[0.25] * shape[0], seed=0)
    rows = describe(net, shape)
    size = sum(row.parameters for row in rows), sum(row.relus for row in rows)
    assert size == ROWS[name][shape is CIFAR]
    assert isinstance(net[0], Normalize)
    assert net[0].mean.tolist() == [0.5] * shape[0]
    assert {type(layer) for layer in net} <= set(OPERATIONS)
    with torch.no_grad():
        assert net(torch.rand(2, *shape)).shape == (2, 10)


@pytest.mark.parametrize("name", NETWORKS)
def test_other_shapes_and_class_counts(name):
    assert make(name, (2, 20, 24), 7)(torch.rand(2, 2, 20, 24)).shape == (2, 7)


def test_the_two_readings_of_the_paper_differ_in_the_second_kernel_only():
    ours, text = (make(f"convmedbig_2_2_4_250{end}", CIFAR, 10) for end in ("", "_k334"))
    kernels = [[m.kernel_size[0] for m in net if isinstance(m, nn.Conv2d)] for net in (ours, text)]
    assert kernels == [[3, 4, 4], [3, 3, 4]]


def test_seed_decides_the_weights_and_leaves_the_global_state_alone():
    before = torch.get_rng_state()
    one, same, other = (make("mlp", MNIST, 10, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one[-1].weight, same[-1].weight)
    assert not torch.equal(one[-1].weight, other[-1].weight)


def test_without_mean_and_std_the_pixels_go_in_as_they_are():
    net = make("mlp", MNIST, 10, seed=0)
    x = torch.rand(2, *MNIST)
    assert torch.equal(net(x), copy.deepcopy(net)[1:](x))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "cnn8"}, ["'cnn8'", "did you mean 'cnn7'", "resnet_small", "FILE.py:FUNCTION"]),
        ({"shape": (1, 0, 28)}, ["shape", "(1, 0, 28)"]),
        ({"shape": ()}, ["shape"]),
        ({"shape": (1, 1, 1), "name": "convmed_2_2_100"}, ["layer 3", "1x1", "convmed_2_2_100"]),
        ({"shape": (784,), "name": "cnn5"}, ["layer 1", "784", "channels x height x width"]),
        ({"classes": 1}, ["classes", "1"]),
        ({"mean": [0.1]}, ["mean and std"]),
        ({"mean": [0.1, 0.2], "std": [1.0, 1.0]}, ["mean", "1 numbers"]),
        ({"mean": [float("nan")], "std": [1.0]}, ["mean", "nan"]),
        ({"mean": [0.1], "std": [0.0]}, ["std", "positive"]),
    ],
)
def test_refused(change, words):
    arguments = {"name": "mlp", "shape": MNIST, "classes": 10} | change
    with pytest.raises(UsageError) as caught:
        make(**arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message
