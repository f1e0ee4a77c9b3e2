"""From experiments to runs and tasks.

A run is a recipe with flags and a seed; its name says which, so that two experiments that need the
same run have it once. A task is one command on a run: to train it, to certify it, to measure its
latent robustness.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maar.core.errors import UsageError, unknown
from maar.experiments.tables import Experiment, Profile, Row, Setting, settings

if TYPE_CHECKING:
    from torch import nn

    from maar.config import Config

MODEL = "model"
LATENT_BOUNDS = "crown"
"""What `maar evaluate` takes by itself."""


@dataclass(frozen=True)
class Choice:
    """What is asked for, besides the experiments."""

    profile: Profile
    runs: Path
    settings: tuple[str, ...] = ()
    """Only these; none: all of the experiment."""
    methods: tuple[str, ...] = ()
    """Only rows of these; none: all."""
    seeds: tuple[int, ...] = ()
    """Instead of those of the rows."""
    limit: int | None = None
    """Only the first images; None: as the profile says."""
    kept: Path | None = None
    """Where results outlive their runs (`kept.py`); None: nowhere."""

    @property
    def images(self) -> int | None:
        """How many test images are asked about; None: all."""
        return self.profile.limit if self.limit is None else self.limit


@dataclass(frozen=True, eq=False)
class Run:
    """One training; equal by name."""

    name: str
    recipe: str
    flags: tuple[str, ...]
    """Words after the recipe that make it this run, the seed left out."""
    seed: int
    folder: Path
    config: Config
    kept: Path | None = None
    """The file that keeps what was measured on it."""
    training: str = ""
    """If it is gone: which of the trainings in that file is asked, by its model."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.folder == self.folder

    def __hash__(self) -> int:
        return hash(self.folder)


@dataclass(frozen=True)
class Task:
    """One command on a run."""

    run: Run
    what: str
    """train, certify or evaluate."""
    profile: Profile
    images: int | None = None
    weights: str = MODEL
    eps: str | None = None
    """None: the run's own."""
    layer: int = 0
    """The ReLU behind which latent robustness is measured."""
    is_drawn: bool = field(default=False, compare=False)
    """Whether curves are drawn of its epochs: then to know how it ended is not enough."""

    @property
    def label(self) -> str:
        """For people and for the name of the log."""
        eps = f"eps-{self.eps.replace('/', '_')}" if self.eps else ""
        weights = "" if self.weights == MODEL else self.weights
        return "-".join(filter(None, (self.what, weights, eps)))

    @property
    def log(self) -> Path:
        """What the command said."""
        return self.run.folder.with_name(f"{self.run.name}-{self.label}.log")

    @property
    def words(self) -> list[str]:
        """The command, without `maar`."""
        return {"train": self._train, "certify": self._certify, "evaluate": self._evaluate}[
            self.what
        ]()

    @property
    def command(self) -> str:
        """The command as one would type it."""
        return f"maar {shlex.join(self.words)}"

    def _train(self) -> list[str]:
        run = self.run
        # (Figures 2 and C.2 show the accuracy on test images by epoch; nothing is chosen by it.)
        noted = ["--test-accuracy", "true"] if self.is_drawn else []
        device = ["--device", self.profile.device] if self.profile.device else []
        place = ["--runs", str(run.folder.parent), "--name", run.name]
        seed = ["--seed", str(run.seed), "--threads", str(self.profile.threads)]
        return ["train", run.recipe, *run.flags, *seed, *noted, *device, *place, "--resume"]

    def _certify(self) -> list[str]:
        words = ["certify", str(self.run.folder), "--preset", self.profile.preset]
        if self.profile.timeout is not None:
            words += ["--timeout", str(self.profile.timeout)]
        return [*words, *self._which(), "--workers", "1"]

    def _evaluate(self) -> list[str]:
        attack = ["--layers", str(self.layer), "--steps", str(self.profile.latent_steps)]
        bounds = self.profile.latent_bounds
        attack += [] if bounds == LATENT_BOUNDS else ["--bounds", bounds]
        return ["evaluate", str(self.run.folder), *attack, *self._which()]

    def _which(self) -> list[str]:
        words = [] if self.weights == MODEL else ["--weights", self.weights]
        if self.eps is not None:
            words += ["--eps", self.eps]
        return words if self.images is None else [*words, "--limit", str(self.images)]


