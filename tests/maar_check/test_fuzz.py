"""Random edits of valid certificates: what is accepted must be true."""

import json

import numpy as np
import pytest
import torch
from tests.maar_check.test_forgeries import npy, zipped

from maar.certification.cascade import Cascade
from maar.certification.network import Network
from maar.certification.query import Query
from maar.certification.verdict import Status
from maar_check.arithmetic import Floats
from maar_check.certificate import read_arrays, read_certificate
from maar_check.claim import check
from maar_check.network import read_network
from maar_check.refusal import Refused

ROUNDS = 250


def edited(content, generator):
    """A certificate with one thing in it changed, or bytes of the file."""
    if generator.random() < 0.15:
        data = bytearray(content)
        for _ in range(generator.integers(1, 4)):
            data[generator.integers(len(data))] = generator.integers(256)
        return bytes(data)
    arrays = {name: array.copy() for name, array in read_arrays(content).items()}
    name = generator.choice([name for name in arrays if arrays[name].size])
    array = arrays[name]
    if name == "about":
        about = json.loads(array.tobytes())
        field = generator.choice(["label", "eps", "kind", "lemmas"])
        about[field] = {
            "label": int(generator.integers(4)),
            "eps": str(generator.choice(["0.01", "0.04", "0.06", "1/9"])),
            "kind": str(generator.choice(["verified", "falsified", "misclassified"])),
            "lemmas": generator.choice(["interval", "crown", "slopes"], 3).tolist(),
        }[field]
        arrays[name] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    elif generator.random() < 0.2:
        arrays[name] = array[: generator.integers(len(array))]
    else:
        flat = array.reshape(-1)
        for _ in range(generator.integers(1, 6)):
            place = generator.integers(flat.size)
            if array.dtype.kind == "f":
                flat[place] = generator.choice([0.0, 1.0, -1.0, 1e30, flat[place] * 2, np.nan])
            else:
                least, most = (-2, 20) if array.dtype.kind == "i" else (0, 255)
                flat[place] = generator.integers(least, most)
    return zipped({key: npy(value) for key, value in arrays.items()})


def is_true(net, claimed):
    """Ask maar's complete verifier, which knows nothing of the certificate."""
    image = torch.from_numpy(claimed.image.copy())
    network = Network(net, tuple(image.shape))
    query = Query.of(network, image[None], claimed.label, float(claimed.eps))
    settled = Cascade.named(["misclassified", "pgd", "crown", "alpha_crown", "bab"]).settle(query)
    broken = settled.status in (Status.FALSIFIED, Status.MISCLASSIFIED)
    return not broken if claimed.kind == "verified" else broken


@pytest.mark.parametrize("by", ["crown", "alpha_crown", "bab", "quick_pgd"])
def test_no_edit_makes_the_checker_accept_what_is_false(made, by):
    network = read_network((made.path / "network.onnx").read_bytes())
    content = (made.path / f"{made.one(by)}.npz").read_bytes()
    generator = np.random.default_rng(len(by))
    accepted, refused, known = 0, 0, {}
    for _ in range(ROUNDS):
        try:
            claimed = read_certificate(edited(content, generator))
            check(network, claimed, Floats)
        except Refused:
            refused += 1
            continue
        accepted += 1
        key = (claimed.image.tobytes(), claimed.label, claimed.eps, claimed.kind)
        if key not in known:
            known[key] = is_true(made.net, claimed)
        assert known[key]
    assert refused > 50
    assert accepted > 0
