"""`check` and `trace`: what is refused, and shapes that agree with torch itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from maar.core.errors import UsageError
from maar.networks import Normalize, Residual, check
from maar.networks.checking import trace


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_traced_shapes_are_those_of_torch(random_net, data):
    net = random_net(data)
    steps = {step.index: step.shape for step in trace(net, (2, 6, 5))}
    x = torch.rand(2, 2, 6, 5)
    with torch.no_grad():
        for index, layer in enumerate(net):
            x = layer(x)
            assert steps[str(index)] == tuple(x.shape[1:])


def residual(*body):
    return Residual(nn.Sequential(*body))


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (
            [nn.ReLU(), nn.Softsign()],
            ["layer 1", "Softsign", "supported: Normalize, Conv2d, Linear"],
        ),
        ([residual(nn.ReLU(), nn.Softsign())], ["layer 0.body.1", "Softsign"]),
        (
            [Residual(nn.Sequential(), nn.Sequential(nn.Softsign()))],
            ["layer 0.shortcut.0", "Softsign"],
        ),
        ([nn.Sequential(nn.ReLU())], ["layer 0", "Sequential"]),
        ([nn.Dropout()], ["Dropout"]),
        ([nn.LeakyReLU(inplace=True)], ["layer 0", "inplace"]),
        ([nn.Flatten(0)], ["batch axis"]),
        ([nn.BatchNorm2d(2, track_running_stats=False)], ["running statistics"]),
        # Shapes: torch itself would take the first three without a word.
        ([nn.Linear(4, 3)], ["layer 0", "2x6x5", "nn.Flatten()"]),
        ([Normalize([0.5] * 4, [1.0] * 4)], ["layer 0", "4 channels", "2x6x5"]),
        ([nn.Flatten(), nn.BatchNorm1d(60), nn.Conv2d(2, 2, 1)], ["layer 2", "60"]),
        ([nn.Conv2d(3, 2, 1)], ["layer 0", "3 channels"]),
        ([nn.Conv2d(2, 2, 9)], ["layer 0", "larger"]),
        ([residual(nn.Conv2d(2, 3, 1))], ["layer 0", "body gives shape 3x6x5", "2x6x5"]),
    ],
)
def test_refused(layers, words):
    with pytest.raises(UsageError) as caught:
        check(nn.Sequential(*layers), (2, 6, 5))
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_a_subclass_of_sequential_or_of_a_layer_is_refused():
    class Odd(nn.Sequential):
        pass

    class OddReLU(nn.ReLU):
        pass

    with pytest.raises(UsageError, match=r"plain nn\.Sequential, not a Odd"):
        check(Odd(nn.ReLU()))
    with pytest.raises(UsageError, match="layer 0 is a OddReLU"):
        check(nn.Sequential(OddReLU()))


def test_class_count():
    net = nn.Sequential(nn.Flatten(), nn.Linear(60, 3))
    check(net, (2, 6, 5), 3)
    with pytest.raises(UsageError, match="10 classes"):
        check(net, (2, 6, 5), 10)