@dataclass(frozen=True)
class Point:
    """A row of the result: a system in a setting, for figures at one x, with a run per seed."""

    row: Row
    setting: Setting
    runs: tuple[Run, ...]
    tasks: tuple[tuple[Task, ...], ...]
    """What it takes, for each run."""
    x: str | int | float | None = None
    """lam, eps, or the stage."""
    stage: int = 0
    """For published numbers: 0 is the end of the training."""

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.row.label}{'' if self.x is None else f' at {self.x}'} ({self.setting.name})"


@dataclass
class Plan:
    """An experiment laid out."""

    experiment: Experiment
    choice: Choice
    points: list[Point] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """(row, why it is left out)."""

    @property
    def tasks(self) -> list[Task]:
        """Each once; the first seed of every row before the second of any."""
        return ordered(self.points)

    @property
    def stem(self) -> str:
        """Of the files with the result: a part of an experiment does not replace the whole."""
        choice = self.choice
        seeds = [f"seeds-{'-'.join(map(str, choice.seeds))}"] if choice.seeds else []
        first = [] if choice.limit is None else [f"first-{choice.limit}"]
        return "-".join((self.experiment.name, *choice.settings, *choice.methods, *seeds, *first))


def ordered(points: Iterable[Point]) -> list[Task]:
    """The tasks of these, each once."""
    found = [
        (seed, task) for point in points for seed, tasks in enumerate(point.tasks) for task in tasks
    ]
    drawn = {task for _, task in found if task.is_drawn}
    tasks = dict.fromkeys(task for _, task in sorted(found, key=lambda pair: pair[0]))
    return [dataclasses.replace(task, is_drawn=task in drawn) for task in tasks]


def make_plan(experiment: Experiment, choice: Choice) -> Plan:
    """Lay an experiment out; a row without a recipe is skipped, with the reason."""
    _check(experiment, choice)
    plan = Plan(experiment, choice)
    known = choice.profile.settings
    for name in experiment.settings:
        if choice.settings and name not in choice.settings:
            continue
        setting = settings()[name]
        if known and name not in known:
            reason = f"profile {choice.profile.name} knows {', '.join(known)} only"
            plan.skipped.append((setting.name, reason))
            continue
        for row in experiment.rows:
            if choice.methods and row.method not in choice.methods:
                continue
            runs = _runs(row, setting, choice)
            if isinstance(runs, str):
                skipped = (f"{row.label} ({name})", runs)
                if skipped not in plan.skipped:
                    plan.skipped.append(skipped)
                continue
            plan.points += _points(experiment, row, setting, choice, runs)
    if not plan.points:
        reasons = "; ".join(f"{row}: {reason}" for row, reason in plan.skipped)
        raise UsageError(f"{experiment.name} has nothing to run here ({reasons})")
    return plan


def _check(experiment: Experiment, choice: Choice) -> None:
    for setting in choice.settings:
        if setting not in experiment.settings:
            raise unknown(f"--setting of {experiment.name}", setting, experiment.settings)
    methods = {row.method for row in experiment.rows}
    for method in choice.methods:
        if method not in methods:
            raise unknown(f"method of {experiment.name}", method, methods)


