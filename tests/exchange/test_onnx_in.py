"""The ONNX reader against onnxruntime, and one clear line for whatever it cannot read."""

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maar.core.errors import MaarError, RunError, UsageError
from maar.exchange.onnx_in import read_onnx
from maar.exchange.onnx_table import OPERATORS
from maar.networks import Normalize, Residual, make, weights_hash

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

COLT = Path(__file__).parents[3] / "shared" / "nets" / "colt_mnist_0.1.onnx"

RNG = np.random.default_rng(0)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape):
    return RNG.uniform(0.2, 2, shape).astype(np.float32)


class Graph:
    """Builds a model: `g.op("Relu", x)` gives the output's name; arrays become initialisers."""

    def __init__(self, *shape, batch="N", opset=13):
        self.nodes, self.tensors, self.opset = [], [], opset
        self.input = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [batch, *shape])

    def constant(self, value):
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, kind, *inputs, **attributes):
        names = [name if isinstance(name, str) else self.constant(name) for name in inputs]
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [name], name=name, **attributes))
        return name

    def model(self, output):
        out = helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "test", [self.input], [out], self.tensors)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8
        )


def classify(g, x, features, classes=3):
    """Flatten and one fully connected layer, as every network ends."""
    return g.op("Gemm", g.op("Flatten", x), array(classes, features), array(classes), transB=1)


def save(tmp_path, g, output):
    path = tmp_path / "net.onnx"
    path.write_bytes(g.model(output).SerializeToString())
    return path


def session(model):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def agree(net, model, x):
    """Assert that torch and onnxruntime give the same to 1e-5 of the largest output."""
    run = session(model)
    (name,) = (i.name for i in run.get_inputs())
    expected = run.run(None, {name: x})[0]
    with torch.no_grad():
        got = net(torch.from_numpy(x)).numpy()
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1)


# ---- networks that are read


def plain_convs(g):
    x = g.op("Relu", g.op("Conv", "x", array(4, 2, 3, 3), array(4), pads=[1, 1, 1, 1]))
    x = g.op("Conv", x, array(6, 2, 2, 2), group=2, strides=[2, 1], dilations=[1, 2])
    return classify(g, x, 6 * 3 * 4)


def uneven_pads(g):
    x = g.op("Conv", "x", array(3, 2, 3, 2), pads=[0, 1, 2, 0], strides=[2, 2])
    return classify(g, x, 3 * 3 * 3)


def same_upper(g):
    x = g.op("Conv", "x", array(3, 2, 4, 3), auto_pad="SAME_UPPER", strides=[2, 2])
    return classify(g, x, 3 * 3 * 3)


def same_lower(g):
    x = g.op("Conv", "x", array(3, 2, 4, 2), auto_pad="SAME_LOWER", strides=[1, 2])
    return classify(g, x, 3 * 6 * 3)


def valid(g):
    return classify(g, g.op("Conv", "x", array(3, 2, 3, 3), auto_pad="VALID"), 3 * 4 * 4)


def conv_bias_added(g):
    x = g.op("Add", g.op("Conv", "x", array(3, 2, 1, 1)), array(1, 3, 1, 1))
    return classify(g, g.op("Relu", x), 3 * 6 * 6)


def gemm_options(g):
    x = g.op("Gemm", g.op("Flatten", "x"), array(72, 5), array(1, 5), alpha=0.5, beta=-2.0)
    x = g.op("Gemm", g.op("Relu", x), array(4, 5), transB=1)
    return g.op("Gemm", g.op("Relu", x), array(4, 3), np.float32(0.7))


def matmul_add(g):
    x = g.op("Add", g.op("MatMul", g.op("Flatten", "x"), array(72, 5)), array(5))
    return g.op("Add", array(3), g.op("MatMul", g.op("Relu", x), array(5, 3)))


def batch_norms(g):
    x = g.op("Conv", "x", array(4, 2, 3, 3))
    x = g.op("BatchNormalization", x, array(4), array(4), array(4), positive(4), epsilon=1e-3)
    x = g.op("Gemm", g.op("Flatten", g.op("Relu", x)), array(64, 5))
    x = g.op("BatchNormalization", x, array(5), array(5), array(5), positive(5), momentum=0.5)
    return g.op("Gemm", x, array(5, 3))


