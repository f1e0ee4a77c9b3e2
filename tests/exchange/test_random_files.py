"""Random ONNX graphs over every operator and its attributes, against onnxruntime."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

from maar.core.errors import UsageError
from maar.exchange.onnx_in import read_onnx
from maar.exchange.onnx_table import OPERATORS

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

MOST = 300
"""Numbers of one value."""


class Maker:
    """A graph that grows by random nodes, each run by onnxruntime before the next."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        rank = int(self.rng.integers(0, 4))
        self.shape = (2 * self.int(1, 2), *(self.int(2, 5) for _ in range(rank)))
        self.nodes, self.tensors = [], []
        self.values = {"x": (1, *self.shape)}
        self.used: Counter[str] = Counter()

    def int(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def pick(self, *options):
        return options[self.rng.integers(len(options))]

    def ints(self, count: int, low: int, high: int) -> list[int]:
        return [self.int(low, high) for _ in range(count)]

    def number(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def constant(self, array) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def near(self, shape) -> np.ndarray:
        """A constant that broadcasts against a value."""
        cut = self.int(0, len(shape))
        return self.number(*(self.pick(1, n) for n in shape[cut:]))

    def model(self, output: str) -> bytes:
        ends = [
            helper.make_tensor_value_info("x", 1, [1, *self.shape]),
            helper.make_tensor_value_info(output, 1, None),
        ]
        graph = helper.make_graph(self.nodes, "g", ends[:1], ends[1:], self.tensors)
        opset = [helper.make_opsetid("", 13)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()

    def step(self) -> None:
        """Try one node; leave it out where onnxruntime refuses it."""
        names = list(self.values)
        value = self.pick(names[-1], names[-1], self.pick(*names))
        kind = self.pick(*KINDS)
        nodes, tensors = len(self.nodes), len(self.tensors)
        try:
            inputs, attributes, outputs = KINDS[kind](self, value, self.values[value])
            inputs = [each if isinstance(each, str) else self.constant(each) for each in inputs]
            made = [f"v{nodes}_{k}" for k in range(outputs)]
            name = kind.split()[0]
            self.nodes.append(helper.make_node(name, inputs, made, name=made[0], **attributes))
            shapes = [
                run(self.model(each), np.zeros((1, *self.shape), np.float32)) for each in made
            ]
            if any(not 0 < out.size <= MOST or not np.isfinite(out).all() for out in shapes):
                raise ValueError
        except Exception:  # of classes that only onnxruntime's C++ code knows
            del self.nodes[nodes:], self.tensors[tensors:]
            return
        self.used[name] += 1
        self.values |= {each: out.shape for each, out in zip(made, shapes, strict=True)}


def run(model: bytes, x: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def _plain(m, v, s):
    return [v], {}, 1


def _conv(m, v, s):
    rank, groups = len(s) - 2, m.pick(*(g for g in (1, 2) if s[1] % g == 0))
    kernel = m.ints(rank, 1, 3)
    attributes = {"strides": m.ints(rank, 1, 2), "group": groups}
    if m.rng.random() < 0.3:
        attributes["auto_pad"] = m.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    else:
        attributes |= {"pads": m.ints(2 * rank, 0, 2), "dilations": m.ints(rank, 1, 2)}
    out = groups * m.int(1, 2)
    weight = m.number(out, s[1] // groups, *kernel)
    bias = [m.number(out)] if m.rng.random() < 0.5 else []
    return [v, weight, *bias], attributes, 1


def _conv_transpose(m, v, s):
    rank, groups = len(s) - 2, m.pick(*(g for g in (1, 2) if s[1] % g == 0))
    strides = m.ints(rank, 1, 2)
    out = m.int(1, 2)
    attributes = {
        "strides": strides,
        "pads": m.ints(2 * rank, 0, 1),
        "output_padding": [m.int(0, n - 1) for n in strides],
        "dilations": m.ints(rank, 1, 2),
        "group": groups,
    }
    bias = [m.number(out * groups)] if m.rng.random() < 0.5 else []
    return [v, m.number(s[1], out, *m.ints(rank, 1, 3)), *bias], attributes, 1


def _pool(m, v, s):
    rank = len(s) - 2
    attributes = {"kernel_shape": m.ints(rank, 1, 3), "strides": m.ints(rank, 1, 2)}
    attributes |= {"pads": m.ints(2 * rank, 0, 1)}
    return [v], attributes, 1


def _average(m, v, s):
    inputs, attributes, count = _pool(m, v, s)
    return inputs, attributes | {"count_include_pad": m.int(0, 1)}, count


def _maximum(m, v, s):
    inputs, attributes, count = _pool(m, v, s)
    dilations = m.ints(len(s) - 2, 1, 2)
    return inputs, attributes | {"ceil_mode": m.int(0, 1), "dilations": dilations}, count


def _gemm(m, v, s):
    out, transposed = m.int(1, 4), m.int(0, 1)
    weight = m.number(out, s[1]) if transposed else m.number(s[1], out)
    alpha, beta = m.pick(1.0, 0.5, 0.3), m.pick(1.0, -2.0, 0.7)
    bias = [m.number(*m.pick((out,), (1, out), (1,)))] if m.rng.random() < 0.7 else []
    return [v, weight, *bias], {"alpha": alpha, "beta": beta, "transB": transposed}, 1


def _matmul(m, v, s):
    if m.rng.random() < 0.5:
        return [v, m.number(s[-1], m.int(1, 4))], {}, 1
    return [m.number(m.int(1, 4), s[-2]), v], {}, 1


def _with_constant(m, v, s):
    constant = m.near(s)
    constant = np.sign(constant) * (0.3 + np.abs(constant))
    return ([v, constant] if m.rng.random() < 0.6 else [constant, v]), {}, 1


def _by_constant(m, v, s):
    return [v, m.pick(1, -1) * (np.float32(0.3) + np.abs(m.near(s)))], {}, 1


def _of_two(m, v, s):
    other = m.pick(*m.values)
    return [v, other], {}, 1


def _batch_norm(m, v, s):
    c = s[1]
    parts = [m.number(c), m.number(c), m.number(c), 0.2 + np.abs(m.number(c))]
    return [v, *parts], {"epsilon": m.pick(1e-5, 1e-2)}, 1


def _transpose(m, v, s):
    return [v], {"perm": [0, *(1 + m.rng.permutation(len(s) - 1)).tolist()]}, 1


def _reshape(m, v, s):
    size = math.prod(s)
    first = m.pick(*(d for d in range(1, size + 1) if size % d == 0))
    return [v, np.array(m.pick([1, first, -1], [0, -1], [first, -1], [1, 1, -1, first]))], {}, 1


def _slice(m, v, s):
    axis = m.int(0, len(s) - 1)
    step = m.pick(1, 2, -1)
    start, end = m.pick((0, 100), (1, -1), (-2, 100)) if step > 0 else (-1, -100)
    parts = [[start], [end], [axis], [step]]
    return [v, *(np.array(part) for part in parts)], {}, 1


def _split(m, v, s):
    axis = m.int(1, len(s) - 1)
    sizes = [m.int(1, s[axis] - 1)]
    return [v, np.array([*sizes, s[axis] - sizes[0]])], {"axis": axis}, 2


def _gather(m, v, s):
    axis = m.int(0, len(s) - 1)
    index = m.rng.integers(0, s[axis], m.pick((), (2,), (3,), (2, 2)))
    return [v, np.asarray(index)], {"axis": axis}, 1


def _pad(m, v, s):
    pads = [m.int(0, 1) if axis else 0 for axis in range(len(s))] * 2
    return [v, np.array(pads)], {"mode": m.pick("constant", "edge", "reflect")}, 1


def _concat(m, v, s):
    return [v, m.pick(*m.values)], {"axis": m.int(0, len(s) - 1)}, 1


def _reduce_axes(m, v, s):
    axes = m.rng.permutation(len(s) - 1)[: m.int(1, len(s) - 1)] + 1
    return [v], {"axes": axes.tolist(), "keepdims": m.int(0, 1)}, 1


def _reduce_sum(m, v, s):
    inputs, attributes, count = _reduce_axes(m, v, s)
    return [*inputs, np.array(attributes.pop("axes"))], attributes, count


def _squeeze(m, v, s):
    return [v, np.array([axis for axis, n in enumerate(s) if n == 1 and axis])], {}, 1


def _unsqueeze(m, v, s):
    return [v, np.array([m.int(0, len(s))])], {}, 1


def _resize(m, v, s):
    factors = np.array([1, 1, *m.ints(len(s) - 2, 1, 2)], np.float32)
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return [v, "", factors], {"mode": "nearest", **how}, 1


def _clip(m, v, s):
    low, high = np.float32(-m.rng.random()), np.float32(m.rng.random())
    return m.pick([v, low, high], [v, low], [v, "", high]), {}, 1


KINDS = {
    **dict.fromkeys(("Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Identity", "Dropout"), _plain),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _plain),
    "Flatten": lambda m, v, s: ([v], {"axis": m.int(0, len(s))}, 1),
    "Cast": lambda m, v, s: ([v], {"to": 1}, 1),
    "LeakyRelu": lambda m, v, s: ([v], {"alpha": m.pick(0.01, 0.3, 1.5)}, 1),
    "HardSigmoid": lambda m, v, s: ([v], {"alpha": m.pick(0.2, 0.5), "beta": 0.4}, 1),
    "PRelu": lambda m, v, s: (
        [v, m.number(*m.pick(s[1:], (1,), (s[1], *[1] * (len(s) - 2))))],
        {},
        1,
    ),
    "Softmax": lambda m, v, s: ([v], {"axis": m.int(1, len(s) - 1)}, 1),
    "LogSoftmax": lambda m, v, s: ([v], {"axis": -1}, 1),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "AveragePool": _average,
    "MaxPool": _maximum,
    "Gemm": _gemm,
    "MatMul": _matmul,
    **dict.fromkeys(("Add", "Sub", "Mul", "Max", "Min"), _with_constant),
    "Div": _by_constant,
    **{f"{name} two": _of_two for name in ("Add", "Sub", "Mul", "Max", "Min")},
    "BatchNormalization": _batch_norm,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Pad": _pad,
    "Concat": _concat,
    "Expand": lambda m, v, s: ([v, np.array([m.pick(n, 2) if n == 1 else n for n in s])], {}, 1),
    "Tile": lambda m, v, s: ([v, np.array([1, *m.ints(len(s) - 1, 1, 2)])], {}, 1),
    **dict.fromkeys(("ReduceMean", "ReduceMax"), _reduce_axes),
    "ReduceSum": _reduce_sum,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Resize": _resize,
    "DepthToSpace": lambda m, v, s: ([v], {"blocksize": 2, "mode": m.pick("DCR", "CRD")}, 1),
    "Clip": _clip,
}
NOT_MADE = {"Constant", "ConstantOfShape", "Range", "Shape", "Upsample", "Reciprocal"}
"""Of constants, of older files, or infinite at the zeros that shapes are found with."""


def try_graph(seed: int, path) -> tuple[str, Counter[str]]:
    """Make a graph of eight nodes, read it, and compare; what happened, and what was in it."""
    maker = Maker(seed)
    for _ in range(40):
        if len(maker.nodes) < 8:
            maker.step()
    last = list(maker.values)[-1]
    if last == "x":
        return "empty", maker.used
    size = math.prod(maker.values[last])
    maker.nodes.append(helper.make_node("Reshape", [last, maker.constant([1, size])], ["flat"]))
    maker.nodes.append(
        helper.make_node("MatMul", ["flat", maker.constant(maker.number(size, 3))], ["y"])
    )
    model = maker.model("y")
    path.write_bytes(model)
    try:
        net = read_onnx(path)
    except UsageError as error:
        return f"refused: {str(error)[-150:]}", maker.used
    for _ in range(2):
        x = maker.rng.standard_normal((1, *maker.shape)).astype(np.float32)
        expected = run(model, x)
        with torch.no_grad():
            got = net(torch.from_numpy(x)).numpy()
        if not np.isfinite(expected).all():
            return "not finite", maker.used
        assert got.shape == expected.shape
        scale = max(1.0, float(np.abs(expected).max()))
        assert np.abs(got - expected).max() <= 1e-5 * scale * max(1, size / 20), seed
    return "agrees", maker.used


def outcomes(seeds, path) -> tuple[Counter[str], Counter[str]]:
    results, used = Counter(), Counter()
    for seed in seeds:
        result, kinds = try_graph(seed, path)
        results[result.split(":")[0]] += 1
        used += kinds
    return results, used


def test_random_graphs_agree_with_onnxruntime(tmp_path):
    results, used = outcomes(range(60), tmp_path / "net.onnx")
    assert results["agrees"] >= 45, results
    assert len(used) >= 25


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 11000, 1000))
def test_thousands_agree_with_onnxruntime(tmp_path, start):
    results, used = outcomes(range(start, start + 1000), tmp_path / "net.onnx")
    assert results["agrees"] >= 750, results
    assert set(used) == set(OPERATORS) - NOT_MADE
