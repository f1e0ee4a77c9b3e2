"""The files of `maar evaluate`: accuracy, and latent robustness layer by layer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from maar.core.files import write_text
from maar.records.reading import Object, Reader, count, number, table, word
from maar.records.stores import MODEL


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One file; what it does not say is empty."""

    network: str
    weights: str
    data: str
    split: str
    eps: float
    layers: list[int]
    attack: Object
    """Steps, step_size, restarts and seed."""
    bounds: str
    """What enclosed the regions."""
    weights_hash: str
    data_sha256: str
    images: int
    of: int
    """Images in the split."""
    accuracy: float
    latent_robustness: dict[str, float]
    """ReLU, counted from 1, or 0 for the input -> the share that withstood the attack."""
    certified: Object | None
    """CR of the same weights, data and eps, where a certification was there."""
    seconds: float
    path: Path = Path()

    def write(self, path: Path) -> None:
        """Write the file."""
        content = asdict(self)
        del content["path"]
        write_text(path, json.dumps(content, indent=1) + "\n")


def read_evaluations(folder: Path, reader: Reader | None = None) -> Iterator[Evaluation]:
    """Yield what the files of a folder say; a damaged one is a problem of the reader."""
    reader = reader or Reader()
    for file in sorted(folder.glob("evaluate-*.json")):
        if content := reader.json(file):
            yield _evaluation(file, content)


def _evaluation(path: Path, content: dict[str, Any]) -> Evaluation:
    readers = {"str": word, "int": count, "float": lambda of, name: number(of, name) or 0.0}
    values = {
        each.name: readers[str(each.type)](content, each.name)
        for each in fields(Evaluation)
        if str(each.type) in readers
    }
    layers, robust = content.get("layers"), table(content, "latent_robustness")
    return Evaluation(
        **{**values, "weights": word(content, "weights") or MODEL},
        layers=[layer for layer in layers if type(layer) is int]
        if isinstance(layers, list)
        else [],
        attack=table(content, "attack"),
        latent_robustness={k: x for k in robust if (x := number(robust, k)) is not None},
        certified=table(content, "certified") or None,
        path=path,
    )