def pools(g):
    x = g.op("AveragePool", "x", kernel_shape=[2, 3], strides=[2, 1], ceil_mode=1)
    x = g.op("AveragePool", x, kernel_shape=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)
    return classify(g, g.op("GlobalAveragePool", x), 2)


def normalised_by_scalars(g):
    return plain_layers(g, g.op("Div", g.op("Sub", "x", np.float32(0.13)), np.float32(0.3)))


def normalised_per_channel(g):
    x = g.op("Sub", "x", array(1, 2, 1, 1))
    return plain_layers(g, g.op("Div", x, positive(2, 1, 1)))


def scaled_by_mul(g):
    x = g.op("Add", g.op("Mul", array(2, 1, 1), "x"), array(1, 2, 1, 1))
    return plain_layers(g, x)


def plain_layers(g, x):
    return classify(g, g.op("Relu", g.op("Conv", x, array(3, 2, 3, 3), pads=[1] * 4)), 3 * 36)


def scaled_features(g):
    x = g.op("Relu", g.op("Gemm", g.op("Flatten", "x"), array(72, 5)))
    x = g.op("Mul", g.op("Sub", x, array(5)), array(1, 5))
    return g.op("Gemm", x, array(5, 3))


def residual_identity(g):
    x = g.op("Relu", g.op("Conv", "x", array(3, 2, 1, 1)))
    y = g.op("Conv", g.op("Relu", g.op("Conv", x, array(3, 3, 1, 1))), array(3, 3, 1, 1))
    return classify(g, g.op("Relu", g.op("Add", y, x)), 3 * 36)


def residual_shortcut(g):
    y = g.op("Conv", "x", array(3, 2, 3, 3), array(3), strides=[2, 2], pads=[1] * 4)
    y = g.op("Conv", g.op("Relu", y), array(3, 3, 3, 3), pads=[1] * 4)
    x = g.op("Conv", "x", array(3, 2, 1, 1), strides=[2, 2])
    return classify(g, g.op("Relu", g.op("Add", x, y)), 3 * 9)


def residual_nested(g):
    inner = g.op("Add", g.op("Relu", "x"), "x")
    outer = g.op("Add", g.op("Conv", inner, array(2, 2, 1, 1)), "x")
    flat = g.op("Flatten", outer)
    x = g.op("Gemm", flat, array(72, 4))
    x = g.op("Add", g.op("Relu", g.op("Gemm", x, array(4, 4))), x)
    return g.op("Gemm", g.op("Add", x, x), array(4, 3))


def shared_bias(g):
    """The product is used twice: its bias must not leak into the shortcut."""
    x = g.op("MatMul", g.op("Flatten", "x"), array(72, 4))
    y = g.op("Relu", g.op("Add", x, array(4)))
    return g.op("Gemm", g.op("Add", y, x), array(4, 3))


def shared_normalisation(g):
    """So must the division, when what is divided is used again."""
    x = g.op("Sub", "x", array(2, 1, 1))
    return classify(g, g.op("Add", g.op("Div", x, positive(2, 1, 1)), x), 72)


def flattened_by_shape(g):
    sizes = g.op("Gather", g.op("Shape", "x"), np.int64(0), axis=0)
    sizes = g.op("Unsqueeze", sizes, np.array([0]))
    last = g.op("Constant", value_ints=[-1])
    x = g.op("Reshape", "x", g.op("Concat", sizes, last, axis=0))
    return g.op("Gemm", x, array(72, 3))


def flattened_by_shape_slice(g):
    g.opset = 15
    sizes = g.op("Concat", g.op("Shape", "x", start=0, end=1), np.array([72]), axis=0)
    return g.op("Gemm", g.op("Reshape", "x", sizes), array(72, 3))


def reshaped(target):
    def build(g):
        x = g.op("Relu", g.op("Reshape", "x", np.array(target)))
        return g.op("Gemm", g.op("Reshape", x, np.array([0, 72])), array(72, 3))

    return build


def identities(g):
    weight = g.op("Identity", array(72, 3))
    x = g.op("Identity", g.op("Flatten", "x", axis=-3))
    value = numpy_helper.from_array(array(3))
    return g.op("Gemm", g.op("Flatten", x), weight, g.op("Constant", value=value))


