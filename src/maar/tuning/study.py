"""The search: ask Optuna for trials, have them done, and tell it what came out.

FOLDER/study.db    Optuna's storage (sqlite); only this process writes it
FOLDER/trials/N    one folder a trial (`trial.py`), with N.log beside it
"""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maar.config import Config, config_hash
from maar.core.errors import MaarError, UsageError, unknown
from maar.core.files import locked
from maar.core.unpacking import read_json
from maar.experiments.launch import Handle, Launcher
from maar.experiments.work import said
from maar.tuning.knobs import Knob, turned
from maar.tuning.pruning import is_hopeless
from maar.tuning.trial import Asked, curve, lay_out, score_of

SAMPLERS = ("tpe", "nsga2", "random")
GOALS = ("accuracy", "certified")
TICK = 0.5
PRUNED, STOPPED = "pruned", "stopped"


@dataclass(frozen=True)
class Job:
    """The command that does one trial."""

    folder: Path

    @property
    def words(self) -> list[str]:
        """The command, without `maar`."""
        return ["tune", "--trial", str(self.folder)]

    @property
    def log(self) -> Path:
        """What the command said."""
        return self.folder.with_name(f"{self.folder.name}.log")


@dataclass(frozen=True)
class Search:
    """The search space, and how trials are scored."""

    config: Config
    knobs: tuple[Knob, ...]
    asked: Asked
    folder: Path
    sampler: str = "tpe"

    def facts(self) -> dict[str, Any]:
        """Everything that must be the same when a study is continued."""
        return {
            "config_hash": config_hash(self.config),
            "knobs": sorted(map(str, self.knobs)),
            **dataclasses.asdict(self.asked),
        }

    def job(self, number: int) -> Job:
        """The job of a trial."""
        return Job(self.folder / "trials" / f"{number:04d}")


class Display:
    """Shows nothing."""

    def ended(self, number: int, state: str, score: dict[str, Any], seconds: float) -> None:
        """A trial has ended: complete, pruned, stopped, or failed with a reason."""


@dataclass
class _Running:
    trial: Any
    handle: Handle
    began: float = field(default_factory=time.monotonic)
    state: str = ""
    """Why it was asked to stop."""


def check(config: Config, asked: Asked) -> None:
    """Refuse a recipe that cannot be scored on validation images."""
    if not config.valid:
        raise UsageError(
            "valid = 0 leaves nothing to tune on (accepted: --valid 5000, or another number of "
            "images that are taken out of the training set)"
        )
    if asked.images > config.valid:
        raise UsageError(
            f"--images {asked.images} is more than the {config.valid} validation images"
        )


def open_study(search: Search, *, resume: bool) -> Any:
    """Make the study, or open the one that is there."""
    optuna = _optuna()
    database = search.folder / "study.db"
    if database.exists() and not resume:
        raise UsageError(f"{search.folder} is there already (accepted: --resume, another --out)")
    if search.sampler not in SAMPLERS:
        raise unknown("--sampler", search.sampler, SAMPLERS)
    search.folder.mkdir(parents=True, exist_ok=True)
    seed = search.config.seed
    samplers = {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed, constant_liar=True),
        "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed, population_size=12),
        "random": lambda: optuna.samplers.RandomSampler(seed=seed),
    }
    study = optuna.create_study(
        storage=f"sqlite:///{database}",
        study_name="maar",
        directions=["maximize"] * len(GOALS),
        sampler=samplers[search.sampler](),
        load_if_exists=True,
    )
    facts = search.facts()
    before = study.user_attrs.get("facts")
    if before is None:
        study.set_user_attr("facts", facts)
        # The recipe as it is comes first: the rest is compared with it.
        own = {knob.name: knob.of(search.config) for knob in search.knobs}
        if None not in own.values():
            study.enqueue_trial(own)
    elif before != json.loads(json.dumps(facts)):
        changed = [key for key in facts if before.get(key) != json.loads(json.dumps(facts[key]))]
        raise UsageError(
            f"{search.folder} has a study of another question ({', '.join(changed)}): give another "
            "--out"
        )
    return study


