"""`maar.train` and `maar.evaluate`: train by recipe, or a model of one's own on tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from maar.api.loading import Run, load
from maar.api.tensors import images_of, labels_of, network_of, radius_of
from maar.attacks.pgd import PGD
from maar.config.config import Config, TrainConfig
from maar.config.flags import flags_of, put
from maar.config.load import build, read
from maar.core.errors import RunError, UsageError, unknown
from maar.methods.base import Batch, Method, Stage
from maar.regions import Ball
from maar.training.display import Display, make_display
from maar.training.optim import Descent, lr_schedule
from maar.training.plan import Plan
from maar.training.rehearsal import freeze
from maar.training.seeds import generator
from maar.training.trainer import train as train_run


@dataclass(frozen=True)
class Trained:
    """A model that was trained on tensors."""

    network: nn.Sequential
    """The network, over the caller's own parameters, in evaluation mode."""
    history: tuple[dict[str, float], ...] = field(repr=False)
    """Mean loss terms of each epoch, by name, with the stage's number."""


def train(
    recipe: str | Path | Config | None = None,
    *,
    model: nn.Module | None = None,
    data: Any = None,
    method: Method | str | None = None,
    eps: Any = None,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
    **settings: Any,
) -> Run | Trained:
    """Train by a recipe into a folder, or a model of one's own on tensors.

    By recipe: `maar.train("mnist-0.1-maar-cpu", lam=2, seed=3)`. Every setting of the recipe can
    be given by its name; inner ones as `**{"attack.steps": 4}`.

    On tensors: `maar.train(model=net, data=(x, y), method=maar.MAAR(), eps=0.1, epochs=5)`.

    Args:
        recipe: A shipped recipe, a TOML file, the folder of a run, or a `Config`.
        model: A module to train in place, instead of a recipe.
        data: With `model`: a pair (x, y) of tensors, or an iterable of batches such as a
            DataLoader. With a recipe: the name of a data set.
        method: A method such as `maar.MAAR(lam=6)`.
        eps: L-infinity radius.
        folder: Folder of the run (default: runs/NAME).
        resume: Continue the run in the folder, exactly.
        progress: Show epochs as they end.
        settings: Settings of the recipe, or of `TrainConfig` with `model` (epochs, batch, lr, ...).

    Returns:
        A `Run`, or with `model` a `Trained`; both have `.network`.
    """
    if model is not None:
        if recipe is not None or folder is not None or resume:
            raise UsageError("model excludes recipe, folder and resume: give one or the other")
        return _train_model(model, data, method, eps, settings)
    if recipe is None:
        raise UsageError("recipe or model is needed, such as maar.train('demo')")
    named = {"data": data, "method": method, "eps": eps}
    chosen = {key: value for key, value in named.items() if value is not None}
    config = _config(recipe, {**chosen, **settings})
    path = Path(folder) if folder is not None else Path("runs") / (config.name or _stem(recipe))
    train_run(config, path, resume=resume, display=make_display() if progress else Display())
    run = load(path)
    assert isinstance(run, Run)
    return run


def _stem(recipe: Any) -> str:
    return "run" if isinstance(recipe, Config) else Path(recipe).stem


def _config(recipe: str | Path | Config, settings: dict[str, Any]) -> Config:
    """Return the recipe's configuration with these settings in place of its own."""
    if isinstance(recipe, Config):
        return dataclasses.replace(recipe, **settings)
    table, origin = read(recipe)
    method = settings.pop("method", None)
    if isinstance(method, str):
        table = {**table, "method": {"name": method}}
    config = build(table, origin)
    if isinstance(method, Method):
        config = dataclasses.replace(config, method=method)
    paths = {flag.name.replace("-", "_"): flag.path for flag in flags_of(config)}
    for name, value in settings.items():
        if name not in paths:
            raise unknown("setting", name, paths)
        if isinstance(method, Method) and paths[name][0] == "method":
            raise UsageError(f"{name}: give it to the method itself")
        put(table, paths[name], value)
    built = build(table, origin)
    return dataclasses.replace(built, method=method) if isinstance(method, Method) else built


