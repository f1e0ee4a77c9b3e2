"""Odd but valid ONNX files: what is verified holds for the numbers in the file.

Numbers derived from a file's numbers (a BatchNorm's scale, Gemm's factors) once were rounded
silently. Each file here is read, bounded by every sound domain and compared with the same file in
rational numbers, which `onnx_truth` computes without maar's reader; or it is refused by name.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from maar.certification import network
from maar.certification.network import Network
from maar.core.errors import UsageError
from maar.domains import affine, interval
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Corners, margins
from maar.domains.crown import Crown
from maar.domains.graph import compile_network
from maar.domains.interval import Interval
from maar.domains.zonotope import Zonotope
from maar.exchange import onnx_operators
from maar.exchange.onnx_in import read_onnx

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import onnx_truth  # noqa: E402  (needs onnx)

BOUNDS = [
    Interval(True),
    Crown(rounding=True),
    Crown("interval", True),
    Zonotope(rounding=True),
    AlphaCrown(steps=2, rounding=True),
]


RUNTIME_ERRORS = tuple(
    error
    for error in vars(ort.capi.onnxruntime_pybind11_state).values()
    if isinstance(error, type) and issubclass(error, Exception)
)


class File:
    """A model under construction: `op` appends a node and gives the name of its output."""

    def __init__(self, *shape: int) -> None:
        self.nodes, self.tensors, self.shape = [], [], shape

    def op(self, kind: str, *inputs: str | np.ndarray, **attributes) -> str:
        names = []
        for value in inputs:
            if not isinstance(value, str):
                array = np.asarray(value, dtype=np.float32)
                value = f"c{len(self.tensors)}"
                self.tensors.append(onnx.numpy_helper.from_array(array, value))
            names.append(value)
        name = f"v{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, names, [name], name=name, **attributes))
        return name

    def model(self, output: str) -> onnx.ModelProto:
        kind = onnx.TensorProto.FLOAT
        x = onnx.helper.make_tensor_value_info("x", kind, ["batch", *self.shape])
        y = onnx.helper.make_tensor_value_info(output, kind, None)
        graph = onnx.helper.make_graph(self.nodes, "odd", [x], [y], self.tensors)
        opset = [onnx.helper.make_opsetid("", 13)]
        model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
        # What a file holds: attributes as float32.
        return onnx.load_model_from_string(model.SerializeToString())


def read(model: onnx.ModelProto, folder) -> nn.Sequential:
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return read_onnx(path)


def corners(lb: np.ndarray, ub: np.ndarray) -> list[np.ndarray]:
    """Return corners of a box (all of them up to 16) and its middle, as Fractions."""
    ends = (onnx_truth.rational(side).reshape(-1) for side in (lb, ub))
    flat = list(zip(*ends, strict=True))
    if len(flat) <= 4:
        chosen = list(itertools.product(*flat))
    else:
        rng = np.random.default_rng(len(flat))
        chosen = [
            [pair[k] for pair, k in zip(flat, bits, strict=True)]
            for bits in rng.integers(0, 2, (8, len(flat)))
        ]
    chosen.append([(a + b) / 2 for a, b in flat])
    return [np.array(point, dtype=object).reshape(lb.shape) for point in chosen]


def check(model: onnx.ModelProto, net: nn.Sequential, lb: np.ndarray, ub: np.ndarray) -> int:
    """Assert that no sound bound excludes the file's own values; return how many were compared."""
    truth = [onnx_truth.run(model, x) for x in corners(lb, ub)]
    box = Corners(torch.from_numpy(lb)[None], torch.from_numpy(ub)[None])
    C = margins(torch.tensor([0]), len(truth[0]))
    rows = [[z[0] - z[k] for k in range(1, len(z))] for z in truth]
    compared = 0
    for dtype in (torch.float32, torch.float64):
        graph = compile_network(net, lb.shape, dtype)
        for bound in BOUNDS:
            with torch.no_grad():
                result = bound(graph, box, C)
            for value in rows:
                for k, exact in enumerate(value):
                    low, high = float(result.lb[0, k]), float(result.ub[0, k])
                    assert not low > exact, (bound, dtype, low, float(exact))
                    assert not high < exact, (bound, dtype, high, float(exact))
                    compared += 1
    return compared