def tune(
    search: Search,
    launcher: Launcher,
    *,
    hours: float,
    trials: int | None = None,
    resume: bool = False,
    display: Display | None = None,
) -> Any:
    """Search until the hours or trials are used up; returns the Optuna study.

    Trials that are under way at the end are stopped, and continued when the study is resumed.
    """
    check(search.config, search.asked)
    search.folder.mkdir(parents=True, exist_ok=True)
    with locked(search.folder / ".lock"):
        study = open_study(search, resume=resume)
        _Work(search, launcher, study, display or Display(), hours, trials).run()
    return study


class _Work:
    """The loop over trials."""

    def __init__(
        self,
        search: Search,
        launcher: Launcher,
        study: Any,
        display: Display,
        hours: float,
        trials: int | None,
    ) -> None:
        self.search, self.launcher, self.study, self.display = search, launcher, study, display
        self.deadline = time.monotonic() + 3600 * hours
        self.trials = trials
        self.running: dict[int, _Running] = {}
        self.state = _optuna().trial.TrialState

    def run(self) -> None:
        optuna = _optuna()
        left = [t for t in self.study.trials if t.state == self.state.RUNNING]
        unfinished = [optuna.trial.Trial(self.study, t._trial_id) for t in left]
        try:
            while time.monotonic() < self.deadline:
                self._look()
                while len(self.running) < self.launcher.slots and (unfinished or self._more()):
                    self._start(unfinished.pop(0) if unfinished else self.study.ask())
                if not self.running:
                    break
                time.sleep(TICK)
        finally:
            for each in self.running.values():
                each.state = each.state or STOPPED
                each.handle.stop()
            for number, each in list(self.running.items()):
                each.handle.end()
                self._end(number, each.handle.poll())

    def _more(self) -> bool:
        begun = [t for t in self.study.trials if t.state != self.state.WAITING]
        return self.trials is None or len(begun) < self.trials

    def _start(self, trial: Any) -> None:
        search, job = self.search, self.search.job(trial.number)
        chosen = {knob.name: knob.suggest(trial) for knob in search.knobs}
        try:
            config = turned(search.config, search.knobs, chosen)
        except MaarError as error:  # knobs that exclude each other
            self._tell(trial, self.state.FAIL, str(error), 0.0)
            return
        if not (job.folder / "trial.toml").exists():
            name = f"trial-{trial.number}"
            lay_out(job.folder, dataclasses.replace(config, name=name), search.asked)
        self.running[trial.number] = _Running(trial, self.launcher.start(job))

    def _look(self) -> None:
        """Note what has ended, and stop what is hopeless."""
        for number, each in list(self.running.items()):
            code = each.handle.poll()
            if code is not None:
                self._end(number, code)
        if not self.running:
            return
        curves = {t.number: curve(self.search.job(t.number).folder) for t in self.study.trials}
        for number, each in self.running.items():
            others = [other for key, other in curves.items() if key != number]
            if not each.state and is_hopeless(curves[number], others):
                each.state = PRUNED
                each.handle.stop()

    def _end(self, number: int, code: int | None) -> None:
        each = self.running.pop(number)
        job, seconds = self.search.job(number), time.monotonic() - each.began
        score = score_of(job.folder)
        if score:
            values = [score[goal] for goal in GOALS]
            each.trial.set_user_attr("score", score)
            self.study.tell(each.trial, values)
            self.display.ended(number, "complete", score, seconds)
        elif each.state == PRUNED:
            self._tell(each.trial, self.state.PRUNED, PRUNED, seconds)
        elif each.state == STOPPED:
            self.display.ended(number, STOPPED, {}, seconds)  # (continued by --resume)
        else:
            reason = said(job.log) or f"exit code {code}"
            self._tell(each.trial, self.state.FAIL, f"failed: {reason}", seconds)

    def _tell(self, trial: Any, state: Any, reason: str, seconds: float) -> None:
        trial.set_user_attr("reason", reason)
        self.study.tell(trial, state=state)
        self.display.ended(trial.number, reason, {}, seconds)


def open_finished(folder: Path) -> dict[str, Any]:
    """Read the outcome of a study."""
    return read_json(folder / "tune.json")


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UsageError("maar tune needs optuna: pip install 'maar[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
