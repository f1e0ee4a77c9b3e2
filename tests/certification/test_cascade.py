"""The cascade's own promises, tried with verifiers that fail and lie."""

import signal
import time
from dataclasses import dataclass, field, replace

import pytest
import torch

from maar.certification import CASCADE, VERIFIERS
from maar.certification.cascade import Cascade
from maar.certification.verdict import UNKNOWN, Status, Verdict
from maar.core.errors import UsageError


@dataclass(frozen=True)
class Says:
    """A verifier that gives the same answer to everything, and remembers what it was asked."""

    verdict: object
    name: str = "says"
    asked: list = field(default_factory=list)

    def __call__(self, query):
        self.asked.append(query.targets)
        if isinstance(self.verdict, BaseException):
            raise self.verdict
        return self.verdict


@pytest.fixture
def query(trained, mnist_mini):
    from maar.certification.network import Network
    from maar.certification.query import Query

    x, y = mnist_mini.images("test", [0]), int(mnist_mini.labels("test", [0]))
    return Query.of(Network(trained, (1, 28, 28)), x, y, 0.05)


def bounds(query, proved, lb=0.5):
    return Verdict.bounded({k: lb if k in proved else -1.0 for k in query.targets})


def test_only_open_classes_are_handed_on(query):
    first, second, *others = query.targets
    one = Says(bounds(query, [first]), "one")
    two = Says(bounds(query.narrowed([second, *others]), [second]), "two")
    rest = query.narrowed(others)
    three = Says(bounds(rest, others, lb=0.25), "three")
    never = Says(UNKNOWN, "never")
    settled = Cascade((one, two, three, never)).settle(query)
    assert [s.asked for s in (one, two, three)] == [
        [query.targets],
        [(second, *others)],
        [tuple(others)],
    ]
    assert (settled.status, settled.by, never.asked) == (Status.VERIFIED, "three", [])
    assert settled.lb == {k: 0.5 if k in (first, second) else 0.25 for k in query.targets}
    assert list(settled.times) == ["one", "two", "three"]
    assert settled.open == []


@pytest.mark.parametrize("lb", [0.0, -0.0, float("nan"), float("inf"), -1e-30])
def test_what_proves_nothing(query, lb):
    settled = Cascade((Says(bounds(query, query.targets, lb=lb)),)).settle(query)
    assert settled.status is Status.UNKNOWN
    assert settled.open == list(query.targets)
    assert settled.by is None


def test_verified_needs_a_margin_of_every_class(query):
    claim = Verdict(Status.VERIFIED, lb={query.targets[0]: 1.0})
    assert Cascade((Says(claim),)).settle(query).status is Status.UNKNOWN
    assert Cascade((Says(Verdict(Status.VERIFIED)),)).settle(query).status is Status.UNKNOWN


@pytest.mark.parametrize("failure", [RuntimeError("not enough\nmemory"), MemoryError(), ValueError])
def test_a_failure_is_an_error_of_the_image_unless_another_settles_it(query, failure):
    bad = Says(failure if isinstance(failure, Exception) else failure("x"), "bad")
    settled = Cascade((bad, Says(UNKNOWN))).settle(query)
    assert (settled.status, settled.by) == (Status.ERROR, "bad")
    assert settled.error.startswith(f"bad: {type(bad.verdict).__name__}")
    assert "\n" not in settled.error
    saved = Cascade((bad, Says(bounds(query, query.targets), "good"))).settle(query)
    assert (saved.status, saved.by, saved.error) == (Status.VERIFIED, "good", "")


def test_an_interrupt_is_no_error(query):
    with pytest.raises(KeyboardInterrupt):
        Cascade((Says(KeyboardInterrupt()),)).settle(query)


def lies(query):
    x = query.x
    outside = x + 10 * query.eps
    return {
        "is classified correctly": x,
        "has pixels outside [0, 1]": x - 0.01,
        "away, eps is 0.05": outside.clamp(0, 1),
        "torch.float64": x.double(),
        "of shape": x[0],
    }


@pytest.mark.parametrize("said", ["correctly", "outside", "away", "float64", "shape"])
def test_a_counterexample_that_is_none_is_an_error(query, said):
    (why, point), *_ = ((why, p) for why, p in lies(query).items() if said in why)
    settled = Cascade((Says(Verdict(Status.FALSIFIED, counterexample=point)),)).settle(query)
    assert settled.status is Status.ERROR
    assert why in settled.error
    assert settled.counterexample is None


@pytest.mark.parametrize("status", [Status.FALSIFIED, Status.MISCLASSIFIED])
def test_a_counterexample_must_be_given(query, status):
    settled = Cascade((Says(Verdict(status)),)).settle(query)
    assert settled.status is Status.ERROR
    assert "there is no point" in settled.error


def test_names():
    assert Cascade.named(CASCADE).names == list(CASCADE)
    assert set(CASCADE) <= set(VERIFIERS)
    for names, said in [
        (["crwn"], "did you mean 'crown'"),
        (["crown", "crown"], "twice"),
        ([], "no verifiers"),
        (["cauchy"], "unknown verifier 'cauchy'"),
    ]:
        with pytest.raises(UsageError, match=said):
            Cascade.named(names)


def test_chance_is_the_images_own(query):
    """The same image has the same verdict and counterexample, whatever was asked before."""
    cascade = Cascade.named(["pgd"])
    wide = [type(query)(**{**vars(query), "eps": 0.3, "seed": seed}) for seed in (5, 6, 5)]
    found = [cascade.settle(question) for question in wide]
    assert all(settled.status is Status.FALSIFIED for settled in found)
    points = [torch.from_numpy(settled.counterexample) for settled in found]
    assert torch.equal(points[0], points[2])
    assert not torch.equal(points[0], points[1])


@dataclass(frozen=True)
class Slow:
    """Takes its time; stops when the query says so, or never listens."""

    listens: bool
    seconds: float = 30.0
    name: str = "slow"

    def __call__(self, query):
        time.sleep(query.left(self.seconds) if self.listens else self.seconds)
        return UNKNOWN if query.left() == 0 else bounds(query, query.targets)


@pytest.mark.parametrize(("listens", "least", "most"), [(True, 0.2, 0.4), (False, 0.3, 1.0)])
def test_time_that_is_up_leaves_the_image_open(query, monkeypatch, listens, least, most):
    monkeypatch.setattr("maar.certification.cascade.GRACE", 0.1)
    first = Says(bounds(query, query.targets[:3]), "first")
    never = Says(bounds(query, query.targets), "never")
    start = time.monotonic()
    settled = Cascade((first, Slow(listens), never), timeout=0.2).settle(query)
    assert least <= time.monotonic() - start <= most
    assert (settled.status, settled.by, settled.error) == (Status.UNKNOWN, None, "")
    assert settled.open == list(query.targets[3:])
    assert list(settled.times) == ["first", "slow"]
    assert never.asked == []
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_the_first_verifier_is_asked_however_short_the_time(query):
    first = Says(bounds(query, query.targets))
    assert Cascade((first,), timeout=1e-9).settle(query).status is Status.VERIFIED


def test_a_deadline_of_the_query_holds_too(query):
    late = replace(query, deadline=time.monotonic() + 0.1)
    settled = Cascade((Slow(True),), timeout=20).settle(late)
    assert settled.status is Status.UNKNOWN
    assert settled.times["slow"] < 1
