"""Read an ONNX file: the protobuf wire format, and the few messages that a network is made of.

Field numbers are those of onnx.proto. Everything that is not understood is refused or, where it
cannot change the function (names, doc strings, types of inner values), passed over.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maar_check.arithmetic import Array
from maar_check.refusal import Refused, require

LARGEST_FILE = 1 << 30
FLOAT, INT64 = 1, 7
TYPES = {FLOAT: np.dtype("<f4"), INT64: np.dtype("<i8")}


@dataclass
class Op:
    """One node of the file's graph."""

    kind: str
    inputs: list[str]
    outputs: list[str]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Model:
    """The file's graph: nodes in order, tensors by name, the input and the output."""

    ops: list[Op]
    tensors: dict[str, Array]
    input: str
    shape: tuple[int, ...]
    """Of the input, with 1 where the file leaves the number of images open."""
    output: str
    opset: int


def read_model(content: bytes) -> Model:
    """Parse the bytes of an ONNX file."""
    require(len(content) <= LARGEST_FILE, f"the network has {len(content)} bytes")
    graphs, opset = [], 0
    for number, value in _fields(content):
        if number == 7:
            graphs.append(value)
        elif number == 8:
            entries = dict(_fields(value))
            require(not entries.get(1), "the network uses operators of another domain than ONNX's")
            opset = entries.get(2, 0)
        require(number not in (20, 25), "the network has functions or training steps of its own")
    require(len(graphs) == 1, f"the file has {len(graphs)} graphs (accepted: 1)")
    ops: list[Op] = []
    tensors: dict[str, Array] = {}
    inputs, outputs = [], []
    for number, value in _fields(graphs[0]):
        if number == 1:
            ops.append(_op(value))
        elif number == 5:
            name, tensor = _tensor(value)
            require(name not in tensors, f"tensor {name!r} is there twice")
            tensors[name] = tensor
        elif number == 11:
            inputs.append(_about(value))
        elif number == 12:
            outputs.append(_about(value)[0])
        require(number != 15, "the network has sparse tensors")
    inputs = [each for each in inputs if each[0] not in tensors]
    require(len(inputs) == 1 and len(outputs) == 1, "the network has not one input and one output")
    name, shape = inputs[0]
    return Model(ops, tensors, name, shape, outputs[0], opset)


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Every field of a message: its number, and a whole number, or bytes."""
    require(not isinstance(data, int), "the file is damaged: a number where a message belongs")
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = data[at : at + size], at + size
        else:
            raise Refused(f"the file is damaged: wire type {kind}")
        require(at <= end, "the file is damaged: it ends within a field")
        yield number, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        require(at < len(data), "the file is damaged: it ends within a number")
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise Refused("the file is damaged: a number has no end")


def _numbers(value: Any) -> list[int]:
    """Repeated whole numbers, packed or single, with their sign."""
    values = [value]
    if not isinstance(value, int):
        values, at = [], 0
        while at < len(value):
            each, at = _varint(value, at)
            values.append(each)
    return [(each & (2**64 - 1)) - ((each >> 63 & 1) << 64) for each in values]


def _text(value: Any) -> str:
    require(isinstance(value, bytes), "the file is damaged: a number where a text belongs")
    return value.decode("utf-8", "replace")


def _op(data: bytes) -> Op:
    op = Op("", [], [])
    for number, value in _fields(data):
        if number == 1:
            op.inputs.append(_text(value))
        elif number == 2:
            op.outputs.append(_text(value))
        elif number == 4:
            op.kind = _text(value)
        elif number == 5:
            name, option = _option(value)
            require(name not in op.options, f"option {name} of {op.kind} is there twice")
            op.options[name] = option
        elif number == 7:
            require(not value, "an operator is of another domain than ONNX's")
    require(len(op.outputs) == 1, f"{op.kind} has {len(op.outputs)} outputs (accepted: 1)")
    return op


def _option(data: bytes) -> tuple[str, Any]:
    name, value = "", None
    ints: list[int] = []
    for number, each in _fields(data):
        if number == 1:
            name = _text(each)
        elif number == 2:
            require(isinstance(each, bytes) and len(each) == 4, f"option {name} is damaged")
            value = struct.unpack("<f", each)[0]
        elif number == 3:
            value = _numbers(each)[0]
        elif number == 4:
            value = _text(each)
        elif number == 5:
            value = _tensor(each)[1]
        elif number == 8:
            ints += _numbers(each)
        require(number not in (6, 7, 9, 10, 11), f"option {name} is of an unknown kind")
    return name, ints if value is None else value


def _tensor(data: bytes) -> tuple[str, Array]:
    shape: list[int] = []
    kind, name, raw = 0, "", None
    plain: list[Any] = []
    for number, value in _fields(data):
        if number == 1:
            shape += _numbers(value)
        elif number == 2:
            kind = value
        elif number == 4:
            require(isinstance(value, bytes) and len(value) % 4 == 0, "a tensor is damaged")
            plain += struct.unpack(f"<{len(value) // 4}f", value)
        elif number == 7:
            plain += _numbers(value)
        elif number == 8:
            name = _text(value)
        elif number == 9:
            raw = value
        require(number not in (13, 14) or not value, f"tensor {name!r} is in another file")
    require(kind in TYPES, f"tensor {name!r} is of type {kind} (accepted: float32, int64)")
    require(all(0 <= side < 2**31 for side in shape), f"tensor {name!r} has shape {shape}")
    if raw is not None:
        require(not plain and isinstance(raw, bytes), f"tensor {name!r} has its numbers twice")
        require(len(raw) % TYPES[kind].itemsize == 0, f"tensor {name!r} is damaged")
        array = np.frombuffer(raw, TYPES[kind])
    else:
        array = np.array(plain, TYPES[kind])
    require(array.size == math.prod(shape), f"tensor {name!r} has {array.size} numbers for {shape}")
    require(kind != FLOAT or np.isfinite(array).all(), f"tensor {name!r} is not finite")
    return name, array.reshape(shape)


def _about(data: bytes) -> tuple[str, tuple[int, ...]]:
    """Name and shape of an input or output; open sides are 1."""
    name, shape = "", []
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number == 2:
            tensor = dict(_fields(value)).get(1, b"")
            about = dict(_fields(tensor))
            require(about.get(1) == FLOAT, f"{name!r} is not float32")
            for side, dim in _fields(about.get(2, b"")):
                shape += [dict(_fields(dim)).get(1, 1)] if side == 1 else []
    require(all(isinstance(side, int) for side in shape), f"the shape of {name!r} is damaged")
    return name, tuple(max(1, side) for side in shape)
