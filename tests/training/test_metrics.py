"""Appendix A.4: the metrics against hand computations, and what holds between them."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from maar.attacks import PGD
from maar.core.errors import RunError, UsageError
from maar.data.dataset import DataSet, Info
from maar.domains import BOUNDS
from maar.domains.bound import margins
from maar.methods.base import Batch, Stage
from maar.methods.schedules import Constant
from maar.networks import make
from maar.networks.layers import Residual
from maar.regions import Ball
from maar.training import metrics
from maar.training.metrics import LatentRegions, Means, check_layers, measure
from maar.training.parallel import Workers
from maar.training.trainer import train

SHAPE = (1, 6, 6)
EPS = 0.03
ATTACK = PGD(steps=20, step_size=0.1, keep="best")


def dataset(x, y):
    info = Info("made", SHAPE, ("a", "b", "c"), 0, len(x), mean=(0.5,), std=(0.25,))
    nothing = x[:0], y[:0]
    return DataSet(info, *nothing, *nothing, x, y, sha256="")


def images():
    return torch.rand(60, *SHAPE, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def net():
    """A convolutional network with three ReLUs that answers each class about as often."""
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24, 10),
        nn.ReLU(),
        nn.Linear(10, 3),
    ).eval()
    with torch.no_grad():
        made[-1].bias.sub_(made(images()).mean(0))
    return made


@pytest.fixture(scope="module")
def data(net):
    """Images with the network's own answer as the label, but the first ten with another."""
    x = images()
    with torch.no_grad():
        y = net(x).argmax(1)
    y[:10] = (y[:10] + 1) % 3
    return dataset(x, y)


def batch(x, y):
    return Batch(nn.Sequential(), x, y, 0.1, Stage("input", 1, Constant(0.1)), torch.Generator())


def test_verified_error_is_a_ratio_of_sums():
    """1 of 1 and 0 of 9 correct images broken: 1/10, not (1/1 + 0/9) / 2."""
    means = Means()
    for correct, broken in ((1, 1), (9, 0)):
        step = batch(torch.zeros(10, 1), torch.zeros(10))
        right = torch.arange(10) < correct
        step.note(accuracy=right, unstable_relu_1=torch.full((10,), 3 * correct))
        step.ratio(verified_error=(torch.arange(10) < broken, right))
        means.add(step.notes)
        means.add({"total": torch.tensor(float(correct))})
    assert means.values == {
        "accuracy": 0.5,
        "unstable_relu_1": 15.0,
        "verified_error": 0.1,
        "total": 5.0,
    }


def test_a_share_of_nothing_is_left_out():
    """JSON has no NaN: an epoch without a correct image has no verified error."""
    step, none = batch(torch.zeros(2, 1), torch.zeros(2)), torch.zeros(2, dtype=torch.bool)
    step.ratio(verified_error=(none, none))
    means = Means()
    means.add(step.notes)
    assert means.values == {}


