"""Write the README's table of measurements from the file that `maar reproduce` wrote.

python scripts/readme_results.py
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from maar.experiments.results import about_share
from maar.experiments.show import caveats, markdown_table, percent, seeds, spread

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "results" / "cpu" / "table1-mnist-0.1.json"
BEGIN, END = "<!-- measured: scripts/readme_results.py -->", "<!-- end of measured -->"


def block(result: dict[str, Any]) -> str:
    """The table, and below it what it was measured with."""
    head = [
        "system",
        "ACC %",
        "published",
        "CR %",
        "published",
        "upper bound %",
        "seeds",
        "minutes",
    ]
    rows = [_row(row) for row in result["rows"] if row["seeds"]]
    images = {row["images"] for row in result["rows"] if row["seeds"]}
    assert len(images) == 1, "rows of different images cannot stand in one table"
    return (
        f"{markdown_table(head, rows)}\n\n"
        f"{images.pop():,} test images; mean ± standard deviation over the seeds; "
        "in brackets the 95 % interval of the share, where fewer than three seeds are behind it. "
        "Minutes: median single-core minutes to train and certify one network, with other jobs "
        f"running ({result['hardware']}). "
        f"Not the paper's protocol: {result['banner']}. Proofs by branch and bound instead of the "
        "paper's MILP. In parentheses: published with another network or verifier. "
        f"Networks: {_networks(result)}.{_missing(result)}{_warning(result)}{_weights(result)} "
        f"Made by\n`{result['command']}`."
    )


def _missing(result: dict[str, Any]) -> str:
    names = [row["system"] for row in result["rows"] if not row["seeds"]]
    return f" Not measured yet: {', '.join(names)}." if names else ""


def _warning(result: dict[str, Any]) -> str:
    said = caveats(result)
    return f" {said[0].upper()}{said[1:]}." if said else ""


def _weights(result: dict[str, Any]) -> str:
    return f" Weights: {result['weights']}." if result["weights"] else ""


def _networks(result: dict[str, Any]) -> str:
    of: dict[str, list[str]] = {}
    for row in result["rows"]:
        if row["seeds"]:
            of.setdefault(row["network"], []).append(row["system"])
    return "; ".join(f"`{name}` ({', '.join(systems)})" for name, systems in of.items())


def _row(row: dict[str, Any]) -> list[str]:
    metrics = row["metrics"]
    cells = [row["system"]]
    for name in ("accuracy", "certified"):
        value = row["published"].get(name)
        form = "{}" if row["is_comparable"] else "({})"
        cells += [_share(metrics[name], row), "" if value is None else form.format(percent(value))]
    minutes = (median(row["train_seconds"]) + median(row["certify_seconds"])) / 60
    return [*cells, _share(metrics["certified_upper"], row), seeds(row), f"{minutes:.0f}"]


def _share(metric: dict[str, Any], row: dict[str, Any]) -> str:
    """With its interval, also where the file is older than intervals."""
    return spread({**about_share(metric["values"], row["images"]), **metric})


def renewed(readme: str, result: dict[str, Any]) -> str:
    """The README with the table in its place."""
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{block(result)}\n\n{END}{after}"


if __name__ == "__main__":
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(renewed(text, json.loads(RESULT.read_text())), encoding="utf-8")
