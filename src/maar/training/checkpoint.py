"""Checkpoints: weights and optimiser as safetensors, positions as JSON. Nothing is pickled.

A checkpoint is `NUMBER.safetensors` and then `NUMBER.json`, which has the hash of the former: it
exists as soon as the JSON does, and a file that was cut or changed is found out. NUMBER is the
epochs done, and `EPOCHS+STEPS` in the middle of an epoch. The last two are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from maar.core import limits
from maar.core.errors import RunError
from maar.core.files import write_bytes, write_text
from maar.core.unpacking import parse_json, read_json, read_limited

KEEP = 2
Parts = dict[str, dict[str, Tensor]]
"""Tensors by part (net, optimizer, average) and name."""


@dataclass(frozen=True)
class Position:
    """Where a run stands, and the few numbers that the next epoch needs from the last."""

    epochs: int
    """Done so far, over all stages."""
    step: int
    """Global step that comes next."""
    metrics_bytes: int
    """Length of metrics.jsonl up to this point."""
    data_sha256: str
    best_score: float | None
    """The highest validation score of the current stage."""
    progress: dict[str, Any]
    """Of the epoch in hand, as `Progress.to_json` gives it."""

    @property
    def name(self) -> str:
        """Name of the checkpoint's files; later ones sort behind earlier ones."""
        within = self.progress["steps"]
        return f"{self.epochs:06d}" + (f"+{within:06d}" if within else "")

    def __str__(self) -> str:
        within = self.progress["steps"]
        return f"epoch {self.epochs}" + (f" and {within} steps" if within else "")


def save(folder: Path, position: Position, parts: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Write a checkpoint and drop all but the last `KEEP`."""
    content = to_bytes(
        {
            f"{part}.{name}": value
            for part, tensors in parts.items()
            for name, value in tensors.items()
        }
    )
    name = position.name
    write_bytes(folder / f"{name}.safetensors", content)
    record = {**asdict(position), "tensors_sha256": hashlib.sha256(content).hexdigest()}
    record["check"] = _check(record)
    write_text(folder / f"{name}.json", json.dumps(record, indent=1) + "\n")
    for old in numbers(folder)[KEEP:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def numbers(folder: Path) -> list[Path]:
    """The checkpoints' JSON files, newest first."""
    return sorted(folder.glob("[0-9]*.json"), key=lambda path: path.stem, reverse=True)


def load(path: Path) -> tuple[Position, Parts]:
    """Position and tensors of one checkpoint; any damage is a `RunError`."""
    try:
        record = read_json(path)
        if record.pop("check") != _check(record):
            raise RunError(f"{path} was changed since it was written")
        wanted = record.pop("tensors_sha256")
        position = Position(**record)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise RunError(f"{path} is cut or damaged") from None
    tensors_path = path.with_suffix(".safetensors")
    try:
        content = read_limited(tensors_path, limits.WEIGHTS_BYTES)
    except OSError as error:
        raise RunError(f"{tensors_path} cannot be read ({error.strerror})") from None
    if hashlib.sha256(content).hexdigest() != wanted:
        raise RunError(f"{tensors_path} is cut or damaged (its hash is not the recorded one)")
    parts: Parts = {}
    for key, value in load_tensors(content).items():
        part, _, name = key.partition(".")
        parts.setdefault(part, {})[name] = value
    return position, parts


def save_weights(path: Path, net: nn.Module, facts: dict[str, str]) -> None:
    """Write the weights alone, with `facts` in the file's header."""
    write_bytes(path, to_bytes(dict(net.state_dict()), facts))


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """(weights, facts) of a file that `save_weights` wrote."""
    try:
        content = read_limited(path, limits.WEIGHTS_BYTES)
        tensors = load_tensors(content)
        header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror})") from None
    except (SafetensorError, ValueError):
        raise RunError(f"{path} is cut or damaged") from None
    return tensors, header.get("__metadata__", {})


def to_bytes(tensors: dict[str, Tensor], facts: dict[str, str] | None = None) -> bytes:
    """The safetensors content of some tensors, wherever they live."""
    return save_tensors({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, facts)


def copy_into(net: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Put weights into a network; ones that do not fit are a `RunError`."""
    own = net.state_dict()
    wrong = [k for k in {*own, *weights} if k not in own or k not in weights]
    wrong += [k for k in own if k in weights and own[k].shape != weights[k].shape]
    if wrong:
        raise RunError(f"{where} does not fit the network: {sorted(wrong)[0]} differs")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(weights[name])


def _check(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
