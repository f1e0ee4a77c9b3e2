"""Certify the images of a data set: check everything first, then settle what is not yet.

plan = make_plan(net, load("mnist"), eps=0.1, limit=100)
tally = run(plan, "certs/mine")
tally.certified, tally.certified_upper
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import maar
from maar.certificates.folder import subject_of
from maar.certification.display import Display, counts, result, subject
from maar.certification.inquiry import Inquiry
from maar.certification.network import Network
from maar.certification.presets import choose
from maar.certification.proving import certifiable
from maar.certification.record import make_record
from maar.certification.verifier import Verifier
from maar.certification.work import work
from maar.certification.workers import LOCAL, Task, Team
from maar.core.eps import Eps
from maar.core.errors import UsageError
from maar.core.machine import machine
from maar.core.own import file_of
from maar.core.own.neighbours import digest
from maar.data import DataSet
from maar.exchange.onnx_out import onnx_bytes
from maar.networks.checking import LayerError
from maar.records.stores import VERDICT_LINES, Subject, key_of
from maar.records.verdicts import Tally
from maar.regions.perturbation import Perturbation, perturbation

# Seconds for an image: several times what the hardest of a thousand took.
TIMEOUT = 120.0


@dataclass(frozen=True, eq=False)
class Plan:
    """What is to be certified, checked."""

    task: Task
    data: DataSet
    indices: list[int]
    subject: Subject
    eps: Eps
    name: str
    """Of the network, for people."""
    split: str = "test"
    source: dict[str, Any] = field(default_factory=dict)
    """Where the network and the data came from, for `maar audit`."""
    preset: str = ""
    """Of the verifiers; empty if they were listed."""

    @property
    def moves(self) -> Perturbation | None:
        """Where inputs may move, unless it is by eps everywhere within [0, 1]."""
        return self.task.moves

    @property
    def key(self) -> str:
        """The hash of weights, data, eps and verifiers."""
        return key_of(self.subject)

    @property
    def facts(self) -> dict[str, Any]:
        """What a manifest says besides: for people, and for those who read the store later."""
        return {
            "network": self.name,
            "data": self.data.name,
            "classes": list(self.data.classes),
            "prepared": self.data.info.note,
            "moves": "" if self.moves is None else str(self.moves),
            "split": self.split,
            "images": self.data.size(self.split),
            "verifiers": self.task.cascade.names,
            "preset": self.preset,
            "maar": maar.__version__,
            "torch": torch.__version__,
            "machine": machine(),
            "source": self.source,
        }


def _tally(plan: Plan) -> Tally:
    return Tally(len(plan.indices), plan.data.size(plan.split), plan.task.cascade.names)


CERTIFICATION = Inquiry(VERDICT_LINES, make_record, _tally, subject, result, counts, "each")


def make_plan(
    net: nn.Sequential,
    data: DataSet,
    eps: Any,
    *,
    verifiers: Sequence[str] | None = None,
    preset: str | None = None,
    solver: str | None = None,
    timeout: float = TIMEOUT,
    limit: int | None = None,
    indices: Sequence[int] | None = None,
    name: str = "",
    split: str = "test",
    source: dict[str, Any] | None = None,
    certificates: bool = False,
    mask: Any = None,
) -> Plan:
    """Check the request. `limit` takes the first images of the split, `indices` those; else all.

    `verifiers` are names of `VERIFIERS`; without them, `preset` is one of `PRESETS` (default:
    complete). `solver`, of `SOLVERS`, is for the mixed-integer programs of verifiers that have
    any. `timeout`: seconds for each image, all verifiers together. It is no part of the key.
    `certificates`: verdicts come with proofs for `maar_check`; before a mixed-integer program,
    verifiers whose proofs can be written down are asked.
    `eps` and `mask` are those of `maar.regions.perturbation`.
    """
    eps, moves = perturbation(eps, data.shape, data.info.span, mask)
    if not timeout > 0:
        raise UsageError(f"timeout = {timeout} (accepted: a number of seconds > 0, or inf)")
    preset, cascade = choose(verifiers, preset)
    if solver is not None:
        cascade = cascade.with_solver(solver)
    cascade = replace(cascade, timeout=timeout)
    if certificates:
        cascade = certifiable(cascade)
    chosen = _choose(data, split, limit, indices)
    try:
        network = Network(net, data.shape)
    except LayerError as error:
        raise UsageError(f"the network does not take images of {data.name}: {error}") from None
    for index, label in zip(chosen, data.labels(split, chosen).tolist(), strict=True):
        if not 0 <= label < network.classes:
            raise UsageError(
                f"{split} image {index} of {data.name} has label {label} (accepted: 0 to "
                f"{network.classes - 1}, as the network has {network.classes} outputs)"
            )
    subject = {
        "weights": network.hash,
        "data": data.sha256,
        # Which images are for validation depends on how many were asked for.
        "split": split if split == "test" else f"{split} {data.size(split)}",
        "eps": float(eps),
        "verifiers": [spelled(verifier) for verifier in cascade.verifiers],
        **({} if moves is None else {"perturbation": moves.digest}),
    }
    about = None
    if certificates:
        if moves is not None:
            raise UsageError(
                "certificates are about one eps for every pixel, in [0, 1]: not about eps by place"
                " or masks"
            )
        about = subject_of(onnx_bytes(network.net, data.shape), str(eps))
    task = Task(network.net, data.shape, float(eps), cascade, moves, about)
    return Plan(task, data, chosen, subject, eps, name, split, source or {}, preset)


def spelled(verifier: Verifier) -> str:
    """Return a verifier with its settings, as in the key; with its file's hash if it is own."""
    file = file_of(verifier)
    return repr(verifier) if file is None else f"{verifier!r} of {digest(file)}"


def run(
    plan: Plan,
    out: str | Path,
    *,
    workers: int | None = None,
    display: Display[Tally] | None = None,
    team: Team = LOCAL,
) -> Tally:
    """Certify as planned, as `work` does; return the count over all images."""
    tally, _ = work(plan, CERTIFICATION, out, workers=workers, display=display, team=team)
    return tally


def _choose(
    data: DataSet, split: str, limit: int | None, indices: Sequence[int] | None
) -> list[int]:
    there = data.size(split)
    if not there:
        raise UsageError(f"data set {data.name} has no {split} images")
    if limit is not None and indices is not None:
        raise UsageError("limit and indices exclude each other: give one of them")
    if limit is not None and limit < 1:
        raise UsageError(f"limit = {limit} (accepted: 1 or more images)")
    if indices is None:
        return list(range(there if limit is None else min(limit, there)))
    if not indices:
        raise UsageError("indices is empty (accepted: one or more indices of images)")
    for index in indices:
        if not 0 <= index < there:
            raise UsageError(
                f"index {index} is not a {split} image of {data.name} (accepted: 0 to {there - 1})"
            )
    return list(dict.fromkeys(indices))
