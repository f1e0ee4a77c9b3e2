"""Small files that ask a reader for much: each is built here, and refused or cut off in time."""

import gzip

from onnx import TensorProto, helper

HEAD = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
BOX = "".join(f"(assert (>= X_{i} 0)) (assert (<= X_{i} 1))\n" for i in range(2))
SAFE = f"{HEAD}{BOX}(assert (<= Y_0 -1))\n"
HEAD_2 = (
    "(vnnlib-version <2.0>)(declare-network net (declare-input X float32 [1,2])"
    "(declare-output Y float32 [1,2]))"
)
IMAGE = ("x", TensorProto.FLOAT, [1, 2])


def zeros_packed(mebibytes: int, before: bytes = b"", zero: bytes = b"\0") -> bytes:
    """A gzip file of so many MiB of one byte: gzip files may be strung together."""
    return gzip.compress(before) + gzip.compress(zero * (1 << 20)) * mebibytes


def model(nodes, output="y", *, image=IMAGE, shape=(1, 2), tensors=()) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*image)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, list(shape))],
        list(tensors),
    )
    opset = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def node(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def floats(name, shape, value=1.0):
    count = 1
    for size in shape:
        count *= size
    return helper.make_tensor(name, TensorProto.FLOAT, shape, [value] * count)


def doubled(times: int) -> list:
    """A constant of one number, put together with itself again and again."""
    nodes = [node("Constant", "", "c0", value_ints=[1])]
    return nodes + [node("Concat", f"c{i} c{i}", f"c{i + 1}", axis=0) for i in range(times)]


def nested_blocks(depth: int) -> bytes:
    """Residual blocks inside each other: h_d + ... + h_1 with h_0 = x, from the inside out."""
    nodes = [node("Relu", "x" if i == 0 else f"r{i - 1}", f"r{i}") for i in range(depth)]
    last = f"r{depth - 1}"
    for i in reversed(range(depth - 1)):
        nodes.append(node("Add", f"{last} r{i}", f"a{i}"))
        last = f"a{i}"
    return model([*nodes, node("Relu", last, "y")])


def field(number: int, length: int) -> bytes:
    """How a field of so many bytes begins in a protobuf file."""
    varint = b""
    while length > 127:
        varint += bytes([length & 127 | 128])
        length >>= 7
    return bytes([number << 3 | 2]) + varint + bytes([length])


def empty_nodes(count: int) -> bytes:
    graph = field(1, 0) * count
    return field(7, len(graph)) + graph


def packed_integers(mebibytes: int) -> bytes:
    """A tensor of zeros, each of which has one byte in the file."""
    head = field(7, mebibytes << 20)
    for number in (5, 7):  # an initializer of the graph of the model
        head = field(number, len(head) + (mebibytes << 20)) + head
    return zeros_packed(mebibytes, head)


def big_conv() -> bytes:
    return model(
        [node("Conv", "x w", "z", pads=[0, 0, 1 << 30, 1 << 30]), node("Flatten", "z", "y")],
        image=("x", TensorProto.FLOAT, [1, 1, 2, 2]),
        tensors=[floats("w", (1, 1, 1, 1))],
    )


def large_outputs() -> bytes:
    return model(
        [node("Conv", "x w", "z", pads=[1 << 20] * 4), node("Flatten", "z", "y")],
        image=("x", TensorProto.FLOAT, [1, 1, 2, 2]),
        tensors=[floats("w", (1, 1, 1, 1))],
    )


def strings() -> bytes:
    tensor = helper.make_tensor("t", TensorProto.STRING, [2], [b"a" * 1000, b""])
    return model([node("Add", "x t", "y")], tensors=[tensor])


PLAIN = model([node("Relu", "x", "y")])
TWICE = "(assert (or (<= Y_0 {0}) (<= Y_1 {0})))"

# name -> (content, words of the answer); "" means that any answer will do, but in time
NETWORKS = {
    "doubled": (
        model([*doubled(60), node("Reshape", "x c60", "y")]),
        "computes constants of",
    ),
    "many_parts": (
        model(
            [
                *doubled(20),
                node("Concat", "c20 " * 1000, "d", axis=0),
                node("Reshape", "x d", "y"),
            ]
        ),
        "computes constants of",
    ),
    "gathered": (
        model(
            [
                *doubled(16),
                node("Unsqueeze", "c16 zero", "row"),
                node("Gather", "row zeros", "d", axis=0),
                node("Reshape", "x d", "y"),
            ],
            tensors=[
                helper.make_tensor("zero", TensorProto.INT64, [1], [0]),
                helper.make_tensor("zeros", TensorProto.INT64, [10000], [0] * 10000),
            ],
        ),
        "computes constants of",
    ),
    "unused": (
        model([*doubled(40), node("Relu", "x", "y")]),
        "unsat",
    ),
    "packed": (zeros_packed(2100), ""),
    "empty_messages": (gzip.compress(empty_nodes(2_100_000)), "fields of the protobuf"),
    "packed_integers": (packed_integers(260), "bytes of packed integers"),
    "long": (
        model(
            [node("Relu", "x" if i == 0 else f"v{i}", f"v{i + 1}") for i in range(30000)], "v30000"
        ),
        "nodes: 30000 (accepted: up to 20000)",
    ),
    "nested": (nested_blocks(100), "residual blocks inside each other"),
    "large_input": (
        model([node("Relu", "x", "y")], image=("x", TensorProto.FLOAT, [1, 1 << 40])),
        "elements of the input: 1099511627776",
    ),
    "large_batch": (
        model([node("Relu", "x", "y")], image=("x", TensorProto.FLOAT, [1 << 40, 2])),
        "elements of a batch",
    ),
    "large_kernel": (big_conv(), "a kernel of"),
    "large_output": (large_outputs(), "elements (accepted: up to"),
    "strings": (strings(), "ONNX's type 8"),
    "cut": (PLAIN[:-5], "not an ONNX file"),
}

PROPERTIES = {
    "spaces_packed": (zeros_packed(600, SAFE.encode(), b" "), ""),
    "comments_packed": (zeros_packed(600, SAFE.encode() + b";", b";"), ""),
    "parentheses": ("(" * 10_000_000, "unknown command"),
    "nested": (f"{SAFE}(assert {'(and ' * 1_000_000}", "more than 100 parentheses"),
    "nested_sums": (f"{SAFE}(assert (<= Y_0 {'(+ ' * 1_000_000}", "more than 100 parentheses"),
    "lines": (SAFE + "\n" * 1_000_000 + "x", "'(' must come here"),
    "blank_lines": ("\n" * 1_000_000 + SAFE, "unsat"),
    "comments": ("; ((\n" * 100_000 + SAFE, "unsat"),
    "quotes": (SAFE + '"' * 5_000_001, "'(' must come here"),
    "word": (f"{SAFE}({'a' * 10_000_000})", "unknown command"),
    "not_quite_a_number": (f"{SAFE}(assert (<= Y_0 {'1' * 1_000_000}x))", "1000001 characters"),
    "almost_too_long": (f"{SAFE}(assert (<= Y_0 {'1' * 1999}x))" * 2, "must come here"),
    "digits": (f"{SAFE}(assert (<= Y_0 {'1' * 1_000_000}))", "1000000 characters"),
    "exponent": (f"{SAFE}(assert (<= Y_0 1e999999999))", "exponent 999999999"),
    "product": (f"{SAFE}(assert (<= Y_0 (* {'1e400 ' * 20_000})))", "bits"),
    "quotients": (
        f"{SAFE}(assert (<= Y_0 (+ {' '.join(f'(/ 1 {n})' for n in range(3, 40_000, 2))})))",
        "bits",
    ),
    "65536_disjuncts": (HEAD + BOX + "".join(TWICE.format(-k) for k in range(1, 17)), ""),
    "disjuncts": (SAFE + TWICE.format(-1) * 17, "131072 disjuncts (accepted: up to 100000)"),
    "comparisons": (
        f"{HEAD}{BOX}(assert (or (and {'(<= Y_0 1) ' * 1000}"
        f"{''.join(f'(or (<= Y_1 {k}) (<= Y_1 0)) ' for k in range(15))})))",
        "comparisons of all disjuncts",
    ),
    "boxes": (
        HEAD.replace("(declare-const Y_0", "".join(
            f"(declare-const X_{i} Real)\n" for i in range(2, 50_000)
        ) + "(declare-const Y_0")
        + "".join(f"(assert (>= X_{i} 0)) (assert (<= X_{i} 1))" for i in range(50_000))
        + "".join(f"(assert (or (<= X_{i} 0.5) (>= X_{i} 0.5)))" for i in range(14)),
        "inputs of all boxes",
    ),
    "coefficients": (
        HEAD + "".join(f"(declare-const Y_{k} Real)\n" for k in range(2, 100_000)) + BOX
        + "".join(f"(assert (<= Y_{k} 0))" for k in range(1000)),
        "coefficients of all conditions",
    ),
    "nested_2": (
        f"{HEAD_2}(assert {'(and ' * 100_000}(<= Y[0,0] 1.0){')' * 100_001}",
        "parentheses inside each other: 100002 (accepted: up to 100)",
    ),
    "sizes_2": (
        HEAD_2.replace("X float32 [1,2]", "X float32 [1,99999999999]") + "(assert (<= Y[0,0] 1.0))",
        "number of inputs: 99999999999",
    ),
    "digits_2": (f"{HEAD_2}(assert (<= Y[0,0] {'1' * 100_000}.0))", ""),
    "product_2": (f"{HEAD_2}(assert (<= Y[0,0] (* {'9.9 ' * 20_000})))", ""),
}  # fmt: skip


def content_of(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def is_packed(content: bytes) -> bool:
    return content[:2] == b"\x1f\x8b"
