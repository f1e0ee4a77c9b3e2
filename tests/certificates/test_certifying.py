"""Certificates from Python and from the command line, checked by the other program."""

import json

import pytest
import torch
from torch import nn

import maar
from maar.certificates.tree import Unproved, preorder
from maar.certification.cascade import Cascade
from maar.certification.proving import certifiable
from maar.core.errors import UsageError


@pytest.fixture(scope="module")
def result():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)
    ).eval()
    x = torch.rand(12, 1, 4, 4)
    return maar.certify(net, x, net(x).argmax(1), eps="1/40", certificates=True, workers=1)


def test_python_saves_what_the_checker_accepts(result, tmp_path):
    folder = result.save(tmp_path / "saved")
    total = maar.check(folder)
    assert total.holds, total.refused
    assert total.counts["verified"] == int(result.verified.sum()) > 0
    assert total.counts["none"] == int(result.unknown.sum())
    assert maar.check(folder, claim="float32").counts["verified"] > 0
    assert maar.check(folder, exact=True).counts == total.counts


def test_another_eps_is_refused(result, tmp_path):
    folder = result.save(tmp_path / "saved")
    path = folder / "certificates" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eps": "1/2"}))
    total = maar.check(folder)
    assert not total.holds
    assert "eps" in total.refused[0]


def test_a_folder_without_certificates_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has no certificates"):
        maar.check(tmp_path)


def test_eps_by_place_has_no_certificates(result):
    x = torch.rand(1, 1, 4, 4)
    with pytest.raises(UsageError, match="one eps for every pixel"):
        maar.certify(
            nn.Sequential(nn.Flatten(), nn.Linear(16, 2)),
            x,
            torch.zeros(1, dtype=torch.long),
            eps=torch.full((1, 4, 4), 0.1),
            certificates=True,
        )


def test_verifiers_that_leave_proofs_are_asked_before_a_milp():
    cascade = certifiable(Cascade.named(["misclassified", "crown", "milp"]))
    assert cascade.names == ["misclassified", "crown", "alpha_crown", "bab", "milp"]
    assert certifiable(Cascade.named(["crown"])).names == ["crown"]


def test_a_tree_is_rebuilt_from_its_leaves():
    sign = torch.tensor([[1, 0, -1], [1, 0, 1], [-1, 1, 0], [-1, -1, 0]])
    nodes, paths, order = preorder(sign)
    assert nodes == [0, 2, -1, -1, 1, -1, -1]
    assert order == [1, 0, 2, 3]
    assert paths == [[0, 2], [0, 2], [0, 1], [0, 1]]


@pytest.mark.parametrize("missing", range(4))
def test_leaves_that_do_not_cover_make_no_tree(missing):
    sign = torch.tensor([[1, 0, -1], [1, 0, 1], [-1, 1, 0], [-1, -1, 0]])
    keep = [n for n in range(4) if n != missing]
    with pytest.raises(Unproved):
        preorder(sign[keep])


def test_zoo_checks_a_network_that_is_named():
    from maar.cli.main import main

    assert main(["zoo", "--check", "3"]) == 2
