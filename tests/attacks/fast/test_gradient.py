"""The climber of training against autograd: every network, region, mode and geometry."""

import copy

import pytest
import torch
from torch import nn

from maar.attacks import PGD
from maar.attacks.attack import suffix_of
from maar.attacks.fast.first_conv import InputGradient
from maar.attacks.fast.gradient import Climber, Unknown
from maar.attacks.losses import LOSSES
from maar.domains.interval import Interval
from maar.networks import NETWORKS, make
from maar.networks.layers import Normalize, Residual
from maar.regions import Ball, LatentBox, LatentZonotope, SmallBox

CL = torch.channels_last


def plain_gradient(net, region, y, e, loss="cross_entropy", target=None):
    leaves = tuple(group.clone().requires_grad_() for group in e)
    z = suffix_of(net, region)(region.point(leaves))
    return torch.autograd.grad(LOSSES[loss](z, y, target).sum(), leaves)


def climber(net, region, y, loss="cross_entropy", target=None):
    return Climber(suffix_of(net, region), region, y, target, loss)


def zonotope(net, at, ball):
    """Behind layer `at`, with bounds that leave neurons of all three kinds; Residuals included."""
    pre = []

    def note(layer, inputs):
        (v,) = inputs
        half = v.std() / 2
        pre.append((v - half, v + half))

    handles = [m.register_forward_pre_hook(note) for m in net.modules() if type(m) is nn.ReLU]
    with torch.no_grad():
        net[: at + 1](ball.x)
    for handle in handles:
        handle.remove()
    return LatentZonotope(net[: at + 1], ball, pre)


def check(net, region, y, generator, **loss):
    """Double precision: gradients agree to rounding, so signs do and so do whole attacks."""
    e = region.random_start(generator)
    _, fast = climber(net, region, y, **loss).gradient(e)
    plain = plain_gradient(net, region, y, e, **loss)
    assert plain[0].abs().max() > 1e-9
    for ours, exact in zip(fast, plain, strict=True):
        assert ours.shape == exact.shape
        torch.testing.assert_close(ours, exact, rtol=1e-9, atol=1e-12)


