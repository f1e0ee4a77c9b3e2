"""The folder of a run, as it is read: without torch, and whatever its condition.

    config.toml        the effective configuration, its hash in the first line
    env.json           versions, commit, threads, device, CPU; a list of the resumes
    metrics.jsonl      one line per epoch
    result.json        test results; it exists when the run is finished
    model.safetensors  the weights at the end
    certify/           folders of certifications

`maar.training.run` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from maar.core.eps import Eps
from maar.core.errors import MaarError
from maar.core.files import is_locked
from maar.records.reading import Object, Reader, count, number, table, word
from maar.records.stores import LOCK, MODEL, SUMMARY, Manifest, read_manifest

CONFIG = "config.toml"
METRICS = "metrics.jsonl"
RESULT = "result.json"
ENV = "env.json"
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class RunFiles:
    """One run as far as its files tell."""

    path: Path
    state: str
    """finished, running, interrupted, or damaged."""
    problems: tuple[str, ...] = ()
    config: Object = field(default_factory=dict)
    hash: str = ""
    metrics: list[Object] = field(default_factory=list)
    result: Object = field(default_factory=dict)
    env: Object = field(default_factory=dict)

    @property
    def last(self) -> Object:
        """The line of the last epoch; {} before its end."""
        return self.metrics[-1] if self.metrics else {}

    @property
    def seconds(self) -> float:
        """Seconds of training."""
        return sum(number(line, "seconds") or 0.0 for line in self.metrics)

    @property
    def method(self) -> str:
        """Name of the method, with that of its base."""
        method = table(self.config, "method")
        name, base = word(method, "name"), word(table(method, "base"), "name")
        return f"{name}({base})" if base else name

    @property
    def eps(self) -> float | None:
        """Radius that it was trained for."""
        return radius(self.config.get("eps"))


def is_run(path: Path) -> bool:
    """Return whether a folder holds a run, however damaged: it has a configuration."""
    return (path / CONFIG).is_file()


def in_use(path: Path) -> bool:
    """Return whether a process is training into this folder right now."""
    return is_locked(path / LOCK)


def find_runs(folder: Path) -> list[Path]:
    """Return the folders that hold a run, at any depth below `folder`, itself included."""
    if is_run(folder):
        return [folder]
    return sorted(path.parent for path in folder.glob(f"**/{CONFIG}"))


def read_run(path: Path) -> RunFiles:
    """Read one run's folder; what cannot be read makes it `damaged`, with the reasons."""
    reader = Reader()
    config = reader.toml(path / CONFIG)
    first = reader.text(path / CONFIG).partition("\n")[0]
    metrics = reader.lines(path / METRICS)
    result, env = reader.json(path / RESULT), reader.json(path / ENV)
    if reader.problems:
        state = "damaged"
    elif in_use(path):
        state = "running"
    else:
        state = "finished" if result else "interrupted"
    hash = first.removeprefix("# hash ") if first.startswith("# hash ") else ""
    problems = tuple(dict.fromkeys(reader.problems))
    return RunFiles(path, state, problems, config, hash, metrics, result, env)


def radius(value: object) -> float | None:
    """Return an eps as a configuration has it, 0.1 or "2/255"; None if it is none."""
    if not isinstance(value, str | int | float):
        return None
    try:
        return float(Eps(value))
    except MaarError:
        return None


def certified(run: RunFiles) -> Object:
    """Return the summary of the run's own weights, data and eps that decides most test images.

    {} if there is none. Lines are not looked at: a list of runs is to be quick.
    """

    def settled(summary: Object) -> int:
        return count(summary, "falsified") + count(summary, "verified")

    return max(_own_summaries(run), key=settled, default={})


def _own_summaries(run: RunFiles) -> Iterator[Object]:
    for file in sorted((run.path / "certify").glob(f"*/{SUMMARY}")):
        try:
            manifest, summary = read_manifest(file.parent), Reader().json(file)
        except MaarError:
            continue  # damaged: `maar report` and `maar audit` tell
        if _is_own(manifest, run) and summary:
            yield summary


def _is_own(manifest: Manifest, run: RunFiles) -> bool:
    eps = number(manifest.subject, "eps")
    return (
        (manifest.split, manifest.weights) == ("test", MODEL)
        and manifest.data == word(run.config, "data")
        and eps is not None
        and eps == run.eps
    )