def dead_branch(g):
    g.op("Softmax", "x")
    return classify(g, "x", 72)


def overlapping_blocks(g):
    a = g.op("Relu", "x")
    b = g.op("Add", g.op("Relu", a), "x")
    return classify(g, g.op("Add", b, a), 72)


def broadcast_sum(g):
    return classify(g, g.op("Add", "x", g.op("GlobalAveragePool", "x")), 72)


def unevenly_dilated(g):
    x = g.op("Conv", "x", array(2, 2, 2, 2), pads=[0, 0, 1, 0], dilations=[2, 2])
    return classify(g, x, 2 * 5 * 4)


def odd_average_pools(g):
    x = g.op("AveragePool", "x", kernel_shape=[2, 2], pads=[0, 0, 1, 1])
    x = g.op("AveragePool", x, kernel_shape=[2, 2], pads=[1] * 4)
    return classify(g, x, 2 * 7 * 7)


def max_pools(g):
    x = g.op("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    x = g.op("MaxPool", x, kernel_shape=[2, 2], dilations=[1, 2], ceil_mode=1, strides=[1, 2])
    return classify(g, g.op("Relu", x), 2 * 2 * 3)


def transposed_convs(g):
    x = g.op("ConvTranspose", "x", array(2, 3, 2, 3), array(3), strides=[2, 1], pads=[1, 0, 0, 1])
    x = g.op("ConvTranspose", x, array(3, 1, 2, 2), output_padding=[1, 0], strides=[2, 1])
    return classify(g, x, 1 * 23 * 8)


def moves(g):
    x = g.op("Transpose", "x", perm=[0, 2, 3, 1])
    x = g.op("Pad", x, np.array([0, 1, 0, 0, 0, 0, -1, 0]), np.float32(0))
    x = g.op("Slice", x, np.array([1]), np.array([9]), np.array([1]), np.array([2]))
    x = g.op("Concat", x, g.op("Gather", x, np.array([1, 0]), axis=3), axis=2)
    return classify(g, g.op("Relu", x), 3 * 10 * 2)


def splits(g):
    x = g.op("Split", "x", np.array([2, 4]), axis=2)
    g.nodes[-1].output.append("second")
    x = g.op("Sub", g.op("Slice", "second", np.array([0]), np.array([2]), np.array([2])), x)
    return classify(g, g.op("Squeeze", g.op("Unsqueeze", x, np.array([0])), np.array([0])), 24)


def enlarged(g):
    scales = np.array([1, 1, 2, 3], np.float32)
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    x = g.op("Resize", "x", "", scales, mode="nearest", **how)
    return classify(g, x, 2 * 12 * 18)


def constants_of_any_shape(g):
    x = g.op("Sub", np.float32(1), g.op("Sub", "x", array(2, 6, 6)))
    x = g.op("Mul", g.op("Div", x, np.float32([[[1]], [[-2]]])), array(6, 1))
    return classify(g, x, 72)


def products(g):
    x = g.op("MatMul", array(5, 6), g.op("MatMul", "x", array(6, 4)))
    return classify(g, g.op("Mul", x, g.op("Sigmoid", x)), 2 * 5 * 4)


def quotients(g):
    x = g.op("Div", g.op("Tanh", "x"), g.op("Add", g.op("Abs", "x"), np.float32(0.5)))
    return classify(g, g.op("Div", np.float32(2), g.op("Clip", x, np.float32(0.1))), 72)


def piecewise(g):
    x = g.op("LeakyRelu", "x", alpha=0.2)
    x = g.op("PRelu", x, array(2, 1, 1))
    x = g.op("PRelu", x, array(2, 6, 6))
    x = g.op("Clip", x, np.float32(-0.5), np.float32(0.4))
    x = g.op("Min", g.op("Max", x, g.op("Neg", x)), array(6, 1), np.float32(0.3))
    return classify(g, g.op("HardSigmoid", x, alpha=0.5), 72)


def reductions(g):
    x = g.op("ReduceSum", "x", np.array([3]), keepdims=0)
    x = g.op("Add", x, g.op("ReduceMean", x, axes=[1]))
    return g.op("Gemm", g.op("ReduceMax", x, axes=[2], keepdims=0), array(2, 3))


def dropped(g):
    return classify(g, g.op("Cast", g.op("Dropout", "x"), to=1), 72)


def one_dimensional(g):
    x = g.op("Reshape", "x", np.array([0, 4, 18]))
    x = g.op("Conv", x, array(6, 2, 3), group=2, pads=[2, 1], strides=[2])
    x = g.op("MaxPool", g.op("AveragePool", x, kernel_shape=[2]), kernel_shape=[3])
    return classify(g, g.op("GlobalMaxPool", x), 6)


GOOD = [
    overlapping_blocks,
    broadcast_sum,
    unevenly_dilated,
    odd_average_pools,
    max_pools,
    transposed_convs,
    moves,
    splits,
    enlarged,
    constants_of_any_shape,
    products,
    quotients,
    piecewise,
    reductions,
    dropped,
    one_dimensional,
    plain_convs,
    uneven_pads,
    same_upper,
    same_lower,
    valid,
    conv_bias_added,
    gemm_options,
    matmul_add,
    batch_norms,
    pools,
    normalised_by_scalars,
    normalised_per_channel,
    scaled_by_mul,
    scaled_features,
    residual_identity,
    residual_shortcut,
    residual_nested,
    shared_bias,
    shared_normalisation,
    flattened_by_shape,
    flattened_by_shape_slice,
    reshaped([0, -1]),
    reshaped([-1, 72]),
    identities,
    dead_branch,
]


@pytest.mark.parametrize("build", GOOD, ids=lambda build: build.__qualname__.split(".")[0])
def test_agrees_with_onnxruntime(tmp_path, build):
    g = Graph(2, 6, 6)
    path = save(tmp_path, g, build(g))
    net = read_onnx(path)
    x = RNG.random((5, 2, 6, 6), dtype=np.float32)
    agree(net, path.read_bytes(), x)
    assert not net.training


def test_numbers_of_float64(tmp_path):
    """They stay what they are; those that are numbers of float32 too are read as such."""
    for weight, dtype in (
        (array(72, 3).astype(np.float64), torch.float32),
        (np.full((72, 3), 0.1), torch.float64),
    ):
        g = Graph(2, 6, 6)
        double(g)
        path = save(tmp_path, g, g.op("MatMul", g.op("Flatten", "x"), weight))
        net = read_onnx(path)
        assert next(net.parameters()).dtype == dtype
        assert net[1].weight.detach().double().numpy().T.tolist() == weight.tolist()


def test_an_input_without_a_batch_axis(tmp_path):
    g = Graph(batch=6)
    path = save(tmp_path, g, g.op("MatMul", g.op("Relu", "x"), array(6, 3)))
    x = RNG.random(6, dtype=np.float32)
    expected = session(path.read_bytes()).run(None, {"x": x})[0]
    np.testing.assert_allclose(
        read_onnx(path)(torch.from_numpy(x)[None])[0].detach(), expected, 1e-5
    )


def test_a_target_of_one_image(tmp_path):
    g = Graph(2, 6, 6, batch=1)
    path = save(tmp_path, g, g.op("Gemm", g.op("Reshape", "x", np.array([1, -1])), array(72, 3)))
    agree(read_onnx(path), path.read_bytes(), RNG.random((1, 2, 6, 6), dtype=np.float32))


def test_unsqueeze_of_older_opsets(tmp_path):
    g = Graph(2, 6, 6, opset=9)
    sizes = g.op("Unsqueeze", g.op("Gather", g.op("Shape", "x"), np.int64(0)), axes=[0])
    x = g.op("Reshape", "x", g.op("Concat", sizes, np.array([-1]), axis=0))
    path = save(tmp_path, g, g.op("Gemm", x, array(72, 3), array(3)))
    agree(read_onnx(path), path.read_bytes(), RNG.random((4, 2, 6, 6), dtype=np.float32))


def layer_names(net):
    return [type(layer).__name__ for layer in net]


def test_the_layers_are_the_plain_ones(tmp_path):
    g = Graph(2, 6, 6)
    net = read_onnx(save(tmp_path, g, normalised_per_channel(g)))
    assert layer_names(net) == ["Normalize", "Conv2d", "ReLU", "Flatten", "Linear"]
    g = Graph(2, 6, 6)
    assert layer_names(read_onnx(save(tmp_path, g, matmul_add(g)))) == [
        *("Flatten", "Linear", "ReLU", "Linear"),
    ]
    g = Graph(2, 6, 6)
    net = read_onnx(save(tmp_path, g, residual_shortcut(g)))
    assert layer_names(net) == ["Residual", "ReLU", "Flatten", "Linear"]
    block = net[0]
    assert isinstance(block, Residual)
    assert layer_names(block.body) == ["Conv2d", "ReLU", "Conv2d"]
    assert layer_names(block.shortcut) == ["Conv2d"]


def test_reading_draws_no_random_numbers(tmp_path):
    g = Graph(2, 6, 6)
    path = save(tmp_path, g, plain_convs(g))
    before = torch.get_rng_state()
    read_onnx(path)
    assert torch.equal(before, torch.get_rng_state())


def attempt(path):
    """The network and no message, or no network and the message of maar's own error."""
    try:
        return read_onnx(path), ""
    except MaarError as error:
        return None, str(error)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_convolution(tmp_path_factory, data):
    numbers = st.integers
    kernel = [data.draw(numbers(1, 3)), data.draw(numbers(1, 3))]
    strides = [data.draw(numbers(1, 3)), data.draw(numbers(1, 3))]
    dilations = [data.draw(numbers(1, 2)), data.draw(numbers(1, 2))]
    group = data.draw(st.sampled_from([1, 2]))
    auto = data.draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    options = {"strides": strides, "dilations": dilations, "group": group, "auto_pad": auto}
    if auto == "NOTSET":
        options["pads"] = [data.draw(numbers(0, 3)) for _ in range(4)]
    g = Graph(2, 5, 6)
    x = g.op("Conv", "x", array(4, 2 // group, *kernel), array(4), **options)
    model = g.model(g.op("Flatten", x)).SerializeToString()
    path = tmp_path_factory.mktemp("conv") / "net.onnx"
    path.write_bytes(model)
    net, refusal = attempt(path)
    if net is not None:
        agree(net, model, RNG.random((2, 2, 5, 6), dtype=np.float32))
    elif "smaller than the strides" in refusal:
        assert any(k < s for k, s in zip(kernel, strides, strict=True))
        assert auto.startswith("SAME")
    else:  # only what has no exact counterpart
        assert max(dilations) > 1
        assert "uneven" in refusal or "auto_pad" in refusal


@pytest.mark.skipif(not COLT.exists(), reason=f"{COLT.name} is not in ../shared/nets")
class TestColt:
    """The COLT authors' public MNIST network."""

    def test_agrees_with_onnxruntime(self):
        x = RNG.random((1, 1, 28, 28), dtype=np.float32)
        agree(read_onnx(COLT), COLT.read_bytes(), (x - 0.1307) / 0.3081)

    def test_takes_pixels_once_it_has_mean_and_std(self):
        net = make(str(COLT), (1, 28, 28), 10, mean=[0.1307], std=[0.3081])
        assert layer_names(net) == [
            *("Normalize", "Conv2d", "ReLU", "Conv2d", "ReLU"),
            *("Flatten", "Linear", "ReLU", "Linear"),
        ]
        x = torch.rand(3, 1, 28, 28)
        with torch.no_grad():
            torch.testing.assert_close(net(x), read_onnx(COLT)((x - 0.1307) / 0.3081))


# ---- mean, std and `make`


@pytest.fixture
def small(tmp_path):
    g = Graph(2, 6, 6)
    return save(tmp_path, g, plain_layers(g, "x"))


def test_mean_and_std_become_a_normalize_in_front(small):
    net = read_onnx(small, mean=[0.1, 0.2], std=[0.3, 0.4])
    assert isinstance(net[0], Normalize)
    x = torch.rand(3, 2, 6, 6)
    shift, scale = torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.4])
    normalised = (x - shift[:, None, None]) / scale[:, None, None]
    torch.testing.assert_close(net(x), read_onnx(small)(normalised))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mean": [0.1, 0.2]}, ["mean and std"]),
        ({"mean": [0.1], "std": [1.0]}, ["mean", "2 numbers"]),
        ({"mean": [0.1, 0.2], "std": [1.0, -1.0]}, ["std", "positive"]),
    ],
)
def test_mean_and_std_that_do_not_fit(small, arguments, words):
    with pytest.raises(UsageError) as caught:
        read_onnx(small, **arguments)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("shape", "classes", "words"),
    [
        ((1, 6, 6), 3, ["net.onnx", "layer 0", "1x6x6", "2 channels"]),
        ((2, 8, 8), 3, ["net.onnx", "layer 3", "192", "108"]),
        ((2, 6, 6), 10, ["net.onnx", "10 classes"]),
    ],
)
def test_a_data_set_of_another_shape(small, shape, classes, words):
    with pytest.raises(UsageError) as caught:
        make(str(small), shape, classes)
    assert all(word in str(caught.value) for word in words), caught.value