# ---------------------------------------------------------------- each case once


def one_feature(kind: str, *parts, alpha: float = 1.0, **attributes) -> onnx.ModelProto:
    """x -> BatchNorm (or Gemm) -> Gemm onto two classes."""
    file = File(1)
    if kind == "Gemm":
        value = file.op("Gemm", "x", *parts, transB=1, alpha=alpha, **attributes)
    else:
        value = file.op(kind, "x", *parts, **attributes)
    value = file.op("Gemm", value, [[1.0], [-1.0]], [0.0, 0.0], transB=1)
    return file.model(value)


ONE = np.ones((1,), np.float32)
BOX = np.float32([0.25]), np.float32([0.75])


def test_a_scale_that_overflows_on_the_way_is_enclosed(tmp_path):
    huge = np.float32(3e38)
    model = one_feature(
        "BatchNormalization", ONE * 1e19, -ONE * 0.2, ONE * 0, ONE * huge, epsilon=float(huge)
    )
    assert check(model, read(model, tmp_path), *BOX)


def test_a_variance_that_cancels_is_enclosed(tmp_path):
    eps = np.float32(1e-5)
    for steps in (1, 2, 7):
        var = -eps
        for _ in range(steps):
            var = np.nextafter(var, np.float32(0))
        model = one_feature(
            "BatchNormalization", ONE * 1e-6, -ONE * 0.02, ONE * 0.3, ONE * var, epsilon=float(eps)
        )
        assert check(model, read(model, tmp_path), *BOX)


def test_a_module_whose_eps_is_no_float32():
    """eps = 1e-5 as a double, var just above -1e-5: float32 arithmetic is off by half."""
    net = nn.Sequential(nn.BatchNorm1d(1, eps=1e-5), nn.Linear(1, 2)).eval()
    with torch.no_grad():
        net[0].running_var.fill_(float(np.nextafter(np.float32(-1e-5), np.float32(0))))
        net[0].weight.fill_(1e-6)
        net[1].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        net[1].bias.zero_()
    variance = Fraction(float(net[0].running_var)) + Fraction(1e-5)
    slope = 2 * Fraction(net[0].weight.item()) / onnx_truth.root(variance)
    box = Corners(torch.tensor([[0.25]]), torch.tensor([[0.75]]))
    for bound in BOUNDS:
        with torch.no_grad():
            result = bound(compile_network(net, (1,)), box, margins(torch.tensor([0]), 2))
        assert Fraction(float(result.lb)) <= slope / 4
        assert Fraction(float(result.ub)) >= slope * 3 / 4


@pytest.mark.parametrize(
    ("scale", "var", "eps", "words"),
    [
        (2.4e-44, 1.0, 0.0, ["layer 0", "BatchNorm1d", "scale", "channel 0", "normal range"]),
        (1e-30, 1e30, 0.0, ["scale", "1e-45", "normal range"]),
        (1e38, 1e-10, 0.0, ["scale", "1e+43", "normal range"]),
        (1.0, -1.0, 1e-5, ["running_var + eps", "-0.99999", "> 0"]),
        (1.0, 0.0, 0.0, ["running_var + eps", "0", "> 0"]),
    ],
)
def test_a_scale_out_of_range_is_refused_by_name(tmp_path, scale, var, eps, words):
    model = one_feature("BatchNormalization", ONE * scale, ONE * 0, ONE * 0, ONE * var, epsilon=eps)
    net = read(model, tmp_path)
    box = Corners(torch.tensor([[0.25]]), torch.tensor([[0.75]]))
    asks = [lambda: Network(net, (1,))]
    asks += [lambda b=b: b(compile_network(net, (1,)), box) for b in BOUNDS]
    for ask in asks:
        with pytest.raises(UsageError) as caught:
            ask()
        assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("std", [1e-40, 2e38])
