"""What every benchmark shares: a reference in the same run, CPU time, peak memory.

Absolute times on a shared machine mean little from one day to the next. Each figure is
therefore also given as a multiple of a fixed 1024 x 1024 x 1024 float32 matrix product,
timed by the same process just before and after.
"""

from __future__ import annotations

import json
import multiprocessing
import platform
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from maar import __version__


def matmul_ms(repeats: int = 10) -> float:
    """Milliseconds of the reference product, the quickest of several: CPU time on one thread,
    which other processes do not lengthen, and the clock's on more."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    a = torch.ones(1024, 1024)
    best = float("inf")
    for _ in range(repeats):
        start = clock()
        _ = a @ a
        best = min(best, clock() - start)
    return best * 1e3


def peak_mb() -> float:
    """The most memory that this process has held, in MB."""
    factor = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * factor / 1e6


def alone(work: Callable[..., dict[str, Any]], *args: Any, threads: int = 1) -> dict[str, Any]:
    """Run `work` in a fresh process with so many threads; add peak memory and the reference."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measured, (work, args, threads))


def together(
    work: Callable[..., dict[str, Any]], *args: Any, processes: int, threads: int = 1
) -> dict[str, Any]:
    """Run `work` in so many connected processes (gloo): the first one's result, the sum of memory.

    Each calls `work(*args)` between `torch.distributed`'s start and end.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place, context.Pool(processes) as pool:
        meeting = f"file://{place}/meet"
        ranks = [(rank, processes, meeting, work, args, threads) for rank in range(processes)]
        found = pool.starmap(_connected, ranks, chunksize=1)
    return {**found[0], "peak_mb": sum(one["peak_mb"] for one in found)}


def _connected(
    rank: int,
    processes: int,
    meeting: str,
    work: Callable[..., dict[str, Any]],
    args: tuple[Any, ...],
    threads: int,
) -> dict[str, Any]:
    torch.distributed.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=processes
    )
    try:
        return _measured(work, args, threads)
    finally:
        torch.distributed.destroy_process_group()


def _measured(
    work: Callable[..., dict[str, Any]], args: tuple[Any, ...], threads: int
) -> dict[str, Any]:
    torch.set_num_threads(threads)
    before = matmul_ms()
    result = work(*args)
    return {**result, "matmul_ms": (before + matmul_ms()) / 2, "peak_mb": peak_mb()}


def save(
    path: Path, settings: dict[str, Any], rows: list[dict[str, Any]], threads: int = 1
) -> None:
    """Write what was measured beside how."""
    machine = {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "maar": __version__,
        "threads": threads,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"settings": settings, "machine": machine, "rows": rows}, indent=1))


def bytes_of(text: str) -> int:
    """ "4GB" or "512MB" as bytes."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20)):
        if text.upper().endswith(unit) and text[:-2].replace(".", "", 1).isdigit():
            return int(float(text[:-2]) * size)
    raise SystemExit(f"--memory-budget {text!r}: accepted are sizes such as 4GB or 512MB")
