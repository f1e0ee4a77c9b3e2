"""A user's own `file.py:function`, and everything that can be wrong with it."""

import textwrap

import pytest
import torch

from maar.core.errors import UsageError
from maar.networks import Normalize, Residual, make

GOOD = """
    from torch import nn
    from maar.networks import Normalize, Residual

    def net(shape, classes, mean, std):
        features = nn.Sequential(nn.Conv2d(shape[0], 4, 3, 2, 1), nn.ReLU(), nn.Identity())
        block = Residual(nn.Sequential(nn.Sequential(nn.Conv2d(4, 4, 3, 1, 1))))
        return nn.Sequential(Normalize(mean, std), features, block, nn.Flatten(),
                             nn.Linear(4 * 4 * 4, classes))
"""


@pytest.fixture
def own(tmp_path):
    def write(text, function=":net"):
        (tmp_path / "mine.py").write_text(textwrap.dedent(text))
        return f"{tmp_path / 'mine.py'}{function}"

    return write


def build(name):
    return make(name, (1, 8, 8), 3, mean=[0.5], std=[0.2], seed=0)


def test_own_network_is_built_and_its_nesting_opened(own):
    net = build(own(GOOD))
    kinds = [type(layer).__name__ for layer in net]
    assert kinds == ["Normalize", "Conv2d", "ReLU", "Residual", "Flatten", "Linear"]
    assert isinstance(net[0], Normalize)
    assert isinstance(net[3], Residual)
    assert type(net[3].body[0]).__name__ == "Conv2d"
    assert net(torch.rand(2, 1, 8, 8)).shape == (2, 3)


def returning(expression):
    return f"from torch import nn\ndef net(shape, classes, mean, std):\n    return {expression}\n"


OWN_FORWARD = """
    from torch import nn
    class Odd(nn.Sequential):
        def forward(self, x):
            return -super().forward(x)
    def net(shape, classes, mean, std):
        return Odd(nn.Flatten(), nn.Linear(64, 3))
"""
HOOK = """
    from torch import nn
    def net(shape, classes, mean, std):
        layer = nn.utils.weight_norm(nn.Linear(64, 3))
        return nn.Sequential(nn.Flatten(), layer)
"""
FLAT = "nn.Flatten(), nn.Linear(64, 8)"


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's, for its older weight_norm
@pytest.mark.parametrize(
    ("text", "function", "words"),
    [
        (GOOD, ":ned", ["'ned'", "did you mean 'net'", "names there: net"]),
        (GOOD, "", ["does not say which", "names there: net"]),
        (GOOD, ":nn", ["has no 'nn'"]),
        ("def net(", ":net", ["mine.py", "line 1"]),
        ("import nothing_of_this_name", ":net", ["ModuleNotFoundError", "line 1"]),
        ("def net(shape):\n    return shape", ":net", ["must take (shape, classes, mean, std)"]),
        (returning("nn.Linear(3, classes)"), ":net", ["nn.Sequential", "Linear"]),
        (returning("1 / 0"), ":net", ["ZeroDivisionError", "line 3"]),
        (returning(f"nn.Sequential({FLAT}, nn.GELU())"), ":net", ["layer 2", "GELU", "Conv2d, "]),
        (
            returning(f"nn.Sequential({FLAT}, nn.ReLU(inplace=True))"),
            ":net",
            ["layer 2", "nn.ReLU"],
        ),
        (returning("nn.Sequential(nn.Flatten(), nn.Linear(9, 3))"), ":net", ["layer 1", "64", "9"]),
        (returning(f"nn.Sequential({FLAT})"), ":net", ["shape 8", "3 classes"]),
        (returning("nn.Sequential()"), ":net", ["1x8x8", "3 classes"]),
        (OWN_FORWARD, ":net", ["nn.Sequential", "Odd"]),
        (HOOK, ":net", ["layer 1", "hooks"]),
    ],
)
def test_one_clear_line(own, text, function, words):
    with pytest.raises(UsageError) as caught:
        build(own(text, function))
    message = str(caught.value)
    assert "\n" not in message
    assert "mine.py" in message
    assert all(word in message for word in words), message


def test_absent_file():
    with pytest.raises(UsageError, match=r"'nowhere/net\.py' does not exist"):
        build("nowhere/net.py:net")
