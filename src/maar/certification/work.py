"""Work on many images with a store: what is done stays done, what is open may be taken again."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maar.certificates.folder import KINDS as PROVABLE
from maar.certificates.folder import Folder
from maar.certification.agenda import Job
from maar.certification.cascade import Settled
from maar.certification.display import Display
from maar.certification.inquiry import C, Inquiry
from maar.certification.workers import LOCAL, Team
from maar.core.errors import RunError
from maar.core.own import file_of, keep
from maar.records.stores import header
from maar.records.verdicts import Record, is_settled
from maar.records.writing import Store, keep_perturbation, open_store

if TYPE_CHECKING:
    from maar.certification.run import Plan


def work(
    plan: Plan,
    inquiry: Inquiry[C],
    out: str | Path,
    *,
    workers: int | None = None,
    display: Display[C] | None = None,
    team: Team = LOCAL,
) -> tuple[C, list[Record]]:
    """Settle the images that the folder knows nothing of, and take some again.

    These are the ones that ended in an error, that stayed open with less time than they have now,
    and those whose counterexample is gone.

    Returns the count, and the lines, over all images of the plan. An interrupt leaves everything
    in place, with a summary that says so.
    """
    display = display or Display()
    with open_store(Path(out), plan.subject, plan.facts, inquiry.form) as store:
        _require_labels(plan, store)
        for verifier in plan.task.cascade.verifiers:
            if file := file_of(verifier):
                keep(store.path, file)
        if plan.moves is not None:
            keep_perturbation(store.path, plan.moves.arrays())
        store.ask(plan.indices)
        todo, late, tally = list[int](), set[int](), inquiry.tally(plan)
        proofs = _proofs(plan, out)
        for index in plan.indices:
            record = store.whole(index)
            if record is not None and is_settled(record, plan.task.cascade.timeout):
                tally.add(record)
                if proofs and record["verdict"] in PROVABLE and not proofs.has(index):
                    late.add(index)
                    todo.append(index)
            else:
                todo.append(index)
        if todo:
            store.drop_summary()
        again = sum(index in store.records for index in todo if index not in late)
        workers = workers or team.size(len(todo))
        display.begin(plan, tally, min(workers, max(1, len(todo))), again)
        try:
            jobs = jobs_of(plan, todo)
            with contextlib.closing(team.settle_all(plan.task, jobs, workers)) as results:
                for job, settled in results:
                    if proofs:
                        proofs.put(job.index, settled.proof)
                    if job.index in late:
                        continue  # its verdict stands already
                    record = inquiry.record(job.index, job.y, settled, plan.task.cascade.timeout)
                    _enter(store, record, job, settled)
                    tally.add(record)
                    display.add(record, tally)
        finally:
            display.end(tally)  # first: a full disk must not leave the terminal in disorder
            if proofs:
                proofs.finish(
                    (index, record["label"], record["verdict"])
                    for index, record in store.records.items()
                )
            store.write_summary(_summary(plan, inquiry, store))
        return tally, [store.records[index] for index in plan.indices]


def _summary(plan: Plan, inquiry: Inquiry[C], store: Store) -> dict[str, Any]:
    """Sum up the whole folder: this call may have looked at a few of its images only."""
    everything = inquiry.tally(replace(plan, indices=sorted(store.asked)))
    for record in store.records.values():
        everything.add(record)
    return {**header(plan.subject, plan.facts, store.asked), **everything.summary()}


def _proofs(plan: Plan, out: str | Path) -> Folder | None:
    """Where certificates go, if any are asked for."""
    if plan.task.subject is None:
        return None
    folder = Folder(Path(out), plan.task.subject, f"{plan.data.name} {plan.split}")
    folder.begin()
    return folder


def _require_labels(plan: Plan, store: Store) -> None:
    """Check that the lines are about these images: labels do not depend on any verifier."""
    taken = [index for index in plan.indices if index in store.records]
    labels = plan.data.labels(plan.split, taken).tolist() if taken else []
    for index, label in zip(taken, labels, strict=True):
        if (stored := store.records[index]["label"]) != label:
            raise RunError(
                f"{store.verdicts} is damaged: image {index} has label {stored} there, {label} in "
                f"{plan.data.name}"
            )


def jobs_of(plan: Plan, todo: list[int]) -> list[Job]:
    """Return the images of the plan with these indices."""
    pixels = plan.data.images(plan.split, todo).numpy() if todo else []
    labels = plan.data.labels(plan.split, todo).tolist() if todo else []
    return [Job(*job) for job in zip(todo, pixels, labels, strict=True)]


def _enter(store: Store, record: Record, job: Job, settled: Settled) -> None:
    """Add the line, and INDEX.npz if the image was broken."""
    evidence = None
    if store.form.is_broken(record):
        evidence = {
            "x_adv": settled.counterexample,
            "x": job.x,
            "label": job.y,
            "target": settled.target,
        }
    store.add(record, evidence)
