"""What the folder of a run says about it, read without torch and whatever its condition."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from maar.core import limits
from maar.core.files import is_locked
from maar.core.unpacking import parse_json, parse_toml, read_json, read_text

LOCK = ".lock"


@dataclass(frozen=True)
class Status:
    """One run as far as its files tell."""

    path: Path
    state: str
    """finished, running, interrupted, or damaged."""
    problem: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    hash: str = ""
    last: dict[str, Any] = field(default_factory=dict)
    """The last line of metrics.jsonl."""
    result: dict[str, Any] = field(default_factory=dict)
    certified: dict[str, Any] = field(default_factory=dict)
    """certify/summary.json, where the run has been certified."""
    seconds: float = 0.0


def is_run(path: Path) -> bool:
    """Whether a folder holds a run, however damaged: it has a configuration."""
    return (path / "config.toml").is_file()


def in_use(path: Path) -> bool:
    """Whether a process is training into this folder right now."""
    return is_locked(path / LOCK)


def status(path: Path) -> Status:
    """Read one run's folder; what cannot be read makes it `damaged`, with the reason."""
    try:
        text = read_text(path / "config.toml", limits.TOML_BYTES)
        config = parse_toml(text)
        metrics = read_metrics(path)
        result = _json(path / "result.json")
        certified = _json(path / "certify" / "summary.json")
    except tomllib.TOMLDecodeError:
        return Status(path, "damaged", "config.toml is not valid TOML")
    except UnicodeDecodeError as error:
        return Status(path, "damaged", f"not a text file: {error.reason}")
    except (OSError, ValueError) as error:
        return Status(path, "damaged", str(error))
    if in_use(path):
        state = "running"
    elif result and not (path / "model.safetensors").is_file():
        problem = f"model.safetensors is missing: `maar train {shlex.quote(str(path))} --resume`"
        return Status(path, "damaged", f"{problem} makes it again")
    else:
        state = "finished" if result else "interrupted"
    first = text.partition("\n")[0]
    return Status(
        path,
        state,
        config=config,
        hash=first.removeprefix("# hash ") if first.startswith("# hash ") else "",
        last=metrics[-1] if metrics else {},
        result=result,
        certified=certified,
        seconds=sum(_number(line.get("seconds")) for line in metrics),
    )


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The whole lines of metrics.jsonl; one that is just being written is left out."""
    try:
        text = read_text(path / "metrics.jsonl", limits.LINES_BYTES)
    except FileNotFoundError:
        return []
    lines = text.split("\n")[:-1]
    try:
        found = [parse_json(line) for line in lines]
    except ValueError:
        raise ValueError("metrics.jsonl has a line that is not JSON") from None
    if not all(isinstance(line, dict) for line in found):
        raise ValueError("metrics.jsonl has a line that is not an object")
    return found


def find_runs(folder: Path) -> list[Path]:
    """Folders that hold a run, at any depth below `folder`, itself included."""
    if is_run(folder):
        return [folder]
    return sorted(path.parent for path in folder.glob("**/config.toml"))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    except FileNotFoundError:
        return {}
    except ValueError:
        raise ValueError(f"{path.name} is not valid JSON") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is not an object")
    return found


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
