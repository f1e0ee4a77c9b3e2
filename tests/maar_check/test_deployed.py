"""The float32 network stays within its claim: other orders of summation, layouts and threads."""

import numpy as np
import pytest
import torch
from tests.maar_check import test_bounds as nets
from torch import nn

from maar_check.arithmetic import Floats
from maar_check.bounds import Boxes
from maar_check.layers import Affine, Conv, Dense, Relu, Reshape, Sum
from maar_check.network import read_network


def shuffled(network, x, generator):
    """The scores in float32, every sum in an order of its own."""
    values = [x.astype(np.float32)]
    for layer in network.layers:
        h = values[layer.sources[0]]
        if isinstance(layer, Relu):
            values.append(np.maximum(h, np.float32(0)))
        elif isinstance(layer, Reshape):
            values.append(h.reshape(layer.shape))
        elif isinstance(layer, Sum):
            values.append(h + values[layer.sources[1]])
        else:
            assert isinstance(layer, Affine)
            values.append(_summed(layer, h, generator))
    return values[-1]


def _summed(layer, h, generator):
    weight, bias = layer.weight.astype(np.float32), layer.bias.astype(np.float32)
    if not isinstance(layer, Dense | Conv):
        return h * weight + bias
    if isinstance(layer, Dense):
        products = weight * h.ravel()
        flat_bias = bias
    else:
        top, left, bottom, right = layer.pads
        (dy, dx), (sy, sx) = layer.dilation, layer.stride
        padded = np.pad(h, ((0, 0), (top, bottom), (left, right)))
        spans = (dy * (weight.shape[2] - 1) + 1, dx * (weight.shape[3] - 1) + 1)
        seen = np.lib.stride_tricks.sliding_window_view(padded, spans, (1, 2))
        seen = seen[:, ::sy, ::sx, ::dy, ::dx].transpose(1, 2, 0, 3, 4)
        columns = seen.reshape(-1, layer.fan_in)
        products = (weight.reshape(len(weight), 1, -1) * columns).reshape(-1, layer.fan_in)
        flat_bias = bias.ravel()
    order = generator.permutation(products.shape[1])
    total = np.zeros(len(products), np.float32)
    if generator.random() < 0.5:
        total = total + flat_bias
    started_with_bias = bool((total != 0).any())
    for column in order:
        total = total + products[:, column]
    return (total if started_with_bias else total + flat_bias).reshape(layer.shape)


@pytest.mark.parametrize("maker", nets.MAKERS)
def test_no_order_of_summation_leaves_the_claim(maker):
    generator = np.random.default_rng(0)
    for seed in range(2):
        net, network = nets.make(maker, seed)
        boxes = nets.boxed(network, Floats, seed)
        lost = boxes.losses()
        assert (lost > 0).all()
        assert lost.max() < 1e-2
        lo, hi = boxes.lo[0].astype(np.float32), boxes.hi[0].astype(np.float32)
        for _ in range(6):
            x = np.where(generator.random(lo.shape) < 0.5, lo, hi)
            x = np.nextafter(x, np.float32(boxes.lo[0].mean()))
            real = _real(net, x)
            for _ in range(3):
                assert (np.abs(shuffled(network, x, generator) - real) <= lost).all()
            for image in (
                torch.from_numpy(x)[None],
                torch.from_numpy(x)[None].repeat(7, *[1] * x.ndim),
            ):
                for threads in (1, 2):
                    _within(net, image, threads, real, lost)


def _real(net, x):
    with torch.no_grad():
        return net.double()(torch.from_numpy(x).double()[None])[0].numpy()


def _within(net, image, threads, real, lost):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        layouts = [image]
        if image.dim() == 4:
            layouts.append(image.contiguous(memory_format=torch.channels_last))
        with torch.no_grad():
            for each in layouts:
                assert (np.abs(net.float()(each)[0].numpy() - real) <= lost).all()
    finally:
        torch.set_num_threads(before)


def test_an_account_of_less_would_not_do(monkeypatch):
    monkeypatch.setattr("maar_check.bounds.FLOAT32", 2.0**-46)
    with pytest.raises(AssertionError):
        test_no_order_of_summation_leaves_the_claim(nets.convolutions)


def test_the_claim_for_float32_is_the_stronger_one(made):
    from maar_check import check_folder

    real, deployed = check_folder(made.path), check_folder(made.path, claim="float32")
    assert real.holds
    assert deployed.counts["verified"] <= real.counts["verified"]


def test_boxes_enclose_what_a_wide_sum_loses():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(400, 3)).eval()
    from maar.exchange.onnx_out import onnx_bytes

    network = read_network(onnx_bytes(net, (400,)))
    boxes = Boxes(network, Floats)
    x = np.random.default_rng(0).random(400).astype(np.float32)
    boxes.enter(x.astype(np.float64), x.astype(np.float64))
    boxes.advance()
    real = _real(net, x)
    generator = np.random.default_rng(1)
    for _ in range(20):
        assert (np.abs(shuffled(network, x, generator) - real) <= boxes.losses()).all()
