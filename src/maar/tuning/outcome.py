"""Result of a study: the Pareto front, as JSON for the report, and the chosen recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import maar
from maar.core.errors import RunError, UsageError
from maar.core.files import json_text, write_text
from maar.tuning.knobs import recipe, turned
from maar.tuning.study import Search

FORMAT = 1
SHOWN = 10


def outcome(search: Search, study: Any, command: str) -> dict[str, Any]:
    """Everything that is known of the trials, as in tune.json."""
    trials = [_about(trial) for trial in study.trials]
    front = pareto(trials)
    return {
        "format": FORMAT,
        "command": command,
        "maar": maar.__version__,
        **search.facts(),
        "data": search.config.data,
        "valid": search.config.valid,
        "split": "valid",
        "trials": trials,
        "front": [trial["number"] for trial in front],
    }


def _about(trial: Any) -> dict[str, Any]:
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "knobs": dict(trial.params),
        "score": trial.user_attrs.get("score", {}),
        "reason": trial.user_attrs.get("reason", ""),
    }


def pareto(trials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the trials that no other beats in accuracy and CR, by falling CR."""
    scored = [trial for trial in trials if trial["score"]]
    front = [one for one in scored if not any(_beats(other, one) for other in scored)]
    return sorted(front, key=lambda trial: (-trial["score"]["certified"], trial["number"]))


def _beats(one: dict[str, Any], other: dict[str, Any]) -> bool:
    pairs = [(one["score"][goal], other["score"][goal]) for goal in ("accuracy", "certified")]
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def choose(found: dict[str, Any], number: int | None) -> dict[str, Any]:
    """Return the trial of this number; for None, that of the highest CR."""
    scored = {trial["number"]: trial for trial in found["trials"] if trial["score"]}
    if not scored:
        raise RunError("no trial is finished: give it more --hours, with --resume")
    if number is None:
        return scored[found["front"][0]]
    if number not in scored:
        raise UsageError(f"--choose {number} (accepted: {', '.join(map(str, scored))})")
    return scored[number]


def write(search: Search, found: dict[str, Any], chosen: dict[str, Any]) -> None:
    """Write tune.json and the chosen recipe."""
    write_text(search.folder / "tune.json", json_text({**found, "chosen": chosen["number"]}))
    config = turned(search.config, search.knobs, chosen["knobs"])
    text = provenance(found, chosen) + "\n" + recipe(config)
    write_text(search.folder / "chosen.toml", text)


def provenance(found: dict[str, Any], chosen: dict[str, Any]) -> str:
    """Write the trials behind a recipe, as comments."""
    score = chosen["score"]
    ended = [trial for trial in found["trials"] if trial["state"] not in ("waiting", "running")]
    lines = [
        f"Trial {chosen['number']} of {len(ended)}, found by: {found['command']}",
        f"Scored on validation images alone: accuracy of {score['accuracy_images']:,}, CR of the "
        f"first {score['certified_images']:,} (preset {found['preset']}, {found['timeout']:g} s an "
        "image).",
        f"Knobs: {', '.join(found['knobs'])}",
        "",
        "trial  accuracy %  CR %   knobs",
    ]
    best = sorted((t for t in ended if t["score"]), key=lambda t: -t["score"]["certified"])
    for trial in best[:SHOWN]:
        knobs = ", ".join(f"{name} {_short(value)}" for name, value in trial["knobs"].items())
        accuracy, certified = (100 * trial["score"][goal] for goal in ("accuracy", "certified"))
        lines.append(f"{trial['number']:>5}  {accuracy:>10.2f}  {certified:>5.2f}  {knobs}")
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