# ---- networks that are refused, each with the node, the operator and the reason


def through(kind, *constants, **attributes):
    return lambda g: classify(g, g.op(kind, "x", *constants, **attributes), 72)


def custom_domain(g):
    g.nodes.append(helper.make_node("Conv", ["x"], ["y"], name="odd", domain="my.domain"))
    return classify(g, "y", 72)


def two_outputs(g):
    x = g.op("BatchNormalization", "x", array(2), array(2), array(2), positive(2))
    g.nodes[-1].output.append("mean_out")
    return classify(g, x, 72)


def undefined(g):
    return classify(g, "nowhere", 72)


EYE = np.ones((2, 2, 1, 1), np.float32)

REFUSED = [
    (through("Selu"), ["'selu_0'", "Selu", *OPERATORS]),
    (through("Sign"), ["'sign_0'", "it jumps"]),
    (through("Resize", mode="linear"), ["nearest"]),
    (through("Div", np.float32(0)), ["division by zero"]),
    (through("Pad", np.array([0] * 7 + [1]), np.float32(2)), ["padding with 2.0"]),
    (lambda g: classify(g, g.op("MatMul", "x", "x"), 72), ["two computed values"]),
    (through("Clip", np.float32(1), np.float32(0)), ["above max"]),
    (custom_domain, ["'odd'", "my.domain.Conv"]),
    (through("Conv", EYE, pads=[-1, 0, 0, 0]), ["pads"]),
    (through("Conv", EYE, pads=[1] * 4, auto_pad="SAME_UPPER"), ["auto_pad", "pads"]),
    (through("Conv", EYE, auto_pad="ODD"), ["auto_pad", "ODD"]),
    (through("Conv", EYE, auto_pad="SAME_UPPER", dilations=[2, 1]), ["auto_pad", "dilations"]),
    (through("Conv", EYE, kernel_shape=[3, 3]), ["kernel_shape"]),
    (through("Conv", EYE, strides=[0, 1]), ["strides"]),
    (through("Conv", EYE, strides=[1]), ["strides"]),
    (through("Conv", EYE, shape_of_things=1), ["'shape_of_things'"]),
    (through("Conv", EYE[..., 0]), ["[2, 2, 1]"]),
    (through("Conv", array(2, 3, 1, 1)), ["2x6x6", "3 channels"]),
    (through("Conv", EYE, array(5)), ["bias", "[5]", "[2]"]),
    (through("Conv", array(2, 2, 9, 9)), ["larger"]),
    (through("BatchNormalization", *[positive(2)] * 4, training_mode=1), ["training_mode"]),
    (through("AveragePool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), ["ceil_mode"]),
    (through("AveragePool", kernel_shape=[2, 2], dilations=[2, 2]), ["dilations"]),
    (through("AveragePool"), ["kernel_shape"]),
    (through("Sub", array(3, 1, 1)), ["[3, 1, 1]"]),
    (lambda g: g.op("Gemm", g.op("Flatten", "x"), array(72, 3), transA=1), ["Gemm", "transA"]),
    (lambda g: g.op("Gemm", g.op("Flatten", "x"), array(72, 3), array(4)), ["Gemm", "(4,)"]),
    (lambda g: g.op("Gemm", g.op("Flatten", "x"), array(70, 3)), ["Gemm", "70"]),
    (two_outputs, ["BatchNormalization", "output"]),
    (undefined, ["'nowhere'"]),
    (lambda g: g.op("Relu", "x"), ["[2, 6, 6]", "class scores"]),
    (lambda g: g.op("Identity", array(3)), ["does not depend"]),
]


@pytest.mark.parametrize(("build", "words"), REFUSED, ids=[words[-1] for _, words in REFUSED])
def test_refused_in_one_clear_line(tmp_path, build, words):
    g = Graph(2, 6, 6)
    with pytest.raises(UsageError) as caught:
        read_onnx(save(tmp_path, g, build(g)))
    message = str(caught.value)
    assert "\n" not in message
    assert "net.onnx" in message
    assert all(word in message for word in words), message


def test_a_node_without_a_name_is_told_by_its_output(tmp_path):
    g = Graph(2, 6, 6)
    output = through("Selu")(g)
    g.nodes[0].name = ""
    with pytest.raises(UsageError, match=r"node 0 \(output selu_0\), operator Selu"):
        read_onnx(save(tmp_path, g, output))


def double(g):
    g.input.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE


def whole(g):
    g.input.type.tensor_type.elem_type = onnx.TensorProto.INT64


def no_height(g):
    g.input.type.tensor_type.shape.dim[2].Clear()


def no_batch(g):
    del g.input.type.tensor_type.shape.dim[1:]


def old(g):
    g.opset = 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (whole, ["'x'", "float32"]),
        (no_height, ["'x'", "['N', 2, '?', 6]"]),
        (no_batch, ["'x'", "batch axis"]),
        (old, ["opset 6", "7"]),
    ],
)
def test_inputs_that_cannot_be_read(tmp_path, change, words):
    g = Graph(2, 6, 6)
    change(g)
    with pytest.raises(UsageError) as caught:
        read_onnx(save(tmp_path, g, classify(g, "x", 72)))
    assert all(word in str(caught.value) for word in words), caught.value


