"""--mean and --std for a network that normalises by itself are warned of; where needed, not."""

import copy
import re

import pytest
from torch import nn

from maar.cli.main import main

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
NUMBERS = ("--mean", "0.1307", "--std", "0.3081")


@pytest.fixture
def files(noisily_trained, tmp_path, monkeypatch):
    """own.onnx normalises by itself, bare.onnx takes the normalised image."""
    from maar.exchange.onnx_out import write_onnx

    monkeypatch.chdir(tmp_path)
    net = copy.deepcopy(noisily_trained)
    write_onnx(net, tmp_path / "own.onnx", (1, 28, 28))
    write_onnx(nn.Sequential(*net[1:]), tmp_path / "bare.onnx", (1, 28, 28))
    return tmp_path


COMMANDS = {
    "certify": ("--eps", "0.01", "--limit", "2", "--verifiers", "crown", "--out", "store"),
    "radius": ("--limit", "1", "--verifiers", "crown", "--tolerance", "0.2", "--out", "radii"),
    "evaluate": ("--eps", "0.01", "--limit", "2", "--layers", "0", "--steps", "1"),
}


def run(capsys, command, network, *words):
    words = [command, network, "--data", "mnist_mini", *COMMANDS[command], *words]
    assert main(words) == 0
    return capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_numbers_that_the_network_does_not_need(files, capsys, command):
    err = run(capsys, command, "own.onnx", "--mean", "0.5", "--std", "0.1")
    assert err.count("\n") == 1
    assert err.startswith("maar: warning: own.onnx is right on ")
    assert "% of the first 300 test images with --mean and --std, on " in err
    assert err.endswith("% without them: it may normalise by itself\n")
    with_them, without = map(float, re.findall(r"on ([\d.]+) %", err))
    assert without > 85 > with_them + 5


@pytest.mark.parametrize("command", COMMANDS)
def test_numbers_that_the_network_needs(files, capsys, command):
    assert run(capsys, command, "bare.onnx", *NUMBERS) == ""


def test_no_numbers_no_warning(files, capsys):
    assert run(capsys, "certify", "own.onnx") == ""


def test_an_audit_warns_too(files, capsys):
    run(capsys, "certify", "own.onnx", "--mean", "0.5", "--std", "0.1")
    assert main(["audit", "store", "--workers", "1"]) == 0
    assert capsys.readouterr().err.startswith("maar: warning: own.onnx is right on ")
