"""What each verifier of the cascade costs: CPU seconds per image, this code beside another.

    python -m benchmarks.cascade [--images 320] [--hard 774,542] [--beside FOLDER]

`--beside` is a checkout of another commit (`git worktree add FOLDER COMMIT`): both are run in turn,
block by block, each in a process of its own with one thread, so that a busy machine slows both
alike. The images are the first ones; `--hard` adds images, for `alpha_crown`, `pgd` and `bab`.
Verdicts that differ end the benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import save

HERE = Path(__file__).parents[1]
COLT = Path(__file__).parents[2] / "shared" / "nets" / "colt_mnist_0.1.onnx"
OUT = Path("results/benchmarks/cascade.json")
# Of the COLT network: the longest proofs among the first 10,000 images, and middling ones.
HARD = "18,62,92,193,264,542,774,813,1415,1500,2422,3330,4443"
BLOCK = 32
# In a process of its own, with whatever version of maar is on its path: the verifiers of both are
# timed by the process's own clock, whatever clock their verdicts have.
WORKER = """
import json, sys, time
import torch
from maar.certification import CASCADE, cascade
from maar.certification.cascade import Cascade
from maar.certification.network import PRECISIONS, Network
from maar.certification.query import Query
from maar.cli.subject import subject
from maar.data import load

torch.set_num_threads(1)
cascade.time.perf_counter = time.process_time
found = subject(sys.argv[1], "mnist", "0.1", mean=(0.1307,), std=(0.3081,))
data = load("mnist")
network = Network(found.net, data.shape)
for dtype in PRECISIONS:
    network.graph(dtype)
chosen = Cascade.named(CASCADE)
print(json.dumps({"verifiers": chosen.names}), flush=True)
for line in sys.stdin:
    indices = json.loads(line)
    x, y = data.images("test", indices), data.labels("test", indices).tolist()
    queries = [Query.of(network, x[n:n + 1], y[n], 0.1, i) for n, i in enumerate(indices)]
    if hasattr(chosen, "begin"):
        begun = chosen.begin(queries)
        settled = [chosen.settle(query, one) for query, one in zip(queries, begun)]
    else:
        settled = [chosen.settle(query) for query in queries]
    answer = [[one.status.value, one.by, one.times] for one in settled]
    print(json.dumps(answer), flush=True)
"""


class Side:
    """One version of maar at work."""

    def __init__(self, name: str, folder: Path, network: Path) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(network)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"},
        )
        names = self._answer()["verifiers"]
        self.seconds, self.images = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0)
        self.settle([0])  # the first image of a process takes longer

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self.name} has ended: see above")
        return json.loads(line)

    def settle(self, indices: list[int]) -> list[tuple[str, str | None, dict[str, float]]]:
        """(verdict, by, CPU seconds by verifier) of each image."""
        assert self.process.stdin is not None
        print(json.dumps(indices), file=self.process.stdin, flush=True)
        return self._answer()

    def add(self, indices: list[int]) -> list[str]:
        """Settle and count; the verdicts."""
        answers = self.settle(indices)
        for _, _, times in answers:
            for name, seconds in times.items():
                self.seconds[name] += seconds
                self.images[name] += 1
        return [verdict for verdict, _, _ in answers]


def main() -> None:
    parser = argparse.ArgumentParser(description="what each verifier costs")
    parser.add_argument("--network", type=Path, default=COLT)
    parser.add_argument("--images", type=int, default=320)
    parser.add_argument("--hard", default=HARD, help="further images, with commas")
    parser.add_argument("--beside", type=Path, help="a checkout of another commit")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()

    folders = {"this": HERE, **({"beside": args.beside.resolve()} if args.beside else {})}
    sides = [Side(name, folder, args.network) for name, folder in folders.items()]
    first = list(range(args.images))
    blocks = [first[start : start + BLOCK] for start in range(0, len(first), BLOCK)]
    blocks += [[int(index)] for index in args.hard.split(",") if index]
    for number, block in enumerate(blocks):
        verdicts = [side.add(block) for side in sides]
        for index, *found in zip(block, *verdicts, strict=True):
            decided = set(found) - {"unknown"}
            if len(decided) > 1:
                raise SystemExit(f"image {index}: {' here, '.join(found)} beside")
        print(f"{number + 1} of {len(blocks)} blocks", flush=True)

    rows = [
        {
            "side": side.name,
            "verifier": name,
            "images": count,
            "cpu_seconds": side.seconds[name],
            "ms_per_image": 1e3 * side.seconds[name] / count if count else None,
        }
        for side in sides
        for name, count in side.images.items()
    ]
    table = Table(box=None, header_style="dim")
    for column in ("side", "verifier", "images", "CPU seconds", "ms per image"):
        table.add_column(column, justify="left" if column in ("side", "verifier") else "right")
    for row in rows:
        each = "" if row["ms_per_image"] is None else f"{row['ms_per_image']:.1f}"
        cells = row["side"], row["verifier"], str(row["images"]), f"{row['cpu_seconds']:.2f}"
        table.add_row(*cells, each)
    Console().print(table)
    settings = {"network": args.network.name, "images": args.images, "hard": args.hard}
    save(args.out, settings, rows)


if __name__ == "__main__":
    main()
