"""Odd but valid ONNX graphs: residual sums, constants beside them, shared values, and decisions.

`test_odd_files` has odd numbers in chains of layers; here the graph is odd too. Each file is
bounded by every sound domain, and a property of it is decided: no decision and no witness may
contradict the file in rational numbers.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from maar.certification.network import Network
from maar.certification.properties.decide import decide
from maar.certification.properties.question import Witness
from maar.core.errors import UsageError
from maar.core.spec import Case, Condition, Property
from maar.exchange import onnx_table

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx_truth  # noqa: E402  (needs onnx)
from test_odd_files import RUNTIME_ERRORS, File, Odd, check, corners, read, runtime  # noqa: E402


class OddGraph(Odd):
    """A random graph whose values are used more than once."""

    def step(self, file: File, value: str, shape: tuple[int, ...]) -> str:
        """One layer that keeps the shape."""
        rank = len(shape)
        kind = self.pick("Relu", "BatchNormalization", "constant", "constant", "Identity", "affine")
        if kind in ("Relu", "Identity"):
            return file.op(kind, value)
        if kind == "BatchNormalization":
            return self.batch_norm(file, value, shape[0])
        if kind == "constant":
            name = self.pick("Add", "Sub", "Mul", "Div")
            size = self.pick((), (1,), (shape[0], *[1] * (rank - 1)))
            constant = self.number(*size)
            constant = np.abs(constant) if name == "Div" else constant
            if name in ("Add", "Mul") and self.rng.random() < 0.5:
                return file.op(name, constant, value)
            return file.op(name, value, constant)
        if rank == 1:
            return file.op("MatMul", value, self.number(shape[0], shape[0]))
        pads = self.pick([1, 1, 1, 1], [2, 0, 0, 2], [0, 1, 2, 1])
        weight = self.number(shape[0], shape[0], 3, 3)
        return file.op("Conv", value, weight, kernel_shape=[3, 3], pads=pads)

    def block(self, file: File, value: str, shape: tuple[int, ...], depth: int) -> str:
        """A sum of two branches, each of which may have blocks of its own."""
        branches = []
        for _ in range(2):
            branch = value
            for _ in range(self.pick(0, 1, 2)):
                inner = depth > 0 and self.rng.random() < 0.3
                make = self.block if inner else lambda f, v, s, _: self.step(f, v, s)
                branch = make(file, branch, shape, depth - 1)
            branches.append(branch)
        return file.op("Add", *branches)

    def build(self) -> tuple[onnx.ModelProto, tuple[int, ...]]:
        image = self.rng.random() < 0.4
        shape = (self.pick(1, 2), 3, 3) if image else (self.pick(1, 2, 3),)
        file, value, size = File(*shape), "x", shape
        for _ in range(self.pick(1, 2)):
            make = self.pick(self.block, lambda f, v, s, _: self.step(f, v, s))
            value = make(file, value, size, 1)
            value = file.op("Relu", value) if self.rng.random() < 0.6 else value
        if image:
            value = file.op("GlobalAveragePool", value) if self.rng.random() < 0.3 else value
            size = (int(np.prod(self.measured(file, value))),)
            value = file.op("Flatten", value)
        if self.rng.random() < 0.5:
            value, size = file.op("Relu", self.gemm(file, value, size[0], 3)), (3,)
        return file.model(self.gemm(file, value, size[0], 2)), shape


def question(odd: Odd, lb: np.ndarray, ub: np.ndarray) -> Property:
    """Return: is a row of random coefficients (exact in float64) at most a number?"""
    rows = odd.pick(1, 1, 2)
    A = odd.rng.standard_normal((rows, 2))
    b = odd.rng.standard_normal(rows) * 10.0 ** odd.rng.uniform(-6, 1)
    sides = [side.reshape(-1).astype(np.float64) for side in (lb, ub)]
    exact = [tuple(map(Fraction, side.tolist())) for side in sides]
    return Property(lb.size, 2, (Case(*sides, *exact, (Condition(A, b, b),)),))


def meets(z: np.ndarray, condition: Condition) -> bool:
    """Return whether the exact output is unsafe."""
    pairs = zip(onnx_truth.rational(condition.A), onnx_truth.rational(condition.b), strict=True)
    return all(row @ z <= b for row, b in pairs)


def check_decision(model: onnx.ModelProto, net, prop: Property, lb, ub) -> str:
    """Assert that the decision does not contradict the file; return it."""
    case = prop.cases[0]
    decision = decide(net, lb.shape, prop, timeout=0.3)
    if decision.verdict == "unsat":
        for x in corners(lb, ub):
            assert not meets(onnx_truth.run(model, x), case.conditions[0]), x
    if decision.verdict == "sat":
        assert isinstance(decision.witness, Witness)
        flat = [Fraction(text) for text in decision.witness.x]
        pairs = zip(flat, case.low, case.high, strict=True)
        assert all(low <= value <= high for value, low, high in pairs)
        x = np.array(flat, dtype=object).reshape(lb.shape)
        assert meets(onnx_truth.run(model, x), case.conditions[0])
    return decision.verdict


def try_graph(seed: int, folder) -> str:
    """Build, read, compare, decide; return what happened."""
    odd = OddGraph(seed)
    try:
        model, shape = odd.build()
        theirs = runtime(model, np.full((1, *shape), 0.5, np.float32))[0]
    except RUNTIME_ERRORS:
        return "refused by onnxruntime"
    try:
        net = read(model, folder)
        Network(net, shape)
    except UsageError:
        return "refused"
    lb = odd.rng.random(shape).astype(np.float32)
    ub = np.minimum(lb + np.float32(10.0 ** odd.rng.uniform(-6, 0)), np.float32(1))
    check(model, net, lb, ub)
    if not odd.extreme:
        with torch.no_grad():
            mine = net.double()(torch.full((1, *shape), 0.5).double())[0].numpy()
        net.float()
        np.testing.assert_allclose(theirs, mine, rtol=0, atol=1e-4 * max(1, np.abs(mine).max()))
    return check_decision(model, net, question(odd, lb, ub), lb, ub)


@pytest.mark.parametrize("start", range(0, 80, 40))
def test_random_graphs(tmp_path, start):
    outcomes = [try_graph(seed, tmp_path) for seed in range(start, start + 40)]
    assert {"refused", "unsat", "sat"} <= set(outcomes)


def test_random_graphs_catch_a_bias_that_leaks(monkeypatch, tmp_path):
    """A constant folded into a layer whose output is used elsewhere too."""
    real = onnx_table.add

    def careless(node):
        node.sole = lambda link: True
        return real(node)

    monkeypatch.setitem(onnx_table.OPERATORS, "Add", careless)

    def caught(seed: int) -> bool:
        try:
            try_graph(seed, tmp_path)
        except AssertionError:
            return True
        return False

    assert any(caught(seed) for seed in range(2000))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 3000, 500))
def test_thousands_of_random_graphs(tmp_path, start):
    outcomes = [try_graph(seed, tmp_path) for seed in range(start, start + 500)]
    assert sum(outcome in ("unsat", "sat") for outcome in outcomes) >= 200