def test_two_inputs(tmp_path):
    g = Graph(2, 6, 6)
    model = g.model(classify(g, "x", 72))
    model.graph.input.append(helper.make_tensor_value_info("second", 1, [1]))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match="2 inputs and 1 outputs"):
        read_onnx(tmp_path / "net.onnx")


# ---- files that are damaged, absent or incomplete


def test_absent(tmp_path):
    with pytest.raises(UsageError, match=r"none\.onnx' does not exist"):
        read_onnx(tmp_path / "none.onnx")
    with pytest.raises(UsageError, match="does not exist"):
        read_onnx(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 64, RNG.bytes(4096), b"PK\3\4 not a network"],
    ids=["empty", "zeros", "random", "another format"],
)
def test_not_an_onnx_file(tmp_path, content):
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(RunError, match=r"net\.onnx is not an ONNX file"):
        read_onnx(tmp_path / "net.onnx")


def external(tmp_path):
    g = Graph(2, 6, 6)
    model = g.model(plain_layers(g, "x"))
    onnx.save(
        model,
        str(tmp_path / "net.onnx"),
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    return tmp_path / "net.onnx"


def test_external_data(tmp_path):
    path = external(tmp_path)
    agree(read_onnx(path), str(path), RNG.random((2, 2, 6, 6), dtype=np.float32))


@pytest.mark.parametrize("content", [None, b"short"], ids=["missing", "cut short"])
def test_external_data_that_cannot_be_read(tmp_path, content):
    path = external(tmp_path)
    (tmp_path / "weights.bin").unlink()
    if content is not None:
        (tmp_path / "weights.bin").write_bytes(content)
    with pytest.raises(RunError) as caught:
        read_onnx(path)
    message = str(caught.value)
    assert "\n" not in message
    assert "tensor 'c" in message


def test_damaged_bytes_never_get_further_than_one_line(tmp_path, small):
    """Flip, cut and insert bytes at random: a network or one of maar's own errors, nothing else."""
    whole = small.read_bytes()
    path = tmp_path / "damaged.onnx"
    outcomes = set()
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(RNG.integers(1, 4)):
            damaged[RNG.integers(len(damaged))] = RNG.integers(256)
        if RNG.random() < 0.2:
            del damaged[RNG.integers(len(damaged)) :]
        path.write_bytes(bytes(damaged))
        net, refusal = attempt(path)
        assert "\n" not in refusal
        outcomes.add(net is not None)
    assert outcomes == {True, False}


def test_without_the_onnx_package(monkeypatch, small):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(RunError, match=r"pip install 'maar\[onnx\]'"):
        read_onnx(small)


def test_packed_files(tmp_path, small):
    plain = read_onnx(small)
    packed = tmp_path / "packed.onnx.gz"
    packed.write_bytes(gzip.compress(Path(small).read_bytes()))
    for path in (packed, tmp_path / "packed.onnx"):  # the name without .gz finds it too
        assert weights_hash(read_onnx(path)) == weights_hash(plain)


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"x" * 1000)[:-9]],
    ids=["empty", "no gzip", "cut"],  # gzip writes the time into its files
)
def test_packed_files_that_are_damaged(tmp_path, content):
    path = tmp_path / "net.onnx.gz"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"net\.onnx\.gz is not"):
        read_onnx(path)


