"""Our numbers beside the published ones: for the terminal, as Markdown and as JSON."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import maar
from maar.certification.compare import require_agreement
from maar.core.eps import Eps
from maar.core.errors import MaarError
from maar.core.machine import machine
from maar.experiments.kept import caveat
from maar.experiments.measured import State, in_folder, state_of
from maar.experiments.plan import Plan, Point, Run, Task, network_of
from maar.experiments.published import Published, everything, published
from maar.records.stores import VERDICT_LINES
from maar.records.verdicts import Record, wilson

FORMAT = 1
# A verifier looks at the clock between two of its steps.
OVERTIME = 1.5
# With fewer images or seeds than these behind a number, it comes with an interval.
ENOUGH, SEEDS = 10_000, 3
Object = dict[str, Any]


@dataclass(frozen=True)
class Seed:
    """What was measured on one run for one row."""

    run: Run
    states: tuple[tuple[Task, State], ...]
    is_stage: bool = False
    """Whether it is of a stage's weights."""

    def result(self, what: str) -> Object:
        """Of the task of that kind; empty if there is none."""
        return next((state.result for task, state in self.states if task.what == what), {})

    @property
    def is_whole(self) -> bool:
        return all(state.result for _, state in self.states)

    @property
    def is_kept(self) -> bool:
        """Whether anything of it was measured before."""
        return any(state.is_kept for _, state in self.states)

    @property
    def metrics(self) -> dict[str, float]:
        """Shares of images by name."""
        train, certify = self.result("train"), self.result("certify")
        # On all test images; an earlier stage's weights are known from the certified ones only.
        accuracy = certify.get("accuracy_of_these") if self.is_stage else train.get("accuracy")
        values = {
            "accuracy": accuracy,
            "certified": certify.get("certified"),
            "certified_upper": certify.get("certified_upper"),
            "latent_robustness": self.result("evaluate").get("latent_robustness"),
            "verified_error": train.get("verified_error"),
        }
        return {name: value for name, value in values.items() if value is not None}


def result(plan: Plan, command: str, failed: dict[Task, str]) -> Object:
    """Everything that is known now, for NAME.json."""
    experiment, profile = plan.experiment, plan.choice.profile
    rows, missing, spent, models = [], 0, {}, {}
    for point in plan.points:
        seeds = [
            Seed(run, tuple((task, state_of(task)) for task in tasks), point.stage > 0)
            for run, tasks in zip(point.runs, point.tasks, strict=True)
        ]
        whole = [seed for seed in seeds if seed.is_whole]
        missing += len(seeds) - len(whole)
        # (rows share a training, and may share a certification)
        spent |= {task: s.result["seconds"] for seed in whole for task, s in seed.states}
        models |= {seed.run: seed.result("train").get("model", "") for seed in whole}
        rows.append(_row(point, whole, plan))
    _require_agreement(plan)
    total = sum(len(point.runs) for point in plan.points)
    banner = _banner(plan, rows, missing, total)
    return {
        "format": FORMAT,
        "name": experiment.name,
        "title": experiment.title,
        "of": experiment.of,
        "about": experiment.about,
        "kind": experiment.kind,
        "profile": profile.name,
        "reduced": profile.reduced or bool(banner),
        "banner": banner,
        "caveat": banner,
        "is_complete": not missing,
        "command": command,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "hardware": _measured_on(rows) or machine(),
        "seconds": round(sum(spent.values()), 1),
        "weights": _unknown_weights(models),
        "versions": versions(),
        "rows": rows,
        "beside": [
            {
                "setting": entry.setting,
                "system": entry.label,
                "published": entry.shares,
                **_sourced(entry),
            }
            for entry in everything()
            if entry.system in experiment.beside
            and not entry.stage
            and entry.setting in {point.setting.name for point in plan.points}
        ],
        "skipped": [{"row": row, "reason": reason} for row, reason in plan.skipped],
        "failed": [
            {"row": f"{task.run.name}: {task.label}", "reason": reason}
            for task, reason in failed.items()
        ],
    }


