"""Write the measured part of experiments/times.toml from the results in results/.

python scripts/times.py
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TIMES = ROOT / "src" / "maar" / "experiments" / "times.toml"
BEGIN = "# --- measured: scripts/times.py ---\n"


def measured(results: Path) -> str:
    """Return medians over the runs of each recipe: seconds of training, seconds an image."""
    train: dict[str, list[float]] = {}
    certify: dict[str, list[float]] = {}
    for path in sorted(results.glob("*/runs/*-seed[0-9]*.json")):
        recipe = path.stem.rpartition("-seed")[0]
        if not recipe.endswith((path.parent.parent.name, "-papernet")):
            continue  # changed by flags
        for training in json.loads(path.read_text())["trainings"]:
            for task in training["tasks"]:
                _add(task, recipe, train, certify)
    lines = [BEGIN, "[train]\n", *(f'"{k}" = {median(v):.0f}\n' for k, v in sorted(train.items()))]
    lines += ["\n[certify]\n", *(f'"{k}" = {median(v):.3f}\n' for k, v in sorted(certify.items()))]
    return "".join(lines)


def _add(
    task: dict[str, Any],
    recipe: str,
    train: dict[str, list[float]],
    certify: dict[str, list[float]],
) -> None:
    asked, result = task["asked"], task["result"]
    if asked["what"] == "train":
        train.setdefault(recipe, []).append(result["seconds"])
    elif asked["what"] == "certify" and asked["weights"] == "model":
        each = result["seconds"] / result["images"]
        certify.setdefault(f"{recipe} {asked['preset']}", []).append(each)


def renewed(text: str, results: Path) -> str:
    """Return the file with its measured part made again."""
    return text.partition(BEGIN)[0] + measured(results)


if __name__ == "__main__":
    TIMES.write_text(renewed(TIMES.read_text(), ROOT / "results"))
