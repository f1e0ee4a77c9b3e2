"""No point of a box lies outside a bound, whatever the slopes; float64 is never above rationals."""

import numpy as np
import pytest
import torch
from torch import nn

from maar.exchange.onnx_out import onnx_bytes
from maar.networks.layers import Normalize, Residual
from maar_check import bounds as module
from maar_check.arithmetic import Floats, Rationals
from maar_check.bounds import Boxes, Choice
from maar_check.layers import Relu
from maar_check.network import Network, read_network
from maar_check.rows import Rows, unit_rows


def dense():
    return (5,), nn.Sequential(
        nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 3)
    )


def convolutions():
    return (2, 6, 5), nn.Sequential(
        Normalize([0.3, 0.5], [0.2, 0.4]),
        nn.Conv2d(2, 3, 3, stride=2, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Conv2d(3, 4, (2, 1)),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24, 5),
        nn.BatchNorm1d(5),
        nn.ReLU(),
        nn.Linear(5, 3),
    )


def residual():
    body = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 2, 3, padding=1))
    return (1, 5, 5), nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1),
        nn.ReLU(),
        Residual(body),
        nn.ReLU(),
        Residual(
            nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1)),
            nn.Sequential(nn.Conv2d(2, 3, 1, stride=2)),
        ),
        nn.ReLU(),
        nn.AvgPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(12, 3),
    )


