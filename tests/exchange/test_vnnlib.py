"""Files of either version, written and read back; instances.csv."""

import gzip
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maar.core.errors import RunError, UsageError
from maar.exchange.instances import Instance, read_instances, write_instances
from maar.exchange.vnnlib import _decimal, read_vnnlib, write_vnnlib

X = np.random.default_rng(0).integers(0, 256, (2, 3, 2)).astype(np.float32) / np.float32(255)
X[0, 0] = (0, 1)  # where the ball is clipped


@pytest.fixture(params=["1.0", "2.0"])
def version(request):
    if request.param == "2.0":
        pytest.importorskip("vnnlib")
    return request.param


@pytest.mark.parametrize("eps", [0.1, 2 / 255, 0.0])
def test_the_very_ball(tmp_path, version, eps):
    path = tmp_path / "p.vnnlib"
    write_vnnlib(path, X, eps, 1, 3, version=version, comment="one line\nand another")
    prop = read_vnnlib(path)
    assert (prop.inputs, prop.outputs) == (12, 3)
    (case,) = prop.cases
    pixels = [Fraction(float(pixel)) for pixel in X.reshape(-1)]
    assert case.low == tuple(max(pixel - Fraction(eps), 0) for pixel in pixels)
    assert case.high == tuple(min(pixel + Fraction(eps), 1) for pixel in pixels)
    found = [condition.A.tolist() for condition in case.conditions]
    assert found == [[[-1, 1, 0]], [[0, 1, -1]]]  # y_1 - y_k <= 0
    assert all(condition.b.tolist() == [0] for condition in case.conditions)


@given(st.floats(-4, 4), st.floats(0, 1))
def test_decimals_are_exact(a, b):
    value = Fraction(a) + Fraction(b)
    text = _decimal(value)
    assert Fraction(text) == value
    assert "e" not in text


def test_a_label_out_of_range(tmp_path):
    with pytest.raises(UsageError, match="label 3 is out of range"):
        write_vnnlib(tmp_path / "p", X, 0.1, 3, 3)


def test_packed(tmp_path):
    path = tmp_path / "p.vnnlib"
    write_vnnlib(path, X, 0.1, 1, 3)
    packed = tmp_path / "q.vnnlib.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for name in ("q.vnnlib.gz", "q.vnnlib"):
        assert read_vnnlib(tmp_path / name).cases[0].low == read_vnnlib(path).cases[0].low


def test_files_that_cannot_be_read(tmp_path):
    path = tmp_path / "p.vnnlib"
    with pytest.raises(UsageError, match="does not exist"):
        read_vnnlib(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not text"):
        read_vnnlib(path)
    path.with_name("q.gz").write_bytes(b"?")
    with pytest.raises(RunError, match="damaged"):
        read_vnnlib(tmp_path / "q.gz")


def test_instances(tmp_path):
    path = tmp_path / "instances.csv"
    instances = [Instance("net.onnx", "a,b.vnnlib", 60), Instance("n.onnx", "c.vnnlib", 0.5)]
    write_instances(path, instances)
    assert read_instances(path) == instances
    path.with_name("i.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_instances(tmp_path / "i.csv.gz") == instances
    path.write_text("./onnx/net.onnx , ./p.vnnlib,116.0\r\n\r\n")
    assert read_instances(path) == [Instance("./onnx/net.onnx", "./p.vnnlib", 116)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no instances"),
        (b"a,b", "instances.csv:1 is not of the form"),
        (b"a,b,1\na,,1", "instances.csv:2 is not of the form"),
        (b"a,b,soon", "instances.csv:1: timeout 'soon'"),
        (b"a,b,-1", "timeout '-1'"),
        (b"a,b,inf", "timeout 'inf'"),
        (b"\xff\xff", "not a CSV file"),
    ],
)
def test_instances_that_cannot_be_read(tmp_path, content, words):
    path = tmp_path / "instances.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        read_instances(path)
