"""`describe` and `one_line`."""

from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from maar.networks import describe, make
from maar.networks.summary import one_line, spell_layer


def test_rows_of_a_residual_network():
    rows = describe(make("resnet_small", (3, 32, 32), 10), (3, 32, 32))
    assert [row.index for row in rows[:8]] == [
        *("0", "1", "2"),
        *("3.body.0", "3.body.1", "3.body.2", "3.shortcut.0", "3"),
    ]
    assert rows[3].layer == "conv 16 k3 s2 p1"
    assert (rows[3].parameters, rows[4].relus) == (8 * 16 * 9 + 16, 16 * 8 * 8)
    assert rows[-1].shape == (10,)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_the_rows_count_every_parameter_once(random_net, data):
    net = random_net(data)
    rows = describe(net, (2, 6, 5))
    assert sum(row.parameters for row in rows) == sum(p.numel() for p in net.parameters())


def test_one_line():
    assert one_line(make("mlp", (1, 4, 4), 3)) == "fc 256, fc 256, fc 3"
    assert one_line(make("cnn7", (1, 8, 8), 3)).startswith("conv 64 k3 s1 p1 bn, conv 64")
    assert "residual (conv 16 k3 s1 p1, conv 16 k3 s1 p1)" in one_line(
        make("resnet_small", (1, 8, 8), 3)
    )


def test_uncommon_options_are_spelled_out():
    conv = nn.Conv2d(4, 8, (3, 5), 1, (1, 2), dilation=2, groups=4)
    assert spell_layer(conv) == "conv 8 k3x5 s1 p1x2 d2 g4"
    assert spell_layer(nn.AvgPool2d(2)) == "avgpool k2 s2 p0"
