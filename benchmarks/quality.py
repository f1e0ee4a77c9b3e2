"""Train and certify COLT, MAT and MAAR at equal budget, seed by seed, and tabulate the results.

    python -m benchmarks.quality mnist-0.1 [--profile cpu] [--methods colt,mat,maar] [--seeds 0,1,2]
                                 [--runs runs] [--limit N] [--jobs 2] [--out results/mnist-0.1.json]

Each row is `maar train SETTING-METHOD-PROFILE --seed S` and `maar certify` on its run, with one
thread for each of `--jobs` runs side by side. Stopped and started again, it continues. ACC and CR
are of the test images; CR counts what is proved, `upper` what no attack has broken.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def row(name: str, method: str, seed: int, runs: Path, limit: int | None) -> dict[str, Any]:
    """Train and certify one run; nothing is done twice."""
    run = runs / f"{name}-seed{seed}"
    train = ["train", name, "--seed", str(seed), "--threads", "1", "--runs", str(runs)]
    certify = ["certify", str(run), "--workers", "1"]
    if limit is not None:
        certify += ["--limit", str(limit)]
    for words in ([*train, "--name", run.name, "--resume"], certify):
        log = runs / f"{run.name}-{words[0]}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "a") as file:
            command = [sys.executable, "-m", "maar", *words]
            if subprocess.run(command, stdout=file, stderr=file, check=False).returncode:
                raise SystemExit(f"maar {' '.join(words)} failed: see {log}")
    result = json.loads((run / "result.json").read_text())
    summary = json.loads((run / "certify" / "summary.json").read_text())
    return {
        "method": method,
        "seed": seed,
        "accuracy": summary["accuracy"],
        "certified": summary["certified"],
        "certified_upper": summary["certified_upper"],
        "images": summary["images"],
        "verified_by": {k: v["verified"] for k, v in summary["verifiers"].items() if v["verified"]},
        "train_seconds": result["seconds"],
        "certify_seconds": summary["seconds"],
        "config_hash": result["config_hash"],
        "weights": summary["weights"],
        "commands": [f"maar {' '.join(train[:4])}", "maar certify RUN --workers 1"],
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Each run, and mean and spread of each method."""
    table = Table("method", "seed", "ACC %", "CR %", "upper %", "train s", "certify s")
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        for each in mine:
            shares = [f"{100 * each[k]:.2f}" for k in ("accuracy", "certified", "certified_upper")]
            seconds = [f"{each[k]:.0f}" for k in ("train_seconds", "certify_seconds")]
            table.add_row(method, str(each["seed"]), *shares, *seconds)
        if len(mine) > 1:
            cells = []
            for key in ("accuracy", "certified", "certified_upper"):
                values = [100 * each[key] for each in mine]
                cells.append(f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}")
            table.add_row(method, "mean", *cells, "", "", style="bold", end_section=True)
    Console().print(table)


def main() -> None:
    """Do all runs, print the table, write the file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("setting", help="such as mnist-0.1")
    parser.add_argument("--profile", default="cpu")
    parser.add_argument("--methods", default="colt,mat,maar")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--limit", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    jobs = [
        (f"{args.setting}-{method}-{args.profile}", method, int(seed), args.runs, args.limit)
        for seed in args.seeds.split(",")
        for method in args.methods.split(",")
    ]
    with ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda job: row(*job), jobs))
    show(rows)
    out = args.out or Path("results") / f"{args.setting}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    settings = {"command": f"python -m benchmarks.quality {' '.join(sys.argv[1:])}"}
    out.write_text(json.dumps({"settings": settings, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