def normed(net):
    """Statistics and slopes of BatchNorm that are not those of its start."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.5, 2)
            nn.init.uniform_(module.weight, -1, 1)
            nn.init.uniform_(module.bias, -0.1, 0.1)
    return net


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, CL])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name, memory_format, generator):
    torch.manual_seed(0)
    shape = (3, 16, 16)
    net = make(name, shape=shape, classes=10, mean=[0.4, 0.5, 0.6], std=[0.2, 0.3, 0.25])
    net = normed(net).double().eval().to(memory_format=memory_format)
    x = torch.rand(3, *shape, dtype=torch.float64).to(memory_format=memory_format)
    y, ball = torch.tensor([1, 5, 9]), Ball(x, 0.05)
    relus = [i for i, layer in enumerate(net) if isinstance(layer, nn.ReLU)]
    check(net, ball, y, generator)
    for at in {relus[0], relus[len(relus) // 2], relus[-1]}:
        check(net, zonotope(net, at, ball), y, generator)


def test_devices_where_channels_are_not_last(trained, generator, monkeypatch):
    def plain(like, dtype=None):
        return torch.empty_like(like, dtype=dtype)

    for module in ("fast.layers", "fast.gradient"):
        monkeypatch.setattr(f"maar.attacks.{module}.empty_in_format", plain)
    net, x, y = copy.deepcopy(trained.net).double(), trained.x[:6].double(), trained.y[:6]
    check(net, Ball(x, 0.1), y, generator)
    check(net, zonotope(net, 5, Ball(x, 0.1)), y, generator)


def test_other_regions_losses_and_targets(trained, generator):
    net, x, y = copy.deepcopy(trained.net).double(), trained.x[:6].double(), trained.y[:6]
    v = net[:3](x).detach()
    check(net, SmallBox(Ball(x, 0.1), x, 0.4), y, generator)
    check(net, LatentBox(v - 0.1, v + 0.2, at=3), y, generator)
    check(net, Ball(x, torch.linspace(0.01, 0.2, 6)), y, generator)
    for loss in LOSSES:
        check(net, Ball(x, 0.1), y, generator, loss=loss)
        check(net, Ball(x, 0.1), y, generator, loss=loss, target=(y + 1) % 10)


def pooled():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.ReLU(),
        nn.AvgPool2d(3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 25, 5),
    )


def unusual():
    """Layers where none of the usual neighbours can take them over, and branches to overwrite."""
    return normed(
        nn.Sequential(
            nn.ReLU(),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.Sequential(
                Residual(nn.Sequential(nn.ReLU(), nn.Conv2d(3, 3, 3, 1, 1))), nn.Dropout()
            ),
            nn.ReLU(),
            nn.ReLU(),
            Normalize([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]),
            nn.Flatten(),
            nn.ReLU(),
            nn.BatchNorm1d(3 * 11 * 11),
            nn.Linear(3 * 11 * 11, 5, bias=False),
            nn.BatchNorm1d(5),
        )
    )


@pytest.mark.parametrize("build", [pooled, unusual])
@pytest.mark.parametrize("images", [1, 3])
def test_layers_in_any_order(build, images, generator):
    torch.manual_seed(0)
    net = build().double().eval()
    x, y = torch.rand(images, 3, 11, 11, dtype=torch.float64), torch.arange(images)
    ball = Ball(x, 0.2)
    check(net, ball, y, generator)
    check(net, zonotope(net, 3 if build is pooled else 4, ball), y, generator)


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "padding", "size", "by_patches"),
    [
        (1, 5, 2, 2, 28, True),
        (3, 3, 1, 1, 32, True),
        (3, 5, 2, 2, 32, True),
        (3, 4, 2, 1, 32, True),
        (3, 3, 2, 1, 32, True),
        (3, 5, 1, 2, 9, True),
        (3, 3, 1, 0, 10, True),
        (3, (3, 4), (1, 2), (0, 1), (9, 12), True),
        (3, 2, 3, 0, 11, True),  # pixels that no tap meets
        (2, 3, 3, 0, 13, True),  # padding needed at the end alone
        (1, 1, 1, 0, 5, True),
        (3, 5, 3, 1, 17, True),
        (3, 3, 1, 3, 7, True),  # more padding than kernel
        (16, 3, 1, 1, 9, False),
    ],
)
def test_input_gradient_by_patches(channels, kernel, stride, padding, size, by_patches):
    torch.manual_seed(0)
    conv = nn.Conv2d(channels, 6, kernel, stride, padding).double()
    height, width = size if isinstance(size, tuple) else (size, size)
    v = torch.rand(2, channels, height, width, dtype=torch.float64, requires_grad=True)
    out = conv(v)
    g = torch.randn_like(out)
    (exact,) = torch.autograd.grad(out, v, g)
    geometry = (conv.stride, conv.padding, conv.dilation, conv.groups)
    with torch.no_grad():
        fast = InputGradient.of(conv.weight, *geometry, v)
        assert (fast is not None) == by_patches
        if fast is not None:
            torch.testing.assert_close(fast(g), exact)


@pytest.mark.parametrize("options", [{"groups": 2}, {"dilation": 2}, {"stride": 7}])
def test_first_convolutions_of_other_kinds(options, generator):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=2, **options), nn.Flatten()).double()
    x = torch.rand(2, 2, 13, 11, dtype=torch.float64)
    check(net, Ball(x, 0.2), torch.tensor([0, 3]), generator)


@pytest.mark.parametrize("kernel", [(1, 1), (2, 1)])
def test_dilation_along_one_tap(kernel):
    """oneDNN crashes on this geometry, channels last, if told of a dilation that means nothing."""
    torch.manual_seed(0)
    options = {"stride": (3, 2), "padding": 1, "dilation": (1, 2), "groups": 2}
    net = nn.Sequential(nn.Conv2d(2, 4, kernel, **options), nn.Flatten())
    ball, y = Ball(torch.rand(8, 2, 3, 1), 0.2), torch.arange(8)
    start = torch.Generator().manual_seed(0)
    (found,) = PGD(steps=60, step_size=0.1)(net, ball, y, generator=start)
    assert found.abs().max() <= 1
    bounds = Interval()(net, ball)
    z = net(ball.point((found,)))
    assert bool((z >= bounds.lb - 1e-5).all() and (z <= bounds.ub + 1e-5).all())


@pytest.mark.parametrize("relus", [0, 1, 2])
def test_whole_attack_is_that_of_autograd(relus, trained, monkeypatch):
    """The same start, and in single precision the same e but where a gradient is all rounding."""
    x, y = trained.x[:40], trained.y[:40]
    net, ball = trained.net, Ball(x, 0.1)
    region = zonotope(net, (2, 5)[relus - 1], ball) if relus else ball
    fast = PGD()(net, region, y, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr("maar.attacks.rows.Climber", _refuse)
    plain = PGD()(net, region, y, generator=torch.Generator().manual_seed(1))
    scales = (torch.ones_like(fast[0]), *(mu for _, mu in getattr(region, "bands", ())))
    for ours, theirs, scale in zip(fast, plain, scales, strict=True):
        far = (ours - theirs).abs()[scale > 0] > 1e-5
        assert far.float().mean() < 0.002
        assert ours.abs().max() <= 1


@pytest.mark.parametrize("relus", [0, 1, 2])
def test_bfloat16_climbs_as_high(relus, trained):
    """Within autocast: e of the region, in its own precision, and about as bad for the network."""
    x, y = trained.x[:64], trained.y[:64]
    net, ball = trained.net, Ball(x, 0.1)
    region = zonotope(net, (2, 5)[relus - 1], ball) if relus else ball
    suffix = suffix_of(net, region)
    exact = PGD()(net, region, y, generator=torch.Generator().manual_seed(1))
    with torch.autocast("cpu", torch.bfloat16):
        assert climber(net, region, y).dtype == torch.bfloat16
        e = PGD()(net, region, y, generator=torch.Generator().manual_seed(1))
    assert all(group.dtype == torch.float32 and group.abs().max() <= 1 for group in e)
    losses = [
        LOSSES["cross_entropy"](suffix(region.point(each)), y, None)
        for each in (e, exact, region.zero())
    ]
    assert losses[1].mean() > 1.5 * losses[2].mean()  # there is something to climb
    torch.testing.assert_close(losses[0].mean(), losses[1].mean(), rtol=0.02, atol=0)
    differ = torch.cat([(a - b).abs().flatten() > 0.1 for a, b in zip(e, exact, strict=True)])
    assert 0 < differ.float().mean() < 0.2  # it is another precision, and not another attack


def test_bfloat16_gradient_points_the_same_way(trained, generator):
    x, y = trained.x[:16], trained.y[:16]
    region = zonotope(trained.net, 5, Ball(x, 0.1))
    e = region.random_start(generator)
    plain = plain_gradient(trained.net, region, y, e)
    with torch.autocast("cpu", torch.bfloat16):
        z, fast = climber(trained.net, region, y).gradient(e)
    assert z.dtype == torch.float32
    for ours, exact in zip(fast, plain, strict=True):
        assert ours.dtype == torch.float32
        cosine = torch.nn.functional.cosine_similarity(ours.flatten(), exact.flatten(), dim=0)
        assert cosine > 0.99


def _refuse(*_):
    raise Unknown


class Shrunk(Ball):
    def point(self, e):
        return super().point((e[0] / 2,))


class Doubled(nn.Linear):
    def forward(self, v):
        return 2 * super().forward(v)


def test_autograd_does_what_is_not_known(trained, generator):
    net, x, y = copy.deepcopy(trained.net), trained.x[:4], trained.y[:4]
    with pytest.raises(Unknown):
        climber(nn.Sequential(*net[:-1], Doubled(40, 10)), Ball(x, 0.1), y)
    with pytest.raises(Unknown):
        climber(nn.Sequential(net[0], net[1], nn.BatchNorm2d(8), *net[2:]), Ball(x, 0.1), y)
    with pytest.raises(Unknown):
        climber(net, Shrunk(x, 0.1), y)
    with pytest.raises(Unknown):
        climber(net, LatentZonotope(net[:1], Shrunk(x, 0.1), []), y)
    with pytest.raises(Unknown), torch.autocast("cpu", torch.float16):
        climber(net, Ball(x, 0.1), y)
    double = copy.deepcopy(net).double()
    with pytest.raises(Unknown), torch.autocast("cpu", torch.bfloat16):
        climber(double, Ball(x.double(), 0.1), y)
    handle = net[4].register_forward_hook(lambda *_: None)
    with pytest.raises(Unknown):
        climber(net, Ball(x, 0.1), y)
    handle.remove()
    climber(net, Ball(x, 0.1), y)
