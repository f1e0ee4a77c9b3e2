"""What a second worker brings: `maar certify` with one and with two, alternating in one run.

    python -m benchmarks.workers [--network FILE.onnx] [--images 200] [--rounds 3] [--workers 1 2]

Each figure is the clock of the whole command, start-up included, in a fresh process and folder.
`image seconds` is the sum of what the images took: where it grows with the workers, the cores share
something (memory, cache, clock), and no start-up or order of work can make up for that. The
machine must have nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import save

COLT = Path(__file__).parents[2] / "shared" / "nets" / "colt_mnist_0.1.onnx"
OUT = Path("results/benchmarks/workers.json")


def certify(network: Path, images: int, workers: int) -> dict[str, Any]:
    """One command; how long it took, and what it found."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "maar", "certify", str(network)]
        command += ["--mean", "0.1307", "--std", "0.3081", "--data", "mnist", "--eps", "0.1"]
        command += ["--limit", str(images), "--workers", str(workers), "--out", out]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        records = map(json.loads, (Path(out) / "verdicts.jsonl").read_text().splitlines())
        found = {record["index"]: record for record in records}
    return {
        "workers": workers,
        "seconds": seconds,
        "image_seconds": sum(record["seconds"] for record in found.values()),
        "longest": max(record["seconds"] for record in found.values()),
        "verdicts": {index: record["verdict"] for index, record in sorted(found.items())},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="what a second worker brings")
    parser.add_argument("--network", type=Path, default=COLT)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()

    rows: list[dict[str, Any]] = []
    for number in range(args.rounds):
        for workers in args.workers:
            row = certify(args.network, args.images, workers)
            verdicts = row.pop("verdicts")
            if verdicts != (first := rows[0]["verdicts"] if rows else verdicts):
                differ = [index for index in verdicts if verdicts[index] != first[index]]
                raise SystemExit(f"images {differ} have another verdict with {workers} workers")
            rows.append({"round": number, **row, "verdicts": verdicts})
            print(f"round {number + 1}: {workers} workers {row['seconds']:.1f} s", flush=True)
    for row in rows:
        del row["verdicts"]

    table = Table(box=None, header_style="dim")
    for column in ("workers", "seconds", "times as fast", "image seconds", "longest image"):
        table.add_column(column, justify="right")
    medians = {w: _medians([row for row in rows if row["workers"] == w]) for w in args.workers}
    base = medians[args.workers[0]]["seconds"]
    ratios = {workers: base / found["seconds"] for workers, found in medians.items()}
    for workers, found in medians.items():
        table.add_row(
            str(workers),
            f"{found['seconds']:.1f}",
            f"{ratios[workers]:.2f}",
            f"{found['image_seconds']:.1f}",
            f"{found['longest']:.1f}",
        )
    Console().print(table)
    settings = {
        "network": args.network.name,
        "images": args.images,
        "rounds": args.rounds,
        "ratios": {str(workers): ratio for workers, ratio in ratios.items()},
    }
    save(args.out, settings, rows)


def _medians(rows: list[dict[str, Any]]) -> dict[str, float]:
    names = ("seconds", "image_seconds", "longest")
    return {name: statistics.median(row[name] for row in rows) for name in names}


if __name__ == "__main__":
    main()
