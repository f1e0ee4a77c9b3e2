"""Third-party truth: the COLT authors' MNIST network, which complete verifiers have settled.

968 of the first 1,000 test images are robust at eps = 0.1, and 22 are correct but not robust.
Public CROWN proves 928, alpha-CROWN 940 (last slopes) and 949 (all slopes).
"""

import json
from pathlib import Path

import pytest
import torch

from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import margins
from maar.domains.crown import Crown
from maar.domains.graph import compile_network
from maar.regions import Ball

NETS = Path(__file__).parents[3] / "shared" / "nets"
pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not NETS.exists(), reason="colt_mnist_0.1.onnx is not in ../shared/nets"),
]


@pytest.fixture(scope="module")
def colt(mnist):
    """`proved(bound, indices)`: which of these test images the bound proves robust."""
    pytest.importorskip("onnx")
    from maar.exchange.onnx_in import read_onnx

    net = read_onnx(NETS / "colt_mnist_0.1.onnx", mean=[0.1307], std=[0.3081])
    graphs = {}

    def proved(bound, indices, dtype=torch.float64):
        if dtype not in graphs:
            graphs[dtype] = compile_network(net, (1, 28, 28), dtype)
        found = []
        for i in indices:
            x, y = mnist.images("test", [i]), mnist.labels("test", [i])
            with torch.no_grad():
                lb = bound(graphs[dtype], Ball(x, 0.1), margins(y, 10, dtype)).lb
            if bool((lb > 0).all()):
                found.append(i)
        return found

    return proved


@pytest.fixture(scope="module")
def verdicts():
    return json.loads((NETS / "colt_mnist_0.1.verdicts.json").read_text())


@pytest.fixture(scope="module")
def easy(verdicts):
    """The images that public CROWN proves."""
    hard = {
        i
        for name in ("misclassified", "falsified", "verified_not_by_crown")
        for i in verdicts[name]
    }
    return [i for i in range(1000) if i not in hard]


# lower bounds only: that is what robustness asks for
CROWN = Crown(rounding=True, upper=False)
ALL = AlphaCrown("all", rounding=True)
LAST = AlphaCrown("last", rounding=True)


def test_crown_proves_what_public_crown_proves_and_nothing_false(colt, verdicts, easy):
    sample = easy[:: len(easy) // 60][:60]
    assert colt(CROWN, sample) == sample
    # in float32 an image may be lost to the slack for rounding, but hardly ever is
    assert len(colt(CROWN, sample, torch.float32)) >= 59
    assert colt(CROWN, verdicts["falsified"] + verdicts["misclassified"]) == []
    # these are robust: bounds that are tighter than the public ones may prove a few
    assert len(colt(CROWN, verdicts["verified_not_by_crown"])) <= 2


def test_alpha_crown_proves_more_and_nothing_false(colt, verdicts):
    assert len(colt(ALL, verdicts["verified_not_by_crown"])) >= 21
    assert colt(ALL, verdicts["falsified"][::4]) == []


@pytest.mark.slow
def test_the_first_thousand(colt, verdicts, easy):
    assert colt(CROWN, range(1000)) == easy
    assert len(easy) == 928
    open_ = verdicts["verified_not_by_crown"]
    assert 928 + len(colt(LAST, open_)) >= 940
    assert 928 + len(colt(ALL, open_)) >= 949
    assert colt(ALL, verdicts["falsified"]) == []
