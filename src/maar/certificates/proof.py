"""A certificate as arrays: what `maar_check` reads. The format is docs/certificate-format.md."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from maar.certificates.notes import Notes
from maar.certificates.slopes import STEPS
from maar.certificates.tree import Tree, tree_of
from maar.domains.graph import Graph, one_affine
from maar.domains.reduced.network import Reduced

FORMAT = 1
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Subject:
    """The subject of the certificates of one folder."""

    network: str
    """SHA-256 of network.onnx."""
    eps: str
    """As it was written, such as 2/255."""
    content: bytes = field(repr=False)
    """The ONNX file."""


@dataclass(frozen=True)
class Question:
    """One image."""

    index: int
    label: int
    image: np.ndarray


@dataclass
class Proof:
    """How each ReLU's inputs are bounded, and the arrays that this and the classes need."""

    lemmas: list[str]
    arrays: Arrays = field(default_factory=dict)


def plain_proof(graph: Graph, by_interval: bool) -> Proof:
    """Nothing but the standard slopes, which the checker knows; or intervals alone."""
    values = [graph.nodes[i].inputs[0] for i in graph.relus]
    return Proof(
        ["interval" if by_interval or one_affine(graph, value) else "crown" for value in values]
    )


def noted_proof(graph: Graph, notes: Notes, proved: set[int], seconds: float) -> Proof:
    """The proof with slopes and trees for the classes `proved`; raises `Unproved`."""
    proof = plain_proof(graph, by_interval=False)
    recorded, arrays = notes.recorded, proof.arrays
    networks = [search.network for search in notes.searches.values()]
    network = recorded.network if recorded else networks[0] if networks else None
    if network is None:
        return proof
    columns = [layer.index for layer in network.layers]
    for k, index in enumerate(columns):
        arrays[f"columns.{k}"] = _whole(index)
    for k, inner in (recorded.inner if recorded else {}).items():
        proof.lemmas[k] = "slopes"
        arrays[f"lemma.{k}"] = _whole(columns[k])
        for side, slopes in (("lower", inner.lower), ("upper", inner.upper)):
            for j, slope in enumerate(slopes):
                arrays[f"lemma.{k}.{side}.{j}"] = _bytes(slope * STEPS, STEPS)
    targets = recorded.targets if recorded else ()
    for target in sorted(proved):
        at = targets.index(target) if target in targets else None
        if target in notes.searches:
            search = notes.searches[target]
            usual = _usual(network) if recorded is None or at is None else _row(recorded.last, at)
            _enter(arrays, target, tree_of(search, usual, seconds), columns)
        elif recorded is not None and at is not None:
            slope = (_row(recorded.last, at)[None] * STEPS).round()
            root = Tree([-1], torch.zeros(1), slope, STEPS, torch.zeros(0))
            _enter(arrays, target, root, columns)
    return proof


def _usual(network: Reduced) -> Tensor:
    """The standard slopes of every unstable ReLU."""
    return torch.cat([network.centre.new_zeros(0), *(layer.below for layer in network.layers)])


def _row(slopes: list[Tensor], at: int) -> Tensor:
    """One class's slopes over all columns."""
    return torch.cat([slope[at] for slope in slopes])


def _enter(arrays: Arrays, target: int, tree: Tree, columns: list[Tensor]) -> None:
    """The arrays of one class."""
    layer = [k for k, index in enumerate(columns) for _ in index]
    neuron = [int(each) for index in columns for each in index]
    nodes = [(-1, -1) if node < 0 else (layer[node], neuron[node]) for node in tree.nodes]
    name = f"class.{target}"
    arrays[f"{name}.tree"] = np.array(nodes, "<i4").reshape(-1, 2)
    arrays[f"{name}.which"] = _whole(tree.which)
    arrays[f"{name}.prices"] = tree.prices.numpy().astype("<f4")
    parts = tree.slopes.split([len(index) for index in columns], 1)
    for k, part in enumerate(parts):
        arrays[f"{name}.slopes.{k}"] = _bytes(part, tree.steps)


def _whole(values: Tensor) -> np.ndarray:
    return values.numpy().astype("<i4")


def _bytes(values: Tensor, steps: int) -> np.ndarray:
    """Whole numbers up to `steps`, in one byte or two."""
    return values.round().numpy().astype("|u1" if steps == STEPS else "<u2")


def packed(kind: str, subject: Subject, question: Question, proof: Proof | None = None) -> bytes:
    """The file of one certificate: `kind` is verified, falsified or misclassified."""
    about = {
        "format": FORMAT,
        "kind": kind,
        "network": subject.network,
        "index": question.index,
        "label": question.label,
        "eps": subject.eps,
        "low": "0",
        "high": "1",
        "lemmas": proof.lemmas if proof and kind == "verified" else [],
    }
    arrays = {
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
        "image": question.image.astype("<f4"),
        **(proof.arrays if proof else {}),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.ascontiguousarray(array), version=(1, 0))
            # (without a date: equal proofs make equal files)
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