def test_a_deviation_out_of_range_is_refused_by_name(tmp_path, std):
    file = File(1)
    value = file.op("Gemm", file.op("Div", "x", ONE * std), [[1.0], [-1.0]], transB=1)
    with pytest.raises(UsageError, match=r"layer 0 \(Normalize\): the scale of channel 0"):
        Network(read(file.model(value), tmp_path), (1,))


def test_a_scale_of_zero_is_no_error(tmp_path):
    model = one_feature("BatchNormalization", ONE * 0, ONE * 0.5, ONE, ONE, epsilon=0.0)
    assert check(model, read(model, tmp_path), *BOX)


def test_a_missing_epsilon_is_the_standards_float32(tmp_path):
    model = one_feature("BatchNormalization", ONE, ONE * 0, ONE * 0, ONE * 1e-6)
    net = read(model, tmp_path)
    assert net[0].eps == float(np.float32(1e-5)) != 1e-5
    assert check(model, net, *BOX)


@pytest.mark.parametrize(
    ("alpha", "weight"),
    [(1e-25, 1e-25), (0.1, 0.3), (3e38, 3e38), (1e-45, 1.3), (1e-45, 1.0), (0.5, 0.7)],
)
def test_a_factor_of_gemm_is_not_rounded(tmp_path, alpha, weight):
    model = one_feature("Gemm", [[weight]], alpha=alpha)
    net = read(model, tmp_path)
    layers = [type(layer).__name__ for layer in net]
    exact = Fraction(float(np.float32(alpha))) * Fraction(float(np.float32(weight)))
    if layers == ["Linear", "Linear"]:
        assert Fraction(float(net[0].weight.detach())) == exact
    else:
        assert layers == ["Linear", "BatchNorm1d", "Linear"]
    if (alpha, weight) == (1e-45, 1.3):
        with pytest.raises(UsageError, match="normal range"):
            Network(net, (1,))
        return
    Network(net, (1,))
    assert check(model, net, *BOX)


def test_a_margin_below_float32s_rounding_is_not_turned_round(tmp_path):
    """alpha W is off by u in float32: enough to turn a small margin round."""
    alpha, weight = np.float32(0.1), np.float32(0.7)
    rounded = float(alpha * weight)
    exact = Fraction(float(alpha)) * Fraction(float(weight))
    # A second logit between the two makes the sign depend on the rounding.
    between = np.float32(rounded)
    file = File(1)
    value = file.op("Gemm", "x", [[weight]], transB=1, alpha=float(alpha))
    value = file.op("Gemm", value, [[1.0], [0.0]], [0.0, between], transB=1)
    model = file.model(value)
    point = np.float32([1.0])
    truth = onnx_truth.run(model, onnx_truth.rational(point))
    assert truth[0] - truth[1] == exact - Fraction(float(between)) != 0
    assert check(model, read(model, tmp_path), point, point)


@pytest.mark.parametrize("beta", [0.1, 3.0, 1e-10])
def test_a_factor_of_gemms_bias_is_not_rounded(tmp_path, beta):
    file = File(2)
    weight, bias = np.float32([[0.3, -0.2], [0.1, 0.4]]), np.float32([0.7, -0.9])
    model = file.model(file.op("Gemm", "x", weight, bias, transB=1, beta=beta))
    net = read(model, tmp_path)
    lb, ub = np.float32([0.2, 0.1]), np.float32([0.4, 0.3])
    assert check(model, net, lb, ub)
    x = np.random.default_rng(0).random((5, 2), dtype=np.float32)
    with torch.no_grad():
        np.testing.assert_allclose(net(torch.from_numpy(x)).numpy(), runtime(model, x), 1e-5)


@pytest.mark.parametrize("beta", [1e-30, 3e38])
def test_a_product_that_two_float32_numbers_cannot_hold_is_refused(tmp_path, beta):
    file = File(1)
    bias = np.float32([1.1e-20, 1.1e3])
    model = file.model(file.op("Gemm", "x", [[1.0], [2.0]], bias, transB=1, beta=beta))
    with pytest.raises(UsageError, match=r"beta = .* leaves the range of float32"):
        read(model, tmp_path)


