"""Each verifier on questions whose answer is known, and on real images."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from maar.attacks import STRONG, search
from maar.certification import CASCADE, VERIFIERS, crown
from maar.certification.cascade import Cascade
from maar.certification.network import Network
from maar.certification.query import Query
from maar.certification.replay import replay
from maar.certification.verdict import Status
from maar.certification.verifiers.alpha_crown import AlphaCrownVerifier
from maar.certification.verifiers.bound import BoundVerifier
from maar.core.errors import RunError, UsageError
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.cauchy.estimate import Cauchy
from maar.domains.crown import Crown
from maar.domains.interval import Interval
from maar.domains.reduced.network import TooLarge
from maar.networks import make
from maar.regions import Ball

# A new verifier is one line here: what it can say of an image at all.
CAN = {
    "misclassified": {Status.MISCLASSIFIED},
    "interval": {Status.VERIFIED},
    "quick_pgd": {Status.FALSIFIED},
    "zonotope": {Status.VERIFIED},
    "crown": {Status.VERIFIED},
    "alpha_crown": {Status.VERIFIED},
    "pgd": {Status.FALSIFIED},
    "pgd_paper": {Status.FALSIFIED},
    "pgd_strong": {Status.FALSIFIED},
    "bab": {Status.VERIFIED, Status.FALSIFIED},
    "lp": {Status.VERIFIED, Status.FALSIFIED},
    "milp_last": {Status.VERIFIED, Status.FALSIFIED},
    "milp_conv": {Status.VERIFIED, Status.FALSIFIED},
    "milp": {Status.VERIFIED, Status.FALSIFIED},
}


@pytest.mark.parametrize("name", VERIFIERS)
def test_a_question_with_a_known_answer(ask, name):
    verifier = VERIFIERS[name]()
    assert verifier.name == name
    robust, broken, tie = (Cascade((verifier,)).settle(ask(eps)) for eps in (0.2, 0.26, 0.25))
    assert robust.status is (Status.VERIFIED if Status.VERIFIED in CAN[name] else Status.UNKNOWN)
    assert broken.status is (Status.FALSIFIED if Status.FALSIFIED in CAN[name] else Status.UNKNOWN)
    # at eps = 0.25 the least margin is exactly 0: neither verified nor falsified
    assert tie.status is Status.UNKNOWN
    if robust.status is Status.VERIFIED:
        assert 0.1 - 1e-5 < robust.lb[1] < 0.1
        assert broken.status is Status.FALSIFIED or -0.02 - 1e-5 < broken.lb[1] < -0.02
    if broken.status is Status.FALSIFIED:
        assert -0.02 < broken.margin < 0
        assert broken.target == 1
    wrong = Cascade((verifier,)).settle(ask(0.1, y=1))
    assert wrong.status in {*CAN[name], Status.UNKNOWN} - {Status.VERIFIED}
    if name == "misclassified":
        assert (wrong.status, wrong.target) == (Status.MISCLASSIFIED, 0)
        assert wrong.margin == -0.5


def test_every_verifier_has_its_row():
    assert set(CAN) == set(VERIFIERS)


def correlated(scale, gap):
    """z_0 - z_1 = gap everywhere, as a difference of equal ReLUs that intervals cannot see."""
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[scale, 0.0], [scale, 0.0]]))
        first.bias.fill_(scale)
        second.weight.copy_(torch.eye(2))
        second.bias.copy_(torch.tensor([gap, 0.0]))
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second)


def test_crown_proves_what_intervals_cannot(ask):
    query = ask(0.1, correlated(1.0, 0.125))
    settled = Cascade.named(["interval", "crown"]).settle(query)
    assert (settled.status, settled.by) == (Status.VERIFIED, "crown")
    assert 0.124 < settled.lb[1] < 0.125


def test_float64_proves_what_rounding_hides_in_float32(ask):
    query = ask(0.1, correlated(1000.0, 2.0**-10))
    assert crown.crown(query, torch.float32).lb.item() < 0
    settled = Cascade.named(["crown"]).settle(query)
    assert settled.status is Status.VERIFIED
    # but a gap below float64's own rounding is not proved
    for names in (CASCADE, ["zonotope"]):
        settled = Cascade.named(names).settle(ask(0.1, correlated(1000.0, 2.0**-45)))
        assert settled.status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (Cauchy(), "cauchy is an estimate"),
        (Interval(), "interval without rounding=True"),
        (Crown(), "crown without rounding=True"),
    ],
)
def test_a_bound_that_cannot_certify_is_refused_at_construction(bound, said):
    with pytest.raises(UsageError, match=said):
        BoundVerifier(bound)


def test_any_sound_bound_can_be_a_verifier(ask):
    verifier = BoundVerifier(Crown(rounding=True))
    assert Cascade((verifier,)).settle(ask(0.2)).status is Status.VERIFIED
    assert Cascade((verifier,)).settle(ask(0.26)).status is Status.UNKNOWN


@dataclass(frozen=True)
class Subject:
    network: Network
    x: torch.Tensor
    y: torch.Tensor
    eps: float

    def query(self, i, seed=0):
        return Query.of(self.network, self.x[i : i + 1], int(self.y[i]), self.eps, seed)


@pytest.fixture(scope="module", params=["trained", "residual"])
def subject(request, mnist_mini):
    """Real images of a trained network, and a network with BatchNorm and residuals."""
    x, y = mnist_mini.images("test")[::43], mnist_mini.labels("test")[::43]
    if request.param == "trained":
        return Subject(Network(request.getfixturevalue("trained"), (1, 28, 28)), x, y, 0.04)
    x = x[:12, :, ::2, ::2].contiguous()
    net = make("resnet_small", (1, 14, 14), 10, seed=1).eval()
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_(generator=torch.Generator().manual_seed(0))
                layer.running_var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(0))
        y = net(x).argmax(1)
    return Subject(Network(net, (1, 14, 14)), x, y, 0.004)


@pytest.fixture(scope="module")
def verdicts(subject):
    cascade = Cascade.named(CASCADE)
    return [cascade.settle(subject.query(i)) for i in range(len(subject.x))]


def test_the_verdicts_differ_enough_to_test_with(verdicts):
    statuses = [settled.status for settled in verdicts]
    assert statuses.count(Status.VERIFIED) >= 2
    assert statuses.count(Status.FALSIFIED) >= 2
    assert Status.ERROR not in statuses


def test_no_attack_breaks_a_verified_image(subject, verdicts):
    rows = [i for i, settled in enumerate(verdicts) if settled.status is Status.VERIFIED]
    for seed in (1, 2):
        found = search(
            subject.network.net,
            Ball(subject.x[rows], subject.eps),
            subject.y[rows],
            attacks=STRONG,
            generator=torch.Generator().manual_seed(seed),
        )
        assert not found.broken.any()
        # nor does any point go below the margin that was proved
        for i, worst in zip(rows, found.margin.tolist(), strict=True):
            assert -worst > min(verdicts[i].lb.values())


def test_every_counterexample_replays_inside_the_ball(subject, verdicts):
    rows = [i for i, settled in enumerate(verdicts) if settled.status is Status.FALSIFIED]
    for i in rows:
        point = torch.from_numpy(verdicts[i].counterexample)[None]
        replay(subject.query(i), point)
        assert float((point.double() - subject.x[i].double()).abs().max()) <= subject.eps
        assert float(point.min()) >= 0
        assert float(point.max()) <= 1
        with torch.no_grad():
            z = subject.network.net(point)[0]
        assert z[verdicts[i].target] > z[subject.y[i]]


@pytest.mark.parametrize("name", VERIFIERS)
def test_a_verifier_alone_contradicts_nobody(subject, verdicts, name):
    cascade = Cascade.named([name])
    for i in range(0, len(verdicts), 3):
        alone = cascade.settle(subject.query(i, seed=7))
        assert alone.status in {*CAN[name], Status.UNKNOWN}
        together = {alone.status, verdicts[i].status}
        assert not {Status.VERIFIED, Status.FALSIFIED} <= together
        assert not {Status.VERIFIED, Status.MISCLASSIFIED} <= together


@pytest.fixture
def broken(subject, verdicts):
    """A question that no bound can settle."""
    return next(i for i, settled in enumerate(verdicts) if settled.status is Status.FALSIFIED)


def test_crown_is_computed_once_per_precision(subject, broken, monkeypatch):
    computed = []
    compute = crown._crown
    monkeypatch.setattr(
        crown, "_crown", lambda q, dtype: computed.append(dtype) or compute(q, dtype)
    )
    Cascade.named(["crown", "alpha_crown"]).settle(subject.query(broken))
    assert computed == [torch.float32, torch.float64]


def test_bounds_of_some_classes_are_theirs(subject, broken):
    """Rows of the wrong classes would prove the wrong thing."""
    query = subject.query(broken)
    whole = crown.reduced(query, torch.float64, crown.crown(query, torch.float64))
    query.memory["found"] = whole
    some = query.targets[-1:1:-3]
    kept = crown.crown(query.narrowed(some), torch.float64)
    fresh = subject.query(broken).narrowed(some)
    fresh = crown.reduced(fresh, torch.float64, crown.crown(fresh, torch.float64))
    assert kept.reduction.network is whole.reduction.network
    torch.testing.assert_close(kept.lb, fresh.lb)
    torch.testing.assert_close(kept.reduction.rows.c, fresh.reduction.rows.c)
    torch.testing.assert_close(kept.reduction.rows.X, fresh.reduction.rows.X)


def refuse(problem, **options):
    raise TooLarge("no")


def test_without_a_reduced_network_the_bounds_are_the_same(subject, verdicts, monkeypatch):
    i = next(i for i, settled in enumerate(verdicts) if settled.by == "crown")
    reduce = crown.reduce
    monkeypatch.setattr(crown, "reduce", lambda problem, **_: reduce(problem, rounding=True))
    by_reduction = Cascade.named(["crown"]).settle(subject.query(i))
    monkeypatch.setattr(crown, "reduce", refuse)
    settled = Cascade.named(["crown"]).settle(subject.query(i))
    assert settled.status is by_reduction.status is Status.VERIFIED
    # (one in float32, the other in float64)
    assert settled.lb == pytest.approx(by_reduction.lb, rel=0.01, abs=1e-3)


@pytest.mark.parametrize("room", [True, False])
def test_alpha_crown_improves_what_it_can_afford(subject, broken, room, monkeypatch):
    """The last slopes always; those of inner bounds unless they are too many."""
    start = min(crown.crown(subject.query(broken), torch.float64).lb.tolist())
    if not room:
        monkeypatch.setattr(crown, "reduce", refuse)
    least = {}
    for most in (0, 1_000_000):
        verifier = AlphaCrownVerifier(AlphaCrown(rounding=True, steps=3), max_inner=most)
        least[most] = min(verifier(subject.query(broken)).lb.values())
    assert start < least[0]
    assert least[0] < least[1_000_000] if room else least[0] == least[1_000_000]


def test_scores_that_overflow_are_an_error(ask):
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, 2), nn.Linear(2, 2))
    with torch.no_grad():
        for layer in (net[1], net[2]):
            layer.weight.fill_(3e38)
    settled = Cascade.named(CASCADE).settle(ask(0.1, net))
    assert settled.status is Status.ERROR
    assert "NaN or infinite" in settled.error


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(trained, value):
    net = copy.deepcopy(trained)
    with torch.no_grad():
        net[1].weight[0, 0, 0, 0] = value
    with pytest.raises(RunError, match=r"1 of 200 numbers of 1.weight are NaN or infinite"):
        Network(net, (1, 28, 28))


def test_other_networks_that_are_refused(trained):
    with pytest.raises(UsageError, match="float64"):
        Network(copy.deepcopy(trained).double(), (1, 28, 28))
    with pytest.raises(UsageError, match="gives 1x2x2, not scores"):
        Network(nn.Sequential(nn.ReLU()), (1, 2, 2))
    with pytest.raises(UsageError, match="does not fit an input of shape 3x32x32"):
        Network(trained, (3, 32, 32))