def _runs(row: Row, setting: Setting, choice: Choice) -> tuple[Run, ...] | str:
    """A run for each seed, or why there is none."""
    from maar.config import recipes

    profile = choice.profile
    names = {"setting": setting.name, "method": row.method, "profile": profile.name}
    recipe, stem = profile.recipe.format(**names), "{setting}-{method}-{profile}".format(**names)
    if profile.name in row.recipes:
        recipe = stem = row.recipes[profile.name].format(**names)
    if recipe not in recipes():
        return f"there is no recipe {recipe}"
    if profile.flags and row.method not in profile.flags:
        return f"profile {profile.name} does not know method {row.method}"
    base = profile.flags.get(row.method, {})
    plain = _config(recipe, *flag_words(base))
    changed = _config(recipe, *flag_words({**base, **row.flags}))

    from maar.config import config_hash

    flags = dict(base)
    # A flag that says what the recipe says anyway makes no other run: MAAR with lam = 6 is MAAR.
    if config_hash(plain) != config_hash(changed):
        flags.update(row.flags)
        stem = "-".join((stem, *(f"{_key(k)}-{_text(v)}" for k, v in row.flags.items())))
        stem = stem.replace("/", "_")  # (eps-2_255: the name is a folder's)
    seeds = choice.seeds or profile.seeds or row.seeds
    runs = []
    for seed in dict.fromkeys(seeds):
        name, config = f"{stem}-seed{seed}", dataclasses.replace(changed, seed=seed)
        folder, words = choice.runs / name, tuple(flag_words(flags))
        kept = choice.kept / f"{name}.json" if choice.kept else None
        runs.append(Run(name, recipe, words, seed, folder, config, kept))
    return tuple(runs)


@cache
def _config(*words: str) -> Config:
    """What `maar train` makes of these words."""
    from maar.config.flags import parse_command

    return parse_command(words, prog="maar train", description="")[0]


def flag_words(flags: Mapping[str, Any]) -> list[str]:
    """Flags as one types them."""
    return [word for k, v in flags.items() for word in (f"--{_key(k)}", _text(v))]


def _key(name: str) -> str:
    return name.replace("_", "-")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _points(
    experiment: Experiment, row: Row, setting: Setting, choice: Choice, runs: Sequence[Run]
) -> list[Point]:
    profile, images = choice.profile, choice.images

    def point(*measures: Mapping[str, Any], **about: Any) -> Point:
        is_drawn = experiment.kind == "training"
        tasks = tuple(
            (
                Task(run, "train", profile, is_drawn=is_drawn),
                *(Task(run=run, profile=profile, **m) for m in measures),
            )
            for run in runs
        )
        return Point(row, setting, tuple(runs), tasks, **about)

    certify: dict[str, Any] = {"what": "certify", "images": images}
    if experiment.kind == "training":
        return [point()]
    if experiment.kind == "eps":
        own = runs[0].config.eps
        return [
            point({**certify, "eps": None if _same(eps, own) else eps}, x=eps)
            for eps in setting.eps_range
        ]
    if experiment.kind == "stages":
        net = network_of(runs[0].config)
        config = runs[0].config
        count = len(config.method.stages(net, config.eps, config.train.epochs))
        found = []
        for stage in range(1, count + 1):
            # The last stage's weights are the run's: certified once, as everywhere else.
            weights = MODEL if stage == count else f"stage-{stage}-last"
            latent = {"what": "evaluate", "images": images, "layer": _latent_relu(net)}
            measures = ({**certify, "weights": weights}, {**latent, "weights": weights})
            found.append(point(*measures, x=stage, stage=stage))
        return found
    return [point(certify, x=row.flags.get("lam") if experiment.kind == "lam" else None)]


def _same(eps: str, own: float) -> bool:
    from maar.core.eps import Eps

    return float(Eps(eps)) == float(own)


def network_of(config: Config) -> nn.Sequential:
    """The network that a run will have, with weights of no meaning."""
    from maar.data import info
    from maar.networks import make

    data = info(config.data)
    return make(
        config.network, data.shape, data.n_classes, mean=list(data.mean), std=list(data.std)
    )


def _latent_relu(net: nn.Sequential) -> int:
    """Behind which ReLU latent robustness is measured: the last convolution's, or the last.

    The paper names the third, which is the last convolution's of its 2/255 network.
    """
    from torch import nn

    convolutions = [i for i, layer in enumerate(net) if isinstance(layer, nn.Conv2d)]
    relus = [i for i, layer in enumerate(net) if isinstance(layer, nn.ReLU)]
    before = [i for i in relus if convolutions and i < convolutions[-1]]
    return len(before) + 1 if convolutions else len(relus)
