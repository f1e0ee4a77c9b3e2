"""Modules of common shapes through `maar.convert` and `maar.certify`, each attacked afterwards."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import maar
from maar.networks.layers import Residual


class ConvMaxPool(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding="same")
        self.linear = nn.Linear(3 * 3 * 3, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x), inplace=True), 2)
        return self.linear(torch.flatten(x, 1))


class Leaky(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(36, 8), nn.LeakyReLU(0.1, inplace=True))
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.layers(x.view(x.size(0), -1)))


class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet8(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 3, 1, 1)
        self.blocks = nn.Sequential(Block(2, 2, 1), Block(2, 3, 2), Block(3, 3, 1))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.3)
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        x = self.pool(self.blocks(F.relu(self.stem(x))))
        return self.fc(self.dropout(torch.flatten(x, 1)))


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(1, 2, 3, 1, 1)
        self.b = nn.Conv2d(3, 2, 3, 1, 1)
        self.fc = nn.Linear(5, 3)

    def forward(self, x):
        x = torch.cat([x, F.relu(self.a(x))], 1)
        x = torch.cat([x, F.relu(self.b(x))], 1)
        return self.fc(x.mean((2, 3)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 2, 3, 1, 1)
        self.deep = nn.Conv2d(2, 2, 3, 1, 1)
        self.up = nn.Conv2d(4, 1, 3, 1, 1)
        self.fc = nn.Linear(36, 3)

    def forward(self, x):
        left = F.relu(self.down(x))
        deep = F.relu(self.deep(F.avg_pool2d(left, 2)))
        wide = F.interpolate(deep, scale_factor=2, mode="nearest")
        return self.fc(F.relu(self.up(torch.cat([left, wide], dim=1))).flatten(1))


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.full((6,), 0.4))
        self.register_buffer("std", torch.full((6,), 0.3))
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU6(), nn.Linear(8, 3), nn.Softmax(1))

    def forward(self, x):
        return self.layers((x - self.mean) / self.std)


class OneLogit(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 1)

    def forward(self, x):
        return torch.sigmoid(self.b(F.hardtanh(self.a(x))))


class Sigmoids(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.sigmoid(self.a(x)))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 8)
        self.b = nn.ConvTranspose2d(2, 2, 3, 2, 1, output_padding=1)
        self.c = nn.Linear(32, 3)

    def forward(self, x):
        x = F.relu(self.a(x)).reshape(-1, 2, 2, 2)
        return self.c(F.relu(self.b(x)).flatten(1))


class Separable(nn.Module):
    def __init__(self):
        super().__init__()
        self.depth = nn.Conv2d(2, 2, 3, 1, 1, groups=2)
        self.point = nn.Conv2d(2, 3, 1)
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        x = torch.clamp(self.point(self.depth(torch.cat([x, 1 - x], 1))), 0, 1)
        return self.fc(x.amax((2, 3)))


MODULES = {
    ConvMaxPool: (1, 6, 6),
    Leaky: (1, 6, 6),
    ResNet8: (1, 6, 6),
    Dense: (1, 6, 6),
    UNet: (1, 6, 6),
    Table: (6,),
    OneLogit: (6,),
    Sigmoids: (6,),
    Decoder: (6,),
    Separable: (1, 6, 6),
}


@pytest.fixture(params=MODULES, ids=lambda kind: kind.__name__)
def case(request):
    torch.manual_seed(0)
    model = request.param().eval()
    x = torch.rand(2, *MODULES[request.param])
    with torch.no_grad():
        out = model(x)
    y = (out[:, 0] > 0.5).long() if out.shape[1] == 1 else out.argmax(1)
    return model, x, y


@pytest.mark.parametrize(("eps", "verdict"), [("0.001", "verified"), ("0.9", None)])
def test_certified_and_attacked(case, eps, verdict):
    model, x, y = case
    result = maar.certify(model, x, y, eps, timeout=5, workers=1)
    if verdict is not None:
        assert [image.verdict for image in result] == [verdict] * 2
    attacked = maar.attack(model, x, y, eps, restarts=2)
    assert not bool((result.verified & attacked.success).any())
    for image in result:
        if image.counterexample is not None:
            out = model(image.counterexample[None].float())[0]
            answer = int(out > 0.5) if len(out) == 1 else int(out.argmax())
            assert answer != image.label


def test_the_parameters_stay_alive(case):
    model, x, _ = case
    net = maar.convert(model, x)
    owned = {id(parameter) for parameter in model.parameters()}
    assert {id(parameter) for parameter in net.parameters()} == owned
    with torch.no_grad():
        next(iter(net.parameters())).add_(0.5)
        torch.testing.assert_close(net(x), model(x))


def test_a_resnet_becomes_a_chain_with_residual_blocks():
    net = maar.convert(ResNet8().eval(), torch.rand(1, 1, 6, 6))
    kinds = [type(layer) for layer in net]
    assert kinds.count(Residual) == 3
    assert kinds[-3:] == [nn.AvgPool2d, nn.Flatten, nn.Linear]


def test_a_converted_chain_is_trained():
    model, x = ResNet8(), torch.rand(4, 1, 6, 6)
    net = maar.convert(model, x).train()
    before = [parameter.clone() for parameter in model.parameters()]
    F.cross_entropy(net(x), torch.tensor([0, 1, 2, 0])).backward()
    torch.optim.SGD(net.parameters(), 0.1).step()
    assert not torch.equal(before[0], next(model.parameters()))


@pytest.mark.parametrize("kind", [UNet, ResNet8, Separable])
def test_files_of_torchs_own_exporter(tmp_path, kind):
    pytest.importorskip("onnxscript")
    from maar.exchange.onnx_in import read_onnx

    torch.manual_seed(0)
    model, x = kind().eval(), torch.rand(3, *MODULES[kind])
    path = tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x[:1],), path, dynamo=True, verbose=False)
    with torch.no_grad():
        torch.testing.assert_close(read_onnx(path)(x), model(x), rtol=1e-5, atol=1e-5)


class Gelu(nn.Module):
    def forward(self, x):
        return F.gelu(x)


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Transposed(nn.Module):
    def forward(self, x):
        return x.permute(1, 0)


class Mixed(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class Signs(nn.Module):
    def forward(self, x):
        return torch.sign(x)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Gelu(), ["test_any_module.py", "return F.gelu(x)", "use ReLU or SiLU"]),
        (Branches(), ["Branches", "may not branch"]),
        (Transposed(), ["x.permute(1, 0)", "batch axis"]),
        (Mixed(), ["x.mean(0)", "mixes the images"]),
        (Signs(), ["torch.sign(x)", "it jumps"]),
    ],
)
def test_refused_with_the_line_it_comes_from(model, words):
    with pytest.raises(maar.UsageError) as caught:
        maar.convert(model, torch.rand(2, 4))
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_an_example_is_needed():
    with pytest.raises(maar.UsageError, match=r"a Table .*needs an example"):
        maar.convert(Table())
