"""The folder of a run: made once, written atomically, continued exactly.

config.toml        the whole effective configuration, its hash in the first line
env.json           versions, commit, threads, device, CPU; a list of the resumes
metrics.jsonl      one line per epoch
log.txt            what was said on the screen, with the time
checkpoints/       the last two positions, and weights after each stage (last, best)
model.safetensors  the weights at the end, with the network's name and shape in the header
result.json        test results; it exists when the run is finished
own/               copies of the user's own Python files: method, network, their neighbours
network.onnx       a copy of the user's own network, where there is one
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

import maar
from maar.core.errors import RunError, UsageError
from maar.core.files import locked, sha256_file, write_bytes, write_text
from maar.core.neutral import WATCH
from maar.core.own import keep, path_of, reading, run_of
from maar.core.unpacking import parse_json, read_json
from maar.methods.base import Method
from maar.records.runs import CONFIG, ENV, LOCK, METRICS, RESULT, is_run, read_run
from maar.training import checkpoint
from maar.training.checkpoint import Parts, Position
from maar.training.revision import KEY, earlier_revision

if TYPE_CHECKING:
    from maar.config import Config
    from maar.data import Info
    from maar.training.parallel import Workers


class Run:
    """A run's folder, locked by this process."""

    def __init__(self, path: Path, config: Config, *, resumed: bool) -> None:
        self.path = path
        self.config = config
        self.resumed = resumed
        self.checkpoints = path / "checkpoints"

    def begin(self, environment: dict[str, Any]) -> list[str]:
        """Write what describes the run; for a resumed one, note the resume.

        Returns what has changed since the first session and can change the last bits.
        """
        from maar.config import to_toml

        if not self.resumed:
            write_text(self.path / CONFIG, to_toml(self.config))
        # What follows may be lacking in a resumed run that was killed at its very beginning.
        for own in own_files(self.config):
            keep(self.path, own)
        own = _own_network(self.config.network)
        if (
            own
            and own.suffix != ".py"
            and not (copy := self.path / f"network{own.suffix}").exists()
        ):
            write_bytes(copy, own.read_bytes())
        environment = {**environment, KEY: self.config.method.revision}
        first: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            first = read_json(self.path / ENV)
        changes = [
            f"{key} {first[key]} -> {environment[key]}"
            for key in ("maar", "torch", "threads", "device", "devices", "cpu")
            if key in first and first[key] != environment[key]
        ]
        if first:
            environment = {**first, "resumed": [*first.get("resumed", []), environment]}
        write_text(self.path / ENV, json.dumps(environment, indent=1) + "\n")
        return changes

    @property
    def network(self) -> str:
        """The name to build the network by: of the copy, where it is the user's own."""
        return _network_name(self.path, self.config.network)

    def log(self, line: str) -> None:
        """Append a line to log.txt."""
        now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
        with open(self.path / "log.txt", "a") as file:
            file.write(f"{now} {line}\n")

    def add_metrics(self, record: dict[str, Any]) -> int:
        """Append a line to metrics.jsonl; returns the length of the file for the checkpoint."""
        with open(self.path / METRICS, "ab") as file:
            file.write(json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def save_checkpoint(self, position: Position, parts: Parts) -> None:
        """Write where the run stands."""
        checkpoint.save(self.checkpoints, position, parts)

    def restore(self) -> tuple[Position, Parts, list[str]] | None:
        """The newest checkpoint that is whole, and what was wrong with newer ones; None if none.

        metrics.jsonl is cut back to that point: later lines will be written again, the same.
        """
        problems: list[str] = []
        for path in checkpoint.numbers(self.checkpoints):
            try:
                position, parts = checkpoint.load(path)
                self._cut_metrics(position.metrics_bytes)
            except RunError as error:
                problems.append(str(error))
                continue
            return position, parts, problems
        if problems:
            raise RunError(
                f"{problems[0]}, and there is no older checkpoint to go back to; "
                f"delete {self.checkpoints} to train from the start"
            )
        self._cut_metrics(0)
        return None

    def _cut_metrics(self, length: int) -> None:
        path = self.path / METRICS
        there = path.stat().st_size if path.exists() else 0
        if there < length:
            raise RunError(f"{path} is shorter than its checkpoint says")
        if there > length:
            os.truncate(path, length)

    def save_weights(self, name: str, net: nn.Module, info: Info) -> Path:
        """Write weights that `load_network` can read without the data set."""
        from maar.config import config_hash

        facts = {
            "version": maar.__version__,
            "network": self.config.network,
            "data": info.name,
            "shape": list(info.shape),
            "classes": info.n_classes,
            "mean": list(info.mean),
            "std": list(info.std),
            "config_hash": config_hash(self.config),
        }
        path = _weights_path(self.path, name)
        # One key only: safetensors writes several in no fixed order, and equal weights are to be
        # equal files.
        checkpoint.save_weights(path, net, {"maar": json.dumps(facts)})
        return path

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result: the run is finished from here on."""
        write_text(self.path / RESULT, json.dumps(result, indent=1) + "\n")


class Bystander(Run):
    """The run of a process that leaves every file to the first one."""

    def begin(self, environment: dict[str, Any]) -> list[str]:
        return []

    def log(self, line: str) -> None:
        pass

    def add_metrics(self, record: dict[str, Any]) -> int:
        return 0

    def save_checkpoint(self, position: Position, parts: Parts) -> None:
        pass

    def save_weights(self, name: str, net: nn.Module, info: Info) -> Path:
        return _weights_path(self.path, name)


def refuse_existing(path: Path, *, resume: bool) -> None:
    """Never overwrite: a folder that is a run needs `resume`, any other must be empty."""
    if is_run(path):
        if not resume:
            there = read_run(path)
            way = "continue it with --resume, or " if there.state == "interrupted" else ""
            raise UsageError(f"{path} exists ({there.state}): {way}give this run another --name")
    elif path.exists() and not (path.is_dir() and all(map(_ours, path.iterdir()))):
        raise UsageError(f"{path} exists and is not a run: give this run another --name")


def _ours(path: Path) -> bool:
    """Recognise the leftovers of a run that was killed before it began."""
    return path.name == LOCK or (path.name.startswith(".") and path.name.endswith(".part"))


@contextlib.contextmanager
def open_run(path: Path, config: Config, *, resume: bool) -> Iterator[Run]:
    """Lock the folder of a new or continued run; one that never began leaves no folder behind."""
    refuse_existing(path, resume=resume)
    made = not path.exists()
    with locked(path / LOCK, wait=False):
        try:
            refuse_existing(path, resume=resume)  # again: now nobody else can change the answer
            resumed = is_run(path)
            if resumed:
                config = _continued(path, config)
            for leftover in path.glob("**/.*.part"):  # of a writer that was killed
                leftover.unlink(missing_ok=True)
            yield Run(path, config, resumed=resumed)
        finally:
            if made and not is_run(path):
                shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def open_run_together(
    path: Path, config: Config, *, resume: bool, workers: Workers
) -> Iterator[Run]:
    """`open_run` by the first process; the others get a `Bystander`."""
    with contextlib.ExitStack() as stack:
        run = workers.first_does(lambda: stack.enter_context(open_run(path, config, resume=resume)))
        yield run if workers.is_first else Bystander(run.path, run.config, resumed=run.resumed)


def _continued(path: Path, wanted: Config) -> Config:
    """The stored configuration, with what may change between sessions taken from the new one."""
    from maar.config import differing, load

    stored = load(path)
    changes = differing(stored, wanted)
    if changes:
        raise UsageError(
            f"{path} was begun with another configuration and cannot be continued with this one "
            f"({'; '.join(changes)}): give this run another --name"
        )
    if not (path / RESULT).exists() and (before := earlier_revision(path, stored)):
        raise UsageError(f"{before}, and cannot be continued: give this run another --name")
    return dataclasses.replace(
        stored,
        threads=wanted.threads or stored.threads,
        device=stored.device if wanted.device == "auto" else wanted.device,
        devices=wanted.devices,
        train=dataclasses.replace(
            stored.train, **{name: getattr(wanted.train, name) for name in WATCH}
        ),
    )


def load_network(path: str | Path, weights: str = "model") -> tuple[nn.Sequential, Config]:
    """The trained network of a run, in evaluation mode, and its configuration.

    `weights` is "model" (the end of the run), or a stage's "stage-1-last" or "stage-1-best".
    Needs the run's folder only, not the data set.
    """
    from maar.config import load

    path = Path(path)
    if not is_run(path):
        raise UsageError(f"{path} is not a run: it has no config.toml")
    if not re.fullmatch(r"model|stage-\d+-(last|best)", weights):
        raise UsageError(
            f"unknown weights {weights!r} (accepted: model, stage-K-last or stage-K-best)"
        )
    config = load(path, with_method=False)
    file = _weights_path(path, weights)
    if not file.is_file():
        if weights == "model":
            raise RunError(
                f"{path} is not finished: continue it with "
                f"`maar train {shlex.quote(str(path))} --resume`"
            )
        there = sorted(p.stem for p in (path / "checkpoints").glob("stage-*.safetensors"))
        raise UsageError(f"{path} has no weights {weights!r} (accepted: {', '.join(there)}, model)")
    if weights == "model" and not has_model(path):
        raise RunError(
            f"{file} is not the file that result.json names, it was changed or damaged: "
            f"`maar train {shlex.quote(str(path))} --resume` makes it again"
        )
    return read_weights(file, path)[0], config


def has_model(path: Path) -> bool:
    """Whether the weights at the end of a run are there, and those that its result was got with."""
    file = _weights_path(path, "model")
    if not file.is_file():
        return False
    stated = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stated = read_json(path / RESULT).get("model_sha256")
    return stated is None or stated == sha256_file(file)


def read_weights(file: Path, run: Path | None = None) -> tuple[nn.Sequential, dict[str, Any]]:
    """The network of a file that `Run.save_weights` wrote, in evaluation mode, and the header.

    `run`: the folder that may hold the code of a user's own network.
    """
    from maar.networks import make

    tensors, header = checkpoint.load_weights(file)
    try:
        facts = parse_json(header["maar"])
        net = make(
            _network_name(run, facts["network"]) if run else facts["network"],
            shape=tuple(facts["shape"]),
            classes=facts["classes"],
            mean=facts["mean"],
            std=facts["std"],
        )
    except (KeyError, TypeError, ValueError):
        raise RunError(f"{file} does not say which network it is of") from None
    checkpoint.copy_into(net, tensors, str(file))
    return net.eval(), facts


def _weights_path(path: Path, name: str) -> Path:
    folder = path if name == "model" else path / "checkpoints"
    return folder / f"{name}.safetensors"


def own_files(config: Config) -> list[Path]:
    """Return the user's own Python files that a configuration names, as it names them."""
    methods: list[Any] = [config.method]
    names = [config.network]
    while methods:
        method = methods.pop()
        names.append(method.name)
        inner = (getattr(method, field.name) for field in dataclasses.fields(method))
        methods += [value for value in inner if isinstance(value, Method)]
    files = (Path(name.rpartition(":")[0]).expanduser() for name in names if ".py:" in name)
    return list(dict.fromkeys(files))


def _own_network(name: str) -> Path | None:
    """The file of a user's own network, None for a registered one."""
    for suffix in (".py", ".onnx"):
        if f"{suffix}:" in name or name.endswith(suffix):
            return Path(name.rpartition(":")[0] if f"{suffix}:" in name else name)
    return None


def _network_name(path: Path, name: str) -> str:
    """A registered name as it is; a user's own network by its copy in the run's folder."""
    own = _own_network(name)
    if own is None:
        return name
    if own.suffix == ".py":
        with reading(run_of(path / "config.toml")):
            return name.replace(str(own), str(path_of(name)), 1)
    copy = path / f"network{own.suffix}"
    return name.replace(str(own), str(copy), 1) if copy.is_file() else name