def _require_agreement(plan: Plan) -> None:
    """No image of a network may be proved at a radius and broken at the same or a smaller one."""
    stores: dict[tuple[Run, str], dict[float, list[Record]]] = {}
    for task in plan.tasks:
        store = Path(in_folder(task).result.get("store", "")) if task.what == "certify" else None
        if store is not None and store.is_dir() and store != Path():
            eps = float(task.run.config.eps if task.eps is None else Eps(task.eps))
            stores.setdefault((task.run, task.weights), {})[eps] = VERDICT_LINES.read(store).lines
    for of_network in stores.values():
        require_agreement(of_network)


def _row(point: Point, seeds: Sequence[Seed], plan: Plan) -> Object:
    kind, row = plan.experiment.kind, point.row
    measured = {
        name: about_share(
            [seed.metrics[name] for seed in seeds if name in seed.metrics],
            images_of(name, seeds),
        )
        for name in (seeds[0].metrics if seeds else {})
        if name != "verified_error" or kind == "training"
    }
    # Published is the setting's radius on its data; a row of another has nothing beside it.
    config = point.runs[0].config
    is_own = kind != "eps" or all(task.eps is None for task in point.tasks[0])
    is_own &= config.eps == Eps(point.setting.eps) and "data" not in row.flags
    beside = published(row.system, point.setting.name, point.stage) if is_own else []
    first = beside[0] if beside else None
    known = first.shares if first else {}
    origin: Object = {"source": "", "caveat": "", "is_comparable": None}
    if first:
        origin = _sourced(first)
        if origin["is_comparable"] and (other := _other_network(point)):
            origin |= {"is_comparable": False, "caveat": other}
        if difference := _other_stages(point, plan):
            origin["caveat"] = "; ".join(filter(None, (origin["caveat"], difference)))
    certified = [seed.result("certify") for seed in seeds if seed.result("certify")]
    tasks = dict.fromkeys(task for tasks in point.tasks for task in tasks)
    eps = str(point.x) if kind == "eps" else str(config.eps)
    # What is drawn of a training, for whoever has this file but not the runs.
    epochs = {"epochs": [x.result("train").get("epochs", {}) for x in seeds]}
    return {
        "setting": point.setting.name,
        "setting_title": point.setting.title,
        "data": config.data,
        "system": row.label,
        "method": row.method,
        "flags": dict(row.flags),
        "network": config.network,
        "x": point.x,
        "metrics": measured,
        "published": known,
        **origin,
        "also_published": [{"published": entry.shares, **_sourced(entry)} for entry in beside[1:]],
        "difference": {
            name: round(measured[name]["mean"] - value, 6)
            for name, value in known.items()
            if name in measured
        },
        "seeds": [seed.run.seed for seed in seeds],
        "seeds_wanted": [run.seed for run in point.runs],
        "measured_before": [x.run.seed for x in seeds if x.is_kept],
        "measured_caveat": "; ".join(filter(None, dict.fromkeys(caveat(x.run) for x in seeds))),
        "images": min((each["images"] for each in certified), default=None),
        "of": max((each["of"] for each in certified), default=None),
        "open": [each["open"] for each in certified],
        "longest": max((each.get("longest", 0.0) for each in certified), default=None),
        "split": "test",
        "eps": eps,
        "profile": plan.choice.profile.name,
        "preset": plan.choice.profile.preset if certified else "",
        "verifiers": certified[0]["verifiers"] if certified else [],
        "settled": [each["settled"] for each in certified],
        "seconds": round(sum(s.result["seconds"] for x in seeds for _, s in x.states), 1),
        "train_seconds": [x.result("train")["seconds"] for x in seeds],
        "certify_seconds": [each["seconds"] for each in certified],
        "hardware": "; ".join(dict.fromkeys(x.result("train").get("machine", "") for x in seeds)),
        "certified_on": "; ".join(dict.fromkeys(each["machine"] or "?" for each in certified)),
        "runs": [str(seed.run.folder) for seed in seeds],
        **(epochs if kind == "training" else {}),
        "certify": [each["store"] for each in certified],
        "commands": [task.command for task in tasks],
    }


def _measured_on(rows: Iterable[Object]) -> str:
    """The machines of the numbers, which need not be this one."""
    found = (row["certified_on"] or row["hardware"] for row in rows)
    return "; ".join(dict.fromkeys(filter(None, found)))


def _unknown_weights(models: dict[Run, str]) -> str:
    """What to say where nobody can tell any more whose numbers they are."""
    unknown = sum(not model for model in models.values())
    if not unknown:
        return ""
    of = f"{unknown} of {len(models)} runs are not known by hash"
    return f"those of {of} (measured before hashes were kept)"