# ---- files that runtimes read in different ways


def shadowing_function(model):
    negation = helper.make_node("Neg", ["X"], ["Y"])
    opset = [helper.make_opsetid("", 13)]
    model.functions.append(helper.make_function("", "Relu", ["X"], ["Y"], [negation], opset))


def two_opsets(model):
    model.opset_import.append(helper.make_opsetid("", 9))


def two_weights_of_one_name(model):
    twin = model.graph.initializer.add()
    twin.CopyFrom(model.graph.initializer[0])


def two_outputs_of_one_name(model):
    node = model.graph.node.add()
    node.CopyFrom(model.graph.node[0])


def an_output_called_like_the_input(model):
    node = model.graph.node.add()
    node.CopyFrom(helper.make_node("Relu", ["x"], ["x"]))


def a_sparse_twin(model):
    """onnxruntime takes the sparse one."""
    twin = model.graph.sparse_initializer.add()
    weight = model.graph.initializer[0]
    values = np.ones(1, np.float32)
    twin.values.CopyFrom(numpy_helper.from_array(values, weight.name))
    twin.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64), "at"))
    twin.dims.extend(weight.dims)


def an_attribute_twice(model):
    attribute = next(node for node in model.graph.node if node.attribute).attribute
    attribute.add().CopyFrom(attribute[0])