def test_on_a_network_that_can_be_worked_out():
    """z = (relu(x), 0.5): class 0 iff x > 0.5. eps = 0.1 breaks what is within 0.1 of 0.5."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)).eval()
    with torch.no_grad():
        net[1].weight.fill_(1.0)
        net[1].bias.zero_()
        net[3].weight.copy_(torch.tensor([[1.0], [0.0]]))
        net[3].bias.copy_(torch.tensor([0.0, 0.5]))
    x = torch.tensor([0.2, 0.45, 0.55, 0.58, 0.7, 0.9]).view(6, 1, 1, 1)
    y = torch.tensor([1, 1, 0, 0, 0, 1])  # the last one is wrong
    info = Info("made", (1, 1, 1), ("a", "b"), 0, 6, mean=(0.5,), std=(0.25,))
    data = DataSet(info, x[:0], y[:0], x[:0], y[:0], x, y, sha256="")
    found = measure(net, data, 0.1)
    assert (found.images, found.correct, found.latent_robust) == (6, 5, {0: 2, 1: 2})
    assert found.accuracy == 5 / 6
    assert found.latent_robustness == {0: 2 / 6, 1: 2 / 6}


def test_processes_that_share_the_images_find_what_one_does(net, data, monkeypatch):
    class Half(Workers):
        count = 2

        def __init__(self, rank):
            super().__init__(torch.device("cpu"))
            self.rank = rank

        def sum(self, numbers):
            shares.append(numbers)
            return {key: sum(share[key] for share in shares) for key in numbers}

    monkeypatch.setattr(metrics, "BATCH", 20)
    shares: list[dict[str, float]] = []
    alone = measure(net, data, EPS, attack=ATTACK)
    found = [measure(net, data, EPS, attack=ATTACK, workers=Half(rank)) for rank in (0, 1)]
    assert found[1] == alone
    assert found[0].latent_robust != alone.latent_robust  # its own share only, as it came first


@pytest.mark.parametrize("bounds", ["crown", "zonotope", "interval"])
def test_what_the_ball_can_cause_is_a_point_of_the_region(net, data, bounds):
    """Sound regions: the activation of any image of the ball is a + A e for some e in [-1, 1]^m."""
    x = data.x_test[:5]
    chance = torch.Generator().manual_seed(2)
    ball = Ball(x, EPS)
    regions = LatentRegions(net, SHAPE, [0, 1, 2, 3], bounds)(ball, chance)
    e = ball.random_start(chance)
    for layer in (1, 2, 3):
        region = regions[layer]
        errors, v, bands = [e[0]], ball.point(e), iter(region.bands)
        for module in region.prefix:
            before, v = v, module(v)
            if isinstance(module, nn.ReLU):
                lam, mu = next(bands)
                # v = lam * before + mu * (1 + e_j), solved for e_j
                part = torch.where(mu > 0, (v - lam * before) / mu - 1, 0)
                assert part.abs().max() <= 1 + 1e-4
                errors.append(part)
        torch.testing.assert_close(region.point(tuple(errors)), v)


@pytest.mark.parametrize(("bound", "layers"), [("zonotope", [0, 1, 2, 3]), ("crown", [0])])
def test_what_is_proved_is_never_broken(net, data, bound, layers):
    """By any bound: not in the ball. By the very zonotope that is attacked: in no layer."""
    x, y = data.x_test, data.y_test
    proved = (BOUNDS[bound]()(net, Ball(x, EPS), margins(y, 3)).lb > 0).all(1)
    assert 5 < int(proved.sum()) < 50  # neither nothing nor everything
    some = dataset(x[proved], y[proved])
    found = measure(net, some, EPS, layers=layers, bounds="zonotope", attack=ATTACK)
    assert set(found.latent_robust.values()) == {int(proved.sum())}


def test_a_larger_region_breaks_more(net, data):
    """Roughly: an attack may miss. Interval regions contain the others, deeper ones the image."""
    tight = measure(net, data, EPS, attack=ATTACK)
    loose = measure(net, data, EPS, attack=ATTACK, bounds="interval")
    assert tight.correct == loose.correct == 50
    assert tight.latent_robust[0] == loose.latent_robust[0] < 50
    assert tight.latent_robust[3] <= tight.latent_robust[0] + 1
    assert loose.latent_robust[3] < tight.latent_robust[3]
    none = measure(net, data, 0.0, attack=ATTACK)
    assert set(none.latent_robust.values()) == {50}


def test_the_same_numbers_again_and_the_layers_asked_for(net, data):
    first = measure(net, data, EPS, layers=[2, 0, 2], attack=ATTACK, bounds="cauchy")
    assert list(first.latent_robust) == [0, 2]
    assert first == measure(net, data, EPS, layers=[0, 2], attack=ATTACK, bounds="cauchy")
    some = measure(net, data, EPS, layers=[], limit=25)
    assert (some.images, some.correct, some.latent_robust) == (25, 15, {})


def test_progress_adds_up(net, data):
    tried = []
    measure(net, data, EPS, layers=[0, 1], limit=30, attack=PGD(steps=1), progress=tried.append)
    assert sum(tried) == 2 * 30


def test_relus_inside_a_residual_block_belong_to_the_region(data):
    body = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU())
    net = nn.Sequential(
        Residual(body, nn.Sequential(nn.Conv2d(1, 2, 1))),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(72, 3),
    ).eval()
    ball = Ball(data.x_test[:2], EPS)
    region = LatentRegions(net, SHAPE, [1])(ball, torch.Generator())[1]
    assert len(region.shapes) == 3  # the ball's, the block's, the ReLU's
    assert measure(net, data, EPS, limit=5, attack=ATTACK).images == 5


def test_a_network_with_batchnorm_and_normalisation(data):
    net = make("cnn5", shape=(1, 28, 28), classes=10, mean=[0.1], std=[0.3]).eval()
    x, y = torch.rand(2, 1, 28, 28), torch.tensor([1, 2])
    info = Info("made", (1, 28, 28), tuple("abcdefghij"), 0, 2, mean=(0.1,), std=(0.3,))
    made = DataSet(info, x[:0], y[:0], x[:0], y[:0], x, y, sha256="")
    assert measure(net, made, 0.001, layers=[0, 1], attack=PGD(steps=2)).images == 2


def test_mistakes(net, data):
    with pytest.raises(UsageError, match=r"layer 4 \(accepted: 0 for the input, 1 to 3"):
        measure(net, data, EPS, layers=[4])
    with pytest.raises(UsageError, match=r"layer 1 \(accepted: 0 for the input\)"):
        check_layers(nn.Sequential(nn.Flatten()), [1])
    with pytest.raises(UsageError, match="unknown bounds 'corwn'; did you mean 'crown'"):
        measure(net, data, EPS, bounds="corwn")
    with pytest.raises(UsageError, match="has no train images"):
        measure(net, data, EPS, split="train")
    with pytest.raises(UsageError, match="limit = 0"):
        measure(net, data, EPS, limit=0)
    with pytest.raises(UsageError, match="does not take images of made"):
        measure(nn.Sequential(nn.Conv2d(3, 1, 1)), data, EPS)


def test_nan_weights_are_no_robustness(data):
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 3)).eval()
    with torch.no_grad():
        net[1].bias[0] = float("nan")
    with pytest.raises(RunError, match=r"1\.bias has NaN"):
        measure(net, data, EPS)


def test_the_page(tiny, tmp_path, monkeypatch):
    """The example of docs/metrics.md runs as it stands."""
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "import" in code]
    monkeypatch.chdir(tmp_path)
    train(tiny, "runs/demo")
    names: dict = {}
    exec(compile(code, "metrics.md", "exec"), names)
    assert names["found"].images == 30
    assert list(names["found"].latent_robust) == [0, 1]