def _other_stages(point: Point, plan: Plan) -> str:
    """What to say where the published stages are more or fewer than ours."""
    if not point.stage:
        return ""
    theirs = max(
        entry.stage
        for entry in everything()
        if (entry.system, entry.setting) == (point.row.system, point.setting.name)
    )
    ours = max(p.stage for p in plan.points if (p.row, p.setting) == (point.row, point.setting))
    return "" if ours == theirs else f"published of {theirs} stages, measured of {ours}"


def _other_network(point: Point) -> str:
    """What to say where our network is not the paper's."""
    network, theirs = point.runs[0].config.network, point.setting.networks
    if not theirs or network in theirs:
        return ""
    return f"measured on {network}, published on {theirs[0]}"


def _sourced(entry: Published) -> Object:
    source = entry.source
    return {
        "source": source.title,
        "published_network": source.network,
        "published_verifier": source.verifier,
        "caveat": entry.warning,
        "is_comparable": source.comparable,
    }


def images_of(name: str, seeds: Sequence[Seed]) -> int | None:
    """Return how many test images a share is of; None if that is not known, or not of them."""
    if name == "verified_error":
        return None
    certified = [found for seed in seeds if (found := seed.result("certify"))]
    if name == "latent_robustness":
        return min((seed.result("evaluate")["images"] for seed in seeds), default=None)
    whole = name == "accuracy" and not any(seed.is_stage for seed in seeds)
    return min((found["of" if whole else "images"] for found in certified), default=None)


def about_share(values: Sequence[float], images: int | None = None) -> Object:
    """Mean and standard deviation over the seeds; one seed has no deviation.

    With fewer than ENOUGH images or SEEDS seeds, also the 95 % Wilson interval of the share, as for
    images drawn at random. It says nothing of how far another training would be.
    """
    found: Object = {
        "mean": fmean(values),
        "std": stdev(values) if len(values) > 1 else None,
        "values": list(values),
    }
    if images and (images < ENOUGH or len(values) < SEEDS):
        found["interval95"] = [round(end, 6) for end in wilson(fmean(values) * images, images)]
    return found


def _banner(plan: Plan, rows: Sequence[Object], missing: int, total: int) -> str:
    """What must be known before a number is believed."""
    profile, parts = plan.choice.profile, []
    if profile.reduced:
        parts.append(f"reduced profile {profile.name} ({profile.about})")
    parts += sorted(
        {
            f"CR is of the first {row['images']:,} of {row['of']:,} test images"
            for row in rows
            if row["images"] is not None and row["images"] < row["of"]
        }
    )
    allowed, longest = profile.timeout, max((row["longest"] or 0.0 for row in rows), default=0.0)
    if allowed is not None and longest > OVERTIME * allowed:
        parts.append(f"some images were given {longest:.0f} s, not {allowed} s as in the profile")
    parts += _mixed(plan, rows)
    if missing:
        parts.append(f"{missing} of {total} measurements are not there yet")
    return "; ".join(parts)


def _mixed(plan: Plan, rows: Sequence[Object]) -> list[str]:
    """What to say of layerwise trainings whose stages end before their own loss is all."""
    known = {name for row in rows if row["seeds"] for name in row["runs"]}
    ends: dict[str, list[str]] = {}
    for point in plan.points:
        run = point.runs[0]
        if str(run.folder) not in known:
            continue
        config = run.config
        try:
            stages = config.method.stages(network_of(config), config.eps, config.train.epochs)
        except MaarError:
            continue  # a network or data of the user's own that is not there
        kappas = [
            stage.schedules["kappa"](stage.epochs)
            for stage in stages
            if stage.schedules.get("kappa")
        ]
        if any(kappa < 1 for kappa in kappas):
            numbers = ", ".join(f"{kappa:.2f}" for kappa in kappas)
            ends.setdefault(numbers, []).append(point.row.label)
    return [
        f"the stages of {', '.join(dict.fromkeys(labels))} end at kappa = {numbers}: where it is "
        "less than 1, part of the loss is still the stage's before"
        for numbers, labels in ends.items()
    ]


def versions() -> dict[str, str]:
    """Of what computes."""
    import torch

    return {
        "maar": maar.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