def an_attribute_of_two_values(model):
    next(node for node in model.graph.node if node.attribute).attribute[0].s = b"VALID"


def an_attribute_of_another_type(model):
    attribute = next(node for node in model.graph.node if node.attribute).attribute[0]
    attribute.CopyFrom(helper.make_attribute(attribute.name, "VALID"))


def a_weight_in_two_files(model):
    weight = model.graph.initializer[0]
    weight.data_location = onnx.TensorProto.EXTERNAL
    for name in ("a.bin", "b.bin"):
        entry = weight.external_data.add()
        entry.key, entry.value = "location", name


def an_opset_of_the_future(model):
    model.opset_import[0].version = 9999


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (a_sparse_twin, "2 values have the name"),
        (an_attribute_twice, "attribute '.*' stands there twice"),
        (an_attribute_of_two_values, "attribute '.*' has two values"),
        (an_attribute_of_another_type, "attribute '.*' is of ONNX's type 3"),
        (a_weight_in_two_files, "lies in two places"),
        (an_opset_of_the_future, "uses opset 9999; supported is 7 to"),
        (shadowing_function, "a function of the file has the name of a standard operator"),
        (two_opsets, "two versions of the standard operators"),
        (two_weights_of_one_name, "2 values have the name"),
        (two_outputs_of_one_name, "2 values have the name"),
        (an_output_called_like_the_input, "2 values have the name 'x'"),
    ],
)
def test_a_file_of_two_meanings_is_refused(tmp_path, change, words):
    g = Graph(2, 6, 6)
    model = g.model(plain_layers(g, "x"))
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    read_onnx(path)
    change(model)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match=words):
        read_onnx(path)


@pytest.mark.parametrize("kind", ["Gemm", "Conv"])
def test_a_layer_that_gives_nothing_is_refused(tmp_path, kind):
    shape, weight = ([1, 2], (2, 0)) if kind == "Gemm" else ([1, 1, 2, 2], (0, 1, 1, 1))
    tensor = numpy_helper.from_array(np.zeros(weight, np.float32), "w")
    values = [helper.make_tensor_value_info("x", 1, shape)]
    values += [helper.make_tensor_value_info("y", 1, None)]
    nodes = [helper.make_node(kind, ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [tensor])
    path = tmp_path / "net.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(UsageError, match=f"{kind}.*it gives nothing"):
        read_onnx(path)
