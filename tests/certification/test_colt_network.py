"""The COLT authors' network, of which two complete verifiers have said the whole truth."""

import json
from pathlib import Path

import pytest

from maar.certification.run import make_plan, run

NETS = Path(__file__).parents[3] / "shared" / "nets"

# Of each kind some: by CROWN, by alpha-CROWN or open, broken with ease and with effort,
# misclassified.
INDICES = [*range(12), 18, 62, 65, 115, 149, 151, 247, 321, 340, 359, 445, 542]


@pytest.mark.data
@pytest.mark.skipif(not NETS.exists(), reason="colt_mnist_0.1.onnx is not in ../shared/nets")
def test_no_verdict_contradicts_the_truth(mnist, tmp_path):
    pytest.importorskip("onnx")
    from maar.exchange.onnx_in import read_onnx

    net = read_onnx(NETS / "colt_mnist_0.1.onnx", mean=[0.1307], std=[0.3081])
    truth = json.loads((NETS / "colt_mnist_0.1.verdicts.json").read_text())
    tally = run(make_plan(net, mnist, 0.1, indices=INDICES), tmp_path, workers=1)
    found = {r["index"]: r for r in map(json.loads, (tmp_path / "verdicts.jsonl").open())}
    for index in INDICES:
        kinds = [kind for kind in ("misclassified", "falsified") if index in truth[kind]]
        (expected,) = kinds or ["verified"]
        assert found[index]["verdict"] in (expected, "unknown"), found[index]
        easy = index not in truth["verified_not_by_crown"]
        assert (found[index]["by"] == "crown") == (expected == "verified" and easy)
    assert tally.counts["error"] == 0
    assert tally.counts["misclassified"] == 2
    assert tally.counts["falsified"] >= 4
    assert found[65]["by"] == found[149]["by"] == "alpha_crown"
