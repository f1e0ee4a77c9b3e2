"""Whatever a file holds, reading it gives a value or one of maar's own errors, and soon."""

import random
import time

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("vnnlib")

import hostile  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

from maar.core.errors import MaarError  # noqa: E402
from maar.exchange.instances import read_instances  # noqa: E402
from maar.exchange.onnx_in import read_with_shape  # noqa: E402
from maar.exchange.onnx_table import OPERATORS  # noqa: E402
from maar.exchange.vnnlib import read_vnnlib  # noqa: E402

LONGEST = 20.0  # seconds for one file of a few KB, on a busy machine
WORDS = (
    b'( ) (and (or (assert (<= (>= (< (> (= (+ (- (* (/ X_0 X_1 Y_0 Y_1 X_00 X_9 Y_ 0 -1 0.5 " ; '
    b"1e400 1e-400 .5 1. +1.E+1 nan 1e999999999 (declare-const Real (set-info (check-sat) [ ] , "
    b"X[0,0] Y[0,1] (declare-network (vnnlib-version <2.0>) \x00 \xff \n \r"
).split(b" ")
NUMBERS = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 2**20, 2**31 - 1, 2**40, 2**63 - 1)


def mutated(content: bytes, chance: random.Random) -> bytes:
    """The content with a few bytes or words changed, left out, repeated or put in."""
    out = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        at = chance.randint(0, len(out))
        until = min(len(out), at + chance.choice((1, 1, 2, 8, 64)))
        match chance.randrange(6):
            case 0 if out:
                out[min(at, len(out) - 1)] = chance.randrange(256)
            case 1:
                del out[at:until]
            case 2:
                out[at:at] = out[at:until] * chance.choice((1, 2, 50))
            case 3:
                out[at:at] = b" " + chance.choice(WORDS) + b" "
            case 4:
                out[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 9)))
            case _:
                del out[at if chance.random() < 0.1 else len(out) :]
    return bytes(out)


def properties(chance: random.Random) -> bytes:
    seeds = [text for text, _ in hostile.PROPERTIES.values() if len(text) < 5000]
    seeds += [hostile.SAFE, f"{hostile.HEAD_2}(assert (or (<= Y[0,0] 1.0) (>= X[0,1] -2.5)))"]
    return mutated(chance.choice([hostile.content_of(seed) for seed in seeds]), chance)


def networks(chance: random.Random) -> bytes:
    if chance.random() < 0.5:
        return random_graph(chance)
    seeds = [net for net, _ in hostile.NETWORKS.values() if len(net) < 5000]
    return mutated(chance.choice(seeds), chance)


def random_graph(chance: random.Random) -> bytes:
    """Operators with inputs that fit or do not, and attributes out of all proportion."""
    image = chance.choice([[1, 4], [0, 1, 4, 4], [3, 2, 3, 3], [1, chance.choice(NUMBERS), 2]])
    tensors, names = [], ["x"]
    for k in range(chance.randint(1, 5)):
        shape = [chance.choice((1, 1, 2, 3, 4)) for _ in range(chance.randint(0, 4))]
        kind = chance.choice((TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64))
        values = [chance.choice((-1, 0, 1, 2, 4)) for _ in range(int(np.prod(shape)))]
        tensor = helper.make_tensor(f"t{k}", kind, shape, values)
        if chance.random() < 0.1 and shape:
            tensor.dims[0] = chance.choice(NUMBERS)
        tensors.append(tensor)
        names.append(tensor.name)
    nodes = []
    for k in range(chance.randint(1, 8)):
        inputs = " ".join(
            names[-1] if chance.random() < 0.5 else chance.choice(names)
            for _ in range(chance.randint(0, 5))
        )
        attributes = {}
        for name in ("axis", "pads", "strides", "kernel_shape", "dilations", "group", "axes"):
            if chance.random() < 0.15:
                count = chance.choice((1, 2, 4))
                values = [chance.choice(NUMBERS) for _ in range(count)]
                attributes[name] = values[0] if name in ("axis", "group") else values
        if chance.random() < 0.1:
            attributes[chance.choice(("value_ints", "value_floats", "alpha", "epsilon"))] = 0.5
        nodes.append(hostile.node(chance.choice(list(OPERATORS)), inputs, f"v{k}", **attributes))
        names.append(f"v{k}")
    return hostile.model(nodes, names[-1], image=("x", TensorProto.FLOAT, image), tensors=tensors)


def tables(chance: random.Random) -> bytes:
    return mutated(b"a.onnx,p.vnnlib,60\nb.onnx,q.vnnlib,1.5\n", chance)


READERS = {
    "vnnlib": (properties, read_vnnlib),
    "onnx": (networks, read_with_shape),
    "csv": (tables, read_instances),
}


def fuzz(kind: str, folder, seconds: float, start: int) -> int:
    """Read files for so many seconds; the number of a file that fails is in the error."""
    make, read = READERS[kind]
    end = time.monotonic() + seconds
    number = start
    while time.monotonic() < end:
        path = folder / f"{number}.{kind}"
        path.write_bytes(make(random.Random(number)))
        begin, told = time.monotonic(), ""
        try:
            read(path)
        except MaarError as error:
            told = str(error)
        except Exception as error:
            raise AssertionError(f"number {number}: {error!r}") from error
        assert told.isprintable(), f"number {number}: {told!r}"
        assert len(told) < 1000, f"number {number}: {told}"
        assert time.monotonic() - begin < LONGEST, f"number {number}"
        path.unlink()
        number += 1
    return number - start


@pytest.mark.parametrize("kind", READERS)
def test_a_few_files(tmp_path, kind):
    assert fuzz(kind, tmp_path, 4, start=0) > 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
def test_many_files(tmp_path, kind):
    assert fuzz(kind, tmp_path, 60, start=random.randrange(10**9)) > 500