@pytest.mark.parametrize("kind", ["Conv", "AveragePool"])
@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_with_a_kernel_smaller_than_the_stride_is_refused(tmp_path, kind, auto):
    file = File(1, 5, 5)
    weights = [np.ones((1, 1, 2, 1), np.float32)] if kind == "Conv" else []
    value = file.op(kind, "x", *weights, kernel_shape=[2, 1], strides=[2, 2], auto_pad=auto)
    with pytest.raises(UsageError, match=r"kernel \[2, 1\] smaller than the strides \[2, 2\]"):
        read(file.model(file.op("Flatten", value)), tmp_path)


# ---------------------------------------------------------------- thousands of files


def runtime(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})[0]


class Odd:
    """A random file: ordinary layers, in which a few numbers are extreme."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.extreme = self.rng.random() < 0.6

    def number(self, *shape: int) -> np.ndarray:
        """Ordinary numbers; in an extreme file some are of any magnitude."""
        values = self.rng.standard_normal(shape)
        if self.extreme:
            wild = self.rng.random(shape) < 0.15
            powers = self.rng.uniform(-45, 38, shape)
            with np.errstate(over="ignore"):
                values = np.where(wild, values * 10.0**powers, values)
        return np.clip(values, -3e38, 3e38).astype(np.float32)

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def factor(self) -> float:
        if self.extreme and self.rng.random() < 0.3:
            return float(np.clip(10.0 ** self.rng.uniform(-40, 38), 1e-45, 3e38))
        return self.pick(1.0, 0.5, 0.1, -0.3, 3.0, 0.0)

    def batch_norm(self, file: File, value: str, channels: int) -> str:
        var, weight, options = np.abs(self.number(channels)), self.number(channels), {}
        if self.extreme and self.rng.random() < 0.2:
            # var + eps leaves float32, its root comes back
            var = self.rng.uniform(1e38, 3e38, channels).astype(np.float32)
            weight = (1e19 * self.rng.standard_normal(channels)).astype(np.float32)
            options["epsilon"] = float(np.float32(3e38))
        elif self.rng.random() < 0.4:
            eps = self.pick(1e-5, 1e-3, 1e-12, 0.0, 1e-38)
            options["epsilon"] = float(np.float32(eps))
            if self.rng.random() < 0.2:
                var[0] = np.nextafter(-np.float32(eps), np.float32(1))
        return file.op(
            "BatchNormalization", value, weight, self.number(channels),
            self.number(channels), var, **options,
        )  # fmt: skip

    def gemm(self, file: File, value: str, features: int, outputs: int) -> str:
        transposed = self.pick(0, 1)
        shape = (outputs, features) if transposed else (features, outputs)
        parts = [self.number(*shape)]
        if self.rng.random() < 0.8:
            parts.append(self.number(*self.pick((outputs,), (1, outputs), (1,))))
        options = {} if self.rng.random() < 0.3 else {"alpha": self.factor()}
        options |= {} if self.rng.random() < 0.3 else {"beta": self.factor()}
        return file.op("Gemm", value, *parts, transB=transposed, **options)

    def convolution(self, file: File, value: str, shape: tuple[int, ...]) -> str:
        kernel = [int(self.rng.integers(1, 4)) for _ in range(2)]
        strides = [int(self.rng.integers(1, 3)) for _ in range(2)]
        options = {"kernel_shape": kernel, "strides": strides}
        auto = self.pick("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
        if auto == "NOTSET":
            options["pads"] = [int(self.rng.integers(0, 2)) for _ in range(4)]
        else:
            options["auto_pad"] = auto
        if self.rng.random() < 0.3:
            return file.op("AveragePool", value, count_include_pad=1, **options)
        if self.rng.random() < 0.3:
            options["dilations"] = [int(self.rng.integers(1, 3)) for _ in range(2)]
        group = self.pick(1, shape[0])
        parts = [self.number(2 * shape[0], shape[0] // group, *kernel)]
        if self.rng.random() < 0.5:
            parts.append(self.number(2 * shape[0]))
        return file.op("Conv", value, *parts, group=group, **options)

    def build(self) -> tuple[onnx.ModelProto, tuple[int, ...]]:
        image = self.rng.random() < 0.4
        shape = (self.pick(1, 2), 3, 4) if image else (self.pick(1, 2, 3),)
        file, value, size = File(*shape), "x", shape
        if self.rng.random() < 0.3:
            kind = self.pick("Add", "Sub", "Mul", "Div")
            constant = self.number(size[0], *[1] * (len(size) - 1))
            value = file.op(kind, value, np.abs(constant) if kind == "Div" else constant)
        if image:
            value = self.convolution(file, value, size)
            size = self.measured(file, value)
            if self.rng.random() < 0.5:
                value = self.batch_norm(file, value, size[0])
            value = file.op("Relu", value)
            value, size = file.op("Flatten", value), (int(np.prod(size)),)
        elif self.rng.random() < 0.7:
            value = self.batch_norm(file, value, size[0])
        for _ in range(self.pick(0, 1, 2)):
            value, size = self.gemm(file, value, size[0], 3), (3,)
            if self.rng.random() < 0.4:
                value = self.batch_norm(file, value, 3)
            value = file.op("Relu", value)
        return file.model(self.gemm(file, value, size[0], 2)), shape

    def measured(self, file: File, value: str) -> tuple[int, ...]:
        """The shape of a value, from onnxruntime."""
        return runtime(file.model(value), np.zeros((1, *file.shape), np.float32)).shape[1:]


def try_file(seed: int, folder) -> str:
    """Build, read, compare; return what happened."""
    odd = Odd(seed)
    try:
        model, shape = odd.build()
    except RUNTIME_ERRORS:  # a window too large, a dilated auto_pad
        return "refused by onnxruntime"
    try:
        net = read(model, folder)
        Network(net, shape)
    except UsageError:
        return "refused"
    lb = odd.rng.random(shape).astype(np.float32)
    ub = np.minimum(lb + np.float32(10.0 ** odd.rng.uniform(-6, 0)), np.float32(1))
    check(model, net, lb, ub)
    with torch.no_grad():
        mine = net.double()(torch.from_numpy(lb)[None].double()).numpy()
    theirs = runtime(model, lb[None])
    if odd.extreme:
        return "compared in rational numbers"
    scale = max(1.0, float(np.abs(mine).max()))
    np.testing.assert_allclose(theirs, mine, rtol=0, atol=1e-4 * scale)
    return "compared in rational numbers and with onnxruntime"


@pytest.mark.parametrize("start", range(0, 240, 60))
def test_random_files(tmp_path, start):
    outcomes = [try_file(seed, tmp_path) for seed in range(start, start + 60)]
    assert sum("compared" in outcome for outcome in outcomes) >= 20
    assert "refused" in outcomes


def old_scale(monkeypatch):
    """A scale in float32, as it once was."""
    monkeypatch.setattr(interval, "enclosed_scale", lambda op, dtype, path: affine.scale_of(op))
    monkeypatch.setattr(network, "enclosed_scale", lambda op, dtype, path: None)


def old_product(monkeypatch):
    """alpha * W in float32, as it once was."""
    monkeypatch.setattr(onnx_operators, "_same", lambda exact, other: True)


def other_epsilon(monkeypatch):
    real = onnx_operators._batch_norm
    monkeypatch.setattr(
        onnx_operators, "_batch_norm", lambda node, x, eps: real(node, x, 1.001 * eps)
    )


@pytest.mark.parametrize("bug", [old_scale, old_product, other_epsilon])
def test_random_files_catch(bug, monkeypatch, tmp_path):
    bug(monkeypatch)

    def caught(seed: int) -> bool:
        try:
            try_file(seed, tmp_path)
        except AssertionError:
            return True
        return False

    assert any(caught(seed) for seed in range(240))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 6000, 500))
def test_thousands_of_random_files(tmp_path, start):
    outcomes = [try_file(seed, tmp_path) for seed in range(start, start + 500)]
    assert sum("compared" in outcome for outcome in outcomes) >= 200
