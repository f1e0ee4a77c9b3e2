"""Certify the images of a data set: check everything first, then settle what is not yet.

plan = make_plan(net, load("mnist"), eps=0.1, limit=100)
tally = run(plan, "certs/mine")
tally.certified, tally.certified_upper
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

import maar
from maar.certify.cascade import Settled
from maar.certify.display import Display
from maar.certify.network import Network
from maar.certify.presets import choose
from maar.certify.record import is_settled, make_record
from maar.certify.store import Store, Subject, header, key_of, open_store
from maar.certify.tally import Tally
from maar.certify.verdict import Status
from maar.certify.workers import LOCAL, Job, Task, Team
from maar.data import DataSet
from maar.eps import Eps
from maar.errors import UsageError
from maar.networks.checking import LayerError

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
    def key(self) -> str:
        """The hash of weights, data, eps and verifiers."""
        return key_of(self.subject)

    @property
    def facts(self) -> dict[str, Any]:
        """What a manifest says besides: for people, and for those who read the store later."""
        return {
            "network": self.name,
            "data": self.data.name,
            "split": self.split,
            "images": self.data.size(self.split),
            "verifiers": self.task.cascade.names,
            "preset": self.preset,
            "maar": maar.__version__,
            "source": self.source,
        }

    def tally(self) -> Tally:
        """An empty count."""
        return Tally(len(self.indices), self.data.size(self.split), self.task.cascade.names)


def make_plan(
    net: nn.Sequential,
    data: DataSet,
    eps: float,
    *,
    verifiers: Sequence[str] | None = None,
    preset: str | None = None,
    timeout: float = TIMEOUT,
    limit: int | None = None,
    indices: Sequence[int] | None = None,
    name: str = "",
    split: str = "test",
    source: dict[str, Any] | None = None,
) -> Plan:
    """Check the request. `limit` takes the first images of the split, `indices` those; else all.

    `verifiers` are names of `VERIFIERS`; without them, `preset` is one of `PRESETS` (default:
    complete). `timeout`: seconds for each image, all verifiers together. It is no part of the key.
    """
    eps = eps if isinstance(eps, Eps) else Eps(eps)
    if not timeout > 0:
        raise UsageError(f"timeout = {timeout} (accepted: a number of seconds > 0, or inf)")
    preset, cascade = choose(verifiers, preset)
    cascade = replace(cascade, timeout=timeout)
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
        "verifiers": [repr(verifier) for verifier in cascade.verifiers],
    }
    task = Task(network.net, data.shape, float(eps), cascade)
    return Plan(task, data, chosen, subject, eps, name, split, source or {}, preset)


def run(
    plan: Plan,
    out: str | Path,
    *,
    workers: int | None = None,
    display: Display | None = None,
    team: Team = LOCAL,
) -> Tally:
    """Settle the images that the folder has no verdict of, and take some again.

    These are the ones that ended in an error, that stayed open with less time than they have now,
    and the falsified ones whose counterexample is gone.

    Returns the count over all images of the plan. An interrupt leaves everything in place, with
    a summary that says so.
    """
    display = display or Display()
    with open_store(Path(out), plan.subject, plan.facts) as store:
        todo, tally = [], plan.tally()
        for index in plan.indices:
            record = store.whole(index)
            if record is not None and is_settled(record, plan.task.cascade.timeout):
                tally.add(record)
            else:
                todo.append(index)
        if todo:
            store.drop_summary()
        workers = workers or team.size(len(todo))
        again = sum(index in store.records for index in todo)
        display.begin(plan, tally, min(workers, max(1, len(todo))), again)
        try:
            _settle(plan, todo, store, tally, team, workers, display)
        finally:
            display.end(tally)  # first: a full disk must not leave the terminal in disorder
            store.write_summary(
                {**header(plan.subject, plan.facts, plan.indices), **tally.summary()}
            )
    return tally


def _settle(
    plan: Plan,
    todo: list[int],
    store: Store,
    tally: Tally,
    team: Team,
    workers: int,
    display: Display,
) -> None:
    pixels = plan.data.images(plan.split, todo).numpy() if todo else []
    labels = plan.data.labels(plan.split, todo).tolist() if todo else []
    jobs = [Job(*job) for job in zip(todo, pixels, labels, strict=True)]
    with contextlib.closing(team.settle_all(plan.task, jobs, workers)) as results:
        for job, settled in results:
            record = make_record(job.index, job.y, settled, plan.task.cascade.timeout)
            store.add(record, _evidence(job, settled))
            tally.add(record)
            display.add(record, tally)


def _evidence(job: Job, settled: Settled) -> dict[str, Any] | None:
    """What INDEX.npz holds of a falsified image."""
    if settled.status is not Status.FALSIFIED:
        return None
    return {
        "x_adv": settled.counterexample,
        "x": job.x,
        "label": job.y,
        "target": settled.target,
    }


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
