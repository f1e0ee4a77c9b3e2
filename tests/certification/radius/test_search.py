"""The bisection on questions with known answers: the radius of the image is 0.25."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from maar.certification.agenda import Job
from maar.certification.cascade import Cascade
from maar.certification.network import Network
from maar.certification.radius.search import Search, distance
from maar.certification.verdict import UNKNOWN, Status, Verdict
from maar.certification.verifiers.quick_pgd import QuickPgd

IMAGE = np.array([[[0.75, 0.25]]], np.float32)


@pytest.fixture
def search(two_pixels):
    def measure(*verifiers, largest=0.5, tolerance=0.001, y=0, net=two_pixels):
        made = [Cascade.named([v]).verifiers[0] if isinstance(v, str) else v for v in verifiers]
        network = Network(net, (1, 1, 2))
        search = Search(network, Cascade(tuple(made)), Job(5, IMAGE, y))
        return search.run(largest, tolerance)

    return measure


@dataclass(frozen=True)
class Says:
    """Proves up to an eps, and gives no answer beyond; may fail, or lie, from another eps on."""

    up_to: float
    name: ClassVar[str] = "says"
    fails_from: float = 9.0

    def __call__(self, query):
        if query.eps >= self.fails_from:
            raise RuntimeError("no memory")
        lb = 1.0 if query.eps <= self.up_to else -1.0
        return Verdict.bounded(dict.fromkeys(query.targets, lb))


@pytest.mark.parametrize("tolerance", [0.1, 0.01, 1e-5])
def test_both_ends_of_a_known_radius(search, tolerance):
    found = search("misclassified", "quick_pgd", "crown", tolerance=tolerance)
    assert found.status is Status.VERIFIED
    assert found.lower < 0.25 < found.upper <= found.lower + tolerance
    assert (found.lower_by, found.by, found.target) == ("crown", "quick_pgd", 1)
    # what is claimed holds: the proof was of that very eps, the point is at that very distance
    proved = [q for q in found.questions if (q.eps, q.verdict) == (found.lower, "verified")]
    assert len(proved) == 1
    assert distance(found.counterexample, IMAGE) == found.upper
    assert found.counterexample[0, 0, 1] > found.counterexample[0, 0, 0]
    assert found.margin < 0
    assert all(q.eps < 0.25 for q in found.questions if q.verdict == "verified")
    assert all(q.eps > 0.25 for q in found.questions if q.verdict == "falsified")


def test_what_was_never_broken_has_no_upper_end(search):
    found = search("misclassified", "crown", "quick_pgd", largest=0.2, tolerance=0.01)
    assert (found.status, found.upper, found.by) == (Status.VERIFIED, None, None)
    assert 0.19 <= found.lower <= 0.2
    assert found.counterexample is None


def test_an_open_gap_is_told(search):
    found = search("misclassified", Says(0.1), "quick_pgd")
    assert found.status is Status.UNKNOWN
    assert 0.099 <= found.lower <= 0.1
    assert 0.25 < found.upper <= 0.251
    assert (found.lower_by, found.by) == ("says", "quick_pgd")
    assert search(Says(0.1)).upper is None


def test_attacks_alone_prove_nothing(search):
    found = search("misclassified", "quick_pgd")
    assert (found.status, found.lower, found.lower_by) == (Status.UNKNOWN, 0.0, None)
    assert found.upper <= 0.251


def test_a_misclassified_image_has_the_radius_0(search):
    found = search("misclassified", "quick_pgd", "crown", y=1)
    assert (found.status, found.lower, found.upper) == (Status.MISCLASSIFIED, 0.0, 0.0)
    assert len(found.questions) == 1


def test_a_failure_is_the_images_error_and_keeps_what_was_found(search):
    found = search("misclassified", "quick_pgd", Says(0.15, fails_from=0.18))
    assert found.status is Status.ERROR
    assert found.error.startswith("at eps 0.18")
    assert found.error.endswith(": says: RuntimeError: no memory")
    assert found.lower == pytest.approx(0.125, abs=1e-3)
    assert found.upper <= 0.251


def test_a_proof_that_a_counterexample_contradicts_is_an_error(search):
    @dataclass(frozen=True)
    class Late(Says):
        """Proves what is not true, then finds the point."""

        def __call__(self, query):
            if query.eps < 0.3:
                return super().__call__(query)
            point = torch.tensor([[[[0.49, 0.51]]]])
            return Verdict(Status.FALSIFIED, counterexample=point)

    found = search(Late(0.28), largest=0.54)
    assert found.status is Status.ERROR
    assert "contradiction: proved at eps" in found.error


def test_a_nearer_counterexample_of_a_proof_counts(search):
    """A verifier that is no attack may find a point that the attacks did not."""

    @dataclass(frozen=True)
    class Blind(QuickPgd):
        name: ClassVar[str] = "blind"

        def __call__(self, query):
            return super().__call__(query) if query.eps > 0.4 else UNKNOWN

    found = search("misclassified", Blind(), "bab")
    assert found.status is Status.VERIFIED
    assert found.by == "bab"
    assert found.lower < 0.25 < found.upper <= found.lower + 0.001


def test_a_network_that_cannot_be_broken(search):
    flat = nn.Sequential(nn.Flatten(), nn.Linear(2, 2))
    with torch.no_grad():
        flat[1].weight.zero_()
        flat[1].bias.copy_(torch.tensor([1.0, 0.0]))
    found = search("misclassified", "crown", "quick_pgd", net=flat, largest=1.0, tolerance=0.01)
    assert (found.status, found.upper) == (Status.VERIFIED, None)
    assert found.lower >= 0.99
