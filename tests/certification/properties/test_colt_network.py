"""Exported questions about the COLT authors' network, of which the whole truth is known."""

import json
from pathlib import Path

import pytest

from maar.certification.properties.decide import decide

NETS = Path(__file__).parents[4] / "shared" / "nets"


@pytest.mark.data
@pytest.mark.skipif(not NETS.exists(), reason="colt_mnist_0.1.onnx is not in ../shared/nets")
def test_answers_agree_with_the_truth(mnist, tmp_path):
    pytest.importorskip("onnx")
    from maar.exchange.onnx_in import read_with_shape
    from maar.exchange.onnx_out import write_onnx
    from maar.exchange.runtime import onnx_runner
    from maar.exchange.vnnlib import read_vnnlib, write_vnnlib

    net, shape = read_with_shape(NETS / "colt_mnist_0.1.onnx", mean=[0.1307], std=[0.3081])
    write_onnx(net, tmp_path / "net.onnx", shape)
    net, shape = read_with_shape(tmp_path / "net.onnx")
    runner = onnx_runner(tmp_path / "net.onnx")
    truth = json.loads((NETS / "colt_mnist_0.1.verdicts.json").read_text())
    for index in (0, 65, 115, 247, 321):  # 65 needs alpha-CROWN, 321 is misclassified
        x, y = mnist.images("test", [index])[0].numpy(), int(mnist.labels("test", [index])[0])
        write_vnnlib(tmp_path / "p.vnnlib", x, 0.1, y, 10)
        prop = read_vnnlib(tmp_path / "p.vnnlib")
        found = decide(net, shape, prop, timeout=120, runner=runner)
        broken = index in truth["misclassified"] + truth["falsified"]
        assert found.verdict == ("sat" if broken else "unsat")