def _train_model(
    model: nn.Module, data: Any, method: Any, eps: Any, settings: dict[str, Any]
) -> Trained:
    """Train in place, stage by stage, with the trainer's own optimiser and schedules."""
    if not isinstance(method, Method):
        raise UsageError(f"method is {method!r} (accepted: a method such as maar.MAAR())")
    if data is None or eps is None:
        raise UsageError("data and eps are needed with model")
    seed = settings.pop("seed", 0)
    fields = {item.name for item in dataclasses.fields(TrainConfig)}
    for name in settings:
        if name not in fields:
            raise unknown("setting", name, fields | {"seed"})
    config = TrainConfig(**settings)
    net, radius = network_of(model), radius_of(eps)
    batches = _Batches(data, config.batch, seed)
    method.initialise(net, generator(seed, "initialise"))
    plan = Plan(method.stages(net, radius, config.epochs), steps_per_epoch=len(batches))
    device = next((p.device for p in net.parameters()), torch.device("cpu"))
    history: list[dict[str, float]] = []
    step = 0
    for number, stage in enumerate(plan.stages, start=1):
        net.train()
        freeze(net, stage)
        descent, memo = Descent(config, net), {}
        for epoch in range(stage.epochs):
            sums: dict[str, float] = {}
            for x, y in batches.epoch(len(history)):
                t = plan.since_stage(step)
                batch = Batch(
                    net=net,
                    x=x.to(device),
                    y=y.to(device),
                    eps=stage.eps(t),
                    stage=stage,
                    generator=generator(seed, "loss", step),
                    at={name: schedule(t) for name, schedule in stage.schedules.items()},
                    memo=memo,
                )
                terms = method.loss(batch)
                total = torch.stack(list(terms.values())).sum()
                if not bool(torch.isfinite(total)):
                    raise RunError(
                        f"the loss is not finite in stage {number}, epoch {epoch + 1}: try a "
                        "lower lr or a clip"
                    )
                descent.backward(total)
                descent.step(lr_schedule(config, stage)(t))
                for name, term in terms.items():
                    sums[name] = sums.get(name, 0.0) + float(term.detach())
                step += 1
            means = {name: value / len(batches) for name, value in sums.items()}
            history.append({"stage": number, **means})
    for parameter in net.parameters():
        parameter.requires_grad_(True)
    method.finish(net.eval(), batches.as_they_are(net, plan.stages[-1], float(radius), seed))
    model.eval()
    return Trained(net, tuple(history))


class _Batches:
    """Batches of a pair of tensors in a fresh order each epoch, or those of an iterable."""

    def __init__(self, data: Any, size: int, seed: int) -> None:
        self.size, self.seed, self.pair, self.loader = size, seed, None, None
        if isinstance(data, (tuple, list)) and len(data) == 2:
            x, y = (torch.as_tensor(part) for part in data)
            if len(x) != len(y) or len(x) < size:
                raise UsageError(
                    f"data has {len(x)} images and {len(y)} labels (accepted: as many of each, at "
                    f"least batch = {size})"
                )
            self.pair = x.float(), y.long()
        elif isinstance(data, Iterable) and hasattr(data, "__len__"):
            self.loader = data
        else:
            raise UsageError("data must be a pair (x, y) of tensors or a DataLoader")

    def __len__(self) -> int:
        if self.pair is None:
            return len(self.loader)  # pyright: ignore[reportArgumentType]
        return len(self.pair[0]) // self.size

    def epoch(self, number: int) -> Iterable[tuple[Tensor, Tensor]]:
        if self.pair is None:
            assert self.loader is not None
            yield from self.loader
            return
        x, y = self.pair
        order = torch.randperm(len(x), generator=generator(self.seed, "order", number))
        for i in range(len(self)):
            index = order[i * self.size : (i + 1) * self.size]
            yield x[index], y[index]

    def as_they_are(
        self, net: nn.Sequential, stage: Stage, eps: float, seed: int
    ) -> Iterable[Batch]:
        """Yield every batch once, at eps, for what a method does after the last step."""
        for number, (x, y) in enumerate(self.epoch(0)):
            chance = generator(seed, "finish", number)
            yield Batch(net=net, x=x, y=y, eps=eps, stage=stage, generator=chance)


@dataclass(frozen=True)
class Evaluation:
    """Accuracy, and the accuracy that an attack leaves."""

    accuracy: float
    robust_accuracy: float
    images: int


@torch.no_grad()
def evaluate(
    model: Any,
    x: Any,
    y: Any,
    eps: Any,
    *,
    steps: int = 40,
    step_size: float = 0.1,
    restarts: int = 1,
    batch: int = 256,
    seed: int = 0,
) -> Evaluation:
    """Measure accuracy and robust accuracy under PGD; the latter is an upper bound on CR.

    Args:
        model: As for `certify`.
        x: Images in [0, 1], `[n, *shape]`.
        y: Labels, `[n]`.
        eps: L-infinity radius.
        steps: Steps of the attack.
        step_size: Length of a step, as a share of eps.
        restarts: Random starts of the attack.
        batch: Images at a time.
        seed: Seed of the random starts.
    """
    net = network_of(model, x)
    x = images_of(x, net)
    y, radius = labels_of(y, x), float(radius_of(eps))
    search = PGD(steps=steps, step_size=step_size, restarts=restarts, keep="best")
    chance = torch.Generator().manual_seed(seed)
    training, correct, robust = net.training, 0, 0
    net.eval()
    try:
        for part, labels in zip(x.split(batch), y.split(batch), strict=True):
            right = net(part).argmax(1) == labels
            ball = Ball(part, radius)
            point = ball.point(search(net, ball, labels, generator=chance))
            correct += int(right.sum())
            robust += int((right & (net(point).argmax(1) == labels)).sum())
    finally:
        net.train(training)
    return Evaluation(correct / len(x), robust / len(x), len(x))
