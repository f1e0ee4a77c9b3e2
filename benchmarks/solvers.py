"""Which solver settles what CROWN leaves open, and in how much time: one image at a time.

    python -m benchmarks.solvers [--images 92,151,542,774] [--seconds 120] [--only "bab;lp"]

The network is the public COLT network for MNIST (eps 0.1); by default all images of the first
1,000 are asked that CROWN does not settle, robust or not. Each contender is one verifier, and
begins with CROWN's bounds, whose time does not count. A verdict that contradicts the known truth
ends the run. Seconds are of the CPU, the limit is the clock's: run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.measure import alone, save
from maar.certification import VERIFIERS
from maar.certification.cascade import Cascade
from maar.certification.crown import crown
from maar.certification.network import Network
from maar.certification.query import Query
from maar.certification.verdict import proves
from maar.data import load
from maar.exchange.onnx_in import read_onnx

NETS = Path(__file__).parents[2] / "shared" / "nets"
NETWORK, TRUTH = NETS / "colt_mnist_0.1.onnx", NETS / "colt_mnist_0.1.verdicts.json"
EPS = 0.1

CONTENDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bab": ("bab", {}),
    "lp": ("lp", {}),
    "lp, by SoPlex": ("lp", {"lp_solver": "scip"}),
    "lp, refined": ("lp", {"refinement": "lp"}),
    "milp_last, SCIP, refined": ("milp_last", {"solver": "scip", "refinement": "lp"}),
    "milp_last, HiGHS, refined": ("milp_last", {"solver": "highs", "refinement": "lp"}),
    "milp_conv, SCIP, refined": ("milp_conv", {"solver": "scip", "refinement": "lp"}),
    "milp_conv, HiGHS, refined": ("milp_conv", {"solver": "highs", "refinement": "lp"}),
    "milp, SCIP": ("milp", {"solver": "scip"}),
    "milp, SCIP, refined": ("milp", {"solver": "scip", "refinement": "lp"}),
    "milp, HiGHS, refined": ("milp", {"solver": "highs", "refinement": "lp"}),
}


def settle(contender: str, images: list[int], seconds: float) -> dict[str, Any]:
    """One contender on all images: status and CPU seconds of each."""
    name, settings = CONTENDERS[contender]
    cascade = Cascade((VERIFIERS[name](seconds=seconds, **settings),))
    data, truth = load("mnist"), json.loads(TRUTH.read_text())
    network = Network(read_onnx(NETWORK, mean=[0.1307], std=[0.3081]), data.shape)
    found = []
    for i in images:
        x, y = data.images("test", torch.tensor([i])), int(data.labels("test")[i])
        query = Query.of(network, x, y, EPS, seed=i)
        lb = zip(query.targets, crown(query, torch.float64).lb.tolist(), strict=True)
        query = query.narrowed([k for k, low in lb if not proves(low)])
        start = time.process_time()
        status = cascade.settle(query).status.value
        spent = time.process_time() - start
        wrong = "verified" if i in truth["falsified"] else "falsified"
        if status == wrong:
            raise SystemExit(f"{contender}: image {i} is {status}, which is not the truth")
        found.append({"index": i, "status": status, "seconds": round(spent, 3)})
    return {"contender": contender, "images": found}


def table(rows: list[dict[str, Any]]) -> Table:
    """What each contender settled, and the time it took, open images included."""
    out = Table("contender", "robust", "broken", "open", "median s", "most s", "all s")
    for row in rows:
        status = [image["status"] for image in row["images"]]
        spent = [image["seconds"] for image in row["images"]]
        counts = (status.count(s) for s in ("verified", "falsified", "unknown"))
        times = (f"{value:.2f}" for value in (median(spent), max(spent), sum(spent)))
        out.add_row(row["contender"], *map(str, counts), *times)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", help="indices, separated by commas")
    parser.add_argument("--only", help=f"contenders, separated by semicolons: {list(CONTENDERS)}")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/solvers.json"))
    args = parser.parse_args()
    truth = json.loads(TRUTH.read_text())
    hard = sorted(truth["verified_not_by_crown"] + truth["falsified"])
    images = [int(i) for i in args.images.split(",")] if args.images else hard
    chosen = [name.strip() for name in args.only.split(";")] if args.only else list(CONTENDERS)
    rows = []
    for contender in chosen:
        rows.append(alone(settle, contender, images, args.seconds))
        Console().print(table(rows[-1:]))
    save(args.out, {"network": NETWORK.name, "eps": EPS, "seconds": args.seconds}, rows)
    Console().print(table(rows))


if __name__ == "__main__":
    main()