def odd_convolutions():
    return (2, 7, 7), nn.Sequential(
        nn.Conv2d(2, 4, 3, dilation=2, groups=2),
        nn.ReLU(),
        nn.AvgPool2d(2, 2, padding=1),
        nn.Conv2d(4, 4, 2, groups=4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


MAKERS = (dense, convolutions, residual, odd_convolutions)


def make(maker, seed) -> tuple[nn.Sequential, Network]:
    torch.manual_seed(seed)
    shape, net = maker()
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            for buffer in (layer.running_mean, layer.running_var, layer.weight, layer.bias):
                buffer.data = torch.rand_like(buffer) + 0.3
    return net.eval(), read_network(onnx_bytes(net, shape))


def box(network, num, seed, eps=0.15):
    centre = np.random.default_rng(seed).random(network.shape).astype(np.float32)
    return num.array(np.float64(centre) - eps), num.array(np.float64(centre) + eps)


def boxed(network, num, seed) -> Boxes:
    """Boxes of all values, with CROWN's bounds of every ReLU's input."""
    boxes = Boxes(network, num)
    boxes.enter(*box(network, num, seed))
    for layer in network.layers:
        if isinstance(layer, Relu):
            value = layer.sources[0]
            index, shape = boxes.unstable(value), network.shape_of(value)
            for flat in (False, True):
                low = boxes.lower(
                    value, unit_rows(num, index, np.ones(len(index)), shape), flat=flat
                )
                high = boxes.lower(
                    value, unit_rows(num, index, -np.ones(len(index)), shape), flat=flat
                )
                boxes.refine(value, index, low, -high)
        boxes.advance()
    return boxes


def choices(boxes, rows, seed, splits=True):
    """Random slopes, prices and signs of a third of the neurons that may have either."""
    generator = np.random.default_rng(seed)
    made = {}
    for k, i in enumerate(boxes.net.relus):
        index = boxes.unstable(boxes.net.layers[i].sources[0])
        slope, price = generator.random((2, rows, len(index)))
        sign = generator.choice([0, 0, 1, -1], (1, len(index))).repeat(rows, 0) * splits
        array = boxes.num.array
        made[k] = Choice(index, array(slope), sign, array(price * (sign != 0)))
    return made


def values_at(net, boxes, count, seed):
    """Random points of the box, half of them corners, and each ReLU's input there."""
    lo, hi = (torch.from_numpy(end[0].astype(np.float64)) for end in (boxes.lo, boxes.hi))
    torch.manual_seed(seed)
    share = torch.rand(count, *lo.shape, dtype=torch.float64)
    share[::2] = share[::2].round()
    seen = []
    net = net.double()
    hooks = [
        layer.register_forward_pre_hook(lambda _, args: seen.append(args[0].flatten(1)))
        for layer in net.modules()
        if isinstance(layer, nn.ReLU)
    ]
    with torch.no_grad():
        out = net(lo + share * (hi - lo))
    for hook in hooks:
        hook.remove()
    return out.numpy(), [each.numpy() for each in seen]


def excess(maker, seed, splits) -> float:
    """How far a point's value lies below a bound that should hold for it; positive is wrong."""
    net, network = make(maker, seed)
    boxes = boxed(network, Floats, seed)
    rows = np.random.default_rng(seed).normal(size=(4, network.classes))
    chosen = choices(boxes, 4, seed, splits)
    bound = boxes.lower(len(network.layers), Rows(rows), chosen, thorough=not splits)
    out, inputs = values_at(net, boxes, 4000, seed)
    inside = np.ones(len(out), bool)
    for k, choice in chosen.items():
        v = inputs[k][:, choice.index]
        lo, hi = (end[network.layers[network.relus[k]].sources[0]] for end in (boxes.lo, boxes.hi))
        assert (inputs[k] >= lo.ravel()).all()
        assert (inputs[k] <= hi.ravel()).all()
        if splits:
            inside &= ((choice.sign[0] == 0) | (choice.sign[0] * v >= 0)).all(1)
    if not inside.any():
        return -np.inf
    return float((bound - (out[inside] @ rows.T)).max())


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("splits", [False, True])
def test_no_point_lies_outside_a_bound(maker, splits):
    found = [excess(maker, seed, splits) for seed in range(6)]
    assert max(found) <= 1e-9
    assert max(found) > -np.inf  # (some part of a box held points)


def relax_with(change):
    """`_Descent._relax` with something wrong in it."""
    right = module._Descent._relax

    def wrong(self, k, layer, rows):
        made = right(self, k, layer, rows)
        change(self, k, layer, rows, made)
        return made

    return wrong


def no_intercept(self, k, layer, rows, made):
    neg = np.minimum(rows.spread(layer.shape).A, 0).reshape(len(rows), -1)
    source = layer.sources[0]
    lo, hi = self.boxes.lo[source].ravel(), self.boxes.hi[source].ravel()
    free = (lo < 0) & (hi > 0)
    self.constant = self.constant - (neg[:, free] * (-lo * hi / (hi - lo))[free]).sum(1) * 0.3


def steep(self, k, layer, rows, made):
    made.A *= 1.05


@pytest.mark.parametrize("change", [no_intercept, steep])
def test_a_planted_bug_is_caught(monkeypatch, change):
    monkeypatch.setattr(module._Descent, "_relax", relax_with(change))
    with pytest.raises(AssertionError):
        test_no_point_lies_outside_a_bound(dense, False)


@pytest.mark.parametrize(("maker", "seeds"), [(dense, 14), (convolutions, 2), (residual, 2),
                                               (odd_convolutions, 2)])  # fmt: skip
def test_rational_numbers_agree_and_are_never_below(maker, seeds):
    for seed in range(seeds):
        network = make(maker, seed)[1]
        rows = np.random.default_rng(seed).normal(size=(3, network.classes))
        bound = {}
        for num in (Floats, Rationals):
            boxes = Boxes(network, num)
            boxes.enter(*(num.array(end) for end in box(network, Floats, seed)))
            for _ in network.layers:
                boxes.advance()
            chosen = choices(boxes, 3, seed)
            low = boxes.lower(len(network.layers), Rows(num.array(rows)), chosen)
            bound[num] = low
        exact = bound[Rationals]
        slack = np.array([float(e - f) for e, f in zip(exact, map(Rationals.array, bound[Floats]),
                                                       strict=True)])  # fmt: skip
        assert (slack >= 0).all()
        assert slack.max() < 1e-9


def test_the_account_of_rounding_is_needed(monkeypatch):
    """Without it, float64 is above the rational bound for some network."""
    monkeypatch.setattr(Floats, "gamma", staticmethod(lambda n, blur=0: 0.0))
    monkeypatch.setattr(Floats, "tiny", 0.0)
    monkeypatch.setattr(Floats, "down", staticmethod(lambda value: value))
    with pytest.raises(AssertionError):
        test_rational_numbers_agree_and_are_never_below(dense, 14)
