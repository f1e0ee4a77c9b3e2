"""Run a whole list of VNN-COMP instances, in this process or in several."""

from __future__ import annotations

import multiprocessing
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

from maar.core import clock
from maar.core.errors import MaarError
from maar.exchange.instances import Instance
from maar.reporting.scoreboard import Outcome

if TYPE_CHECKING:
    from maar.certification.properties.decide import Decision

Answer = tuple[Outcome, str]
"""What became of an instance, and its witness as VNN-COMP writes it, or nothing."""


def run(
    folder: Path,
    instances: Sequence[Instance],
    *,
    timeout: float | None = None,
    workers: int = 1,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    done: Collection[tuple[str, str]] = (),
) -> Iterator[Answer]:
    """Answers as they come; an instance that fails is an `error` and stops no other.

    Paths are relative to `folder`. Instances in `done` (network, property) are left out.
    """
    asked = [i for i in instances if (i.network, i.property) not in done]
    options = [(folder, instance, timeout or instance.timeout, mean, std) for instance in asked]
    if workers == 1:
        yield from (_answer(*each) for each in options)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_one_thread) as pool:
        waiting = [pool.submit(_answer, *each) for each in options]
        try:
            for future in as_completed(waiting):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _answer(
    folder: Path,
    instance: Instance,
    timeout: float,
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
) -> Answer:
    from maar.api.checking import verify

    begin = clock.now()
    network, prop = folder / instance.network, folder / instance.property
    try:
        found = verify(network, prop, timeout=timeout, mean=mean, std=std)
    except MaarError as error:
        return _outcome(instance, timeout, "error", clock.now() - begin, reason=str(error)), ""
    seconds = clock.now() - begin
    outcome = _outcome(instance, timeout, found.verdict, seconds, found.by or "", found.reason)
    return outcome, written(found)


def written(found: Decision) -> str:
    """The answer as VNN-COMP wants it in a file."""
    return f"{found.verdict}\n{found.witness}\n" if found.witness else f"{found.verdict}\n"


def _outcome(
    instance: Instance, timeout: float, result: str, seconds: float, by: str = "", reason: str = ""
) -> Outcome:
    return Outcome(
        instance.category(),
        instance.network,
        instance.property,
        timeout,
        result,
        round(seconds, 3),
        by,
        reason,
        instance.expected,
    )
