"""A public VNN-COMP instance on which branch and bound has to split ReLUs without a coefficient."""

from pathlib import Path

import pytest
import torch

from maar.certification.milp.leaf import LeafProgram
from maar.certification.properties.bounds import chosen
from maar.certification.properties.decide import _questions
from maar.domains.bound import Corners, Problem
from maar.domains.reduced.branching import Branching
from maar.domains.reduced.network import reduce

INSTANCES = Path(__file__).parents[4] / "shared" / "vnncomp" / "mnist_fc"


@pytest.mark.skipif(not INSTANCES.exists(), reason="mnist_fc is not in ../shared/vnncomp")
@pytest.mark.parametrize("row", [4, 5, 6, 7, 8])
def test_rows_that_no_split_with_a_coefficient_proves(row):
    pytest.importorskip("onnx")
    from maar.exchange.onnx_in import read_with_shape
    from maar.exchange.vnnlib import read_vnnlib

    net, shape = read_with_shape(INSTANCES / "mnist-net_256x4.onnx.gz")
    (question,) = _questions(net, shape, read_vnnlib(INSTANCES / "prop_3_0.05.vnnlib.gz"))
    box = Corners(*question.box())
    network, rows = reduce(Problem(question.subject.graph, box, chosen(question)))
    asked = rows[torch.tensor([row])]
    proof = Branching().prove(network, asked, LeafProgram(network, asked), 60.0)
    assert proof.lb > 0
