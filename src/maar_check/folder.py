"""Check a folder of certificates, and count what they prove: nothing else enters the totals."""

from __future__ import annotations

import multiprocessing
import random
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maar_check.arithmetic import Array, Floats, Rationals
from maar_check.certificate import (
    KINDS,
    LARGEST_FILE,
    number,
    read_bytes,
    read_certificate,
    sha256,
    strict_json,
)
from maar_check.claim import check
from maar_check.data import read_images
from maar_check.network import Network, read_network
from maar_check.refusal import Refused, require

MANIFEST, NETWORK = "manifest.json", "network.onnx"
NONE = "none"
MOST_LINES = 20
LARGEST_NETWORK, LARGEST_MANIFEST = 1 << 30, 1 << 28
ABOUT = {"format", "network", "data", "eps", "low", "high", "images", "counts"}
IMAGE = {"index", "label", "verdict", "certificate"}


@dataclass
class Total:
    """What was read, what holds, and the reasons against the rest."""

    network: str
    about: str
    counts: dict[str, int] = field(default_factory=dict)
    """Images by what was shown of them, and those without a certificate."""
    checked: int = 0
    images: int = 0
    refused: list[str] = field(default_factory=list)
    leaves: int = 0
    least: float = float("inf")
    """The least margin of a verified image."""
    seconds: float = 0.0
    claim: str = "real"
    exact: bool = False
    manifest: str = ""
    """Its SHA-256: it names every certificate by its own."""

    @property
    def holds(self) -> bool:
        """Whether every claim does."""
        return not self.refused

    @property
    def certified(self) -> float:
        """Certified robustness: verified images of all."""
        return self.counts["verified"] / self.images

    def table(self) -> str:
        """The result for people, a line for each number."""
        lines = [
            f"network        sha256 {self.network}",
            f"manifest       sha256 {self.manifest}",
            f"claims         {self.about}",
            f"claim          {self.claim}{', in rational numbers' if self.exact else ''}",
            *(f"{kind:<14} {count:,}" for kind, count in self.counts.items()),
            f"refused        {len(self.refused):,}",
            *(f"  {reason}" for reason in self.refused[:MOST_LINES]),
        ]
        to_do = self.images - self.counts.get(NONE, 0)
        if not self.holds:
            return "\n".join([*lines, "NOT every claim holds"])
        if self.checked < to_do:
            lines.append(f"{self.checked:,} of {to_do:,} certificates checked: each holds")
        else:
            share = f"CR {100 * self.certified:.2f} % of {self.images:,} images"
            lines.append(f"every claim holds: {share}")
        cost = f"{self.leaves:,} leaves, least margin {self.least:.3g}, {self.seconds:.1f} s"
        return "\n".join([*lines, cost])


def check_folder(
    folder: Path,
    *,
    workers: int = 1,
    sample: int | None = None,
    exact: bool = False,
    claim: str = "real",
    data: Path | None = None,
    seed: int | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Total:
    """Check every certificate of a folder, or a random sample of them; never raises `Refused`."""
    start, total = time.monotonic(), Total("", "", claim=claim, exact=exact)
    try:
        content = read_bytes(folder / MANIFEST, LARGEST_MANIFEST)
        total.manifest = sha256(content)
        manifest = _manifest(content)
        network = read_bytes(folder / NETWORK, LARGEST_NETWORK)
        total.network = sha256(network)
        require(manifest["network"] == total.network, f"{NETWORK} is not the manifest's")
        read_network(network)
        rows = manifest["images"]
        total.images = len(rows)
        total.counts = dict.fromkeys([*KINDS, NONE], 0)
        total.about = f"{manifest['data']}, eps {manifest['eps']}, images {spans(rows)}"
        _files(folder, rows, total)
        truth = None if data is None else read_images(data)
        chosen = [row for row in rows if row["verdict"] != NONE]
        total.counts[NONE] = len(rows) - len(chosen)
        if sample is not None and sample < len(chosen):
            chosen = random.Random(seed).sample(chosen, sample)
        task = _Task(folder, network, manifest, exact, claim, truth)
        for done, (row, found, why) in enumerate(_results(task, chosen, workers), 1):
            progress(done, len(chosen))
            if why:
                total.refused.append(f"image {row['index']}: {why}")
                continue
            total.checked += 1
            total.counts[row["verdict"]] += 1
            total.leaves += found[1]
            if row["verdict"] == "verified":
                total.least = min(total.least, found[0])
    except Refused as error:
        total.refused.append(str(error))
    total.seconds = time.monotonic() - start
    return total


def spans(rows: list[dict[str, Any]]) -> str:
    """Indices of images, as 0..9,12."""
    parts: list[list[int]] = []
    for index in sorted(row["index"] for row in rows):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(a) if a == b else f"{a}..{b}" for a, b in parts)


def _manifest(content: bytes) -> dict[str, Any]:
    manifest = strict_json(content)
    require(isinstance(manifest, dict) and manifest.keys() == ABOUT, "manifest: other fields")
    require(manifest["format"] == 1, f"manifest: format {manifest['format']} (accepted: 1)")
    number(manifest["eps"], "manifest: eps")
    require(isinstance(manifest["data"], str), "manifest: data is no text")
    rows = manifest["images"]
    require(isinstance(rows, list) and rows, "manifest: no images")
    for row in rows:
        require(isinstance(row, dict) and row.keys() == IMAGE, "manifest: an image's other fields")
        for name in ("index", "label"):
            require(type(row[name]) is int and row[name] >= 0, f"manifest: {name} {row[name]!r}")
        require(row["verdict"] in (*KINDS, NONE), f"manifest: verdict {row['verdict']!r}")
        is_none = row["verdict"] == NONE
        is_hash = re.fullmatch("[0-9a-f]{64}", str(row["certificate"])) is not None
        require(row["certificate"] is None if is_none else is_hash,
                f"manifest: certificate {row['certificate']!r}")  # fmt: skip
    indices = [row["index"] for row in rows]
    require(len(set(indices)) == len(indices), "manifest: an image is there twice")
    counts = {kind: sum(row["verdict"] == kind for row in rows) for kind in (*KINDS, NONE)}
    require(manifest["counts"] == counts, f"manifest: the counts are {counts}")
    return manifest


def _files(folder: Path, rows: list[dict[str, Any]], total: Total) -> None:
    """Refuse certificates that the manifest does not count."""
    named = {f"{row['index']}.npz" for row in rows if row["verdict"] != NONE}
    try:
        others = sorted(path.name for path in folder.glob("*.npz") if path.name not in named)
    except OSError as error:
        raise Refused(f"the folder cannot be read: {error.strerror}") from None
    total.refused += [f"{name} is not in the manifest" for name in others]


@dataclass
class _Task:
    """What every worker needs."""

    folder: Path
    content: bytes
    manifest: dict[str, Any]
    exact: bool
    claim: str
    truth: tuple[Array, Array] | None
    network: Network | None = None

    def check(self, row: dict[str, Any]) -> tuple[dict[str, Any], tuple[float, int], str]:
        """The row, its margin and leaves, and why it does not hold."""
        try:
            self.network = self.network or read_network(self.content)
            content = read_bytes(self.folder / f"{row['index']}.npz", LARGEST_FILE)
            require(sha256(content) == row["certificate"], "the certificate is not the manifest's")
            claimed = read_certificate(content)
            for name, mine in (("kind", "verdict"), ("index", "index"), ("label", "label")):
                value = getattr(claimed, name)
                require(value == row[mine], f"its {name} is {value}, the manifest's {row[mine]}")
            for name in ("eps", "low", "high"):
                same = getattr(claimed, name) == number(self.manifest[name], name)
                require(same, f"its {name} is not the manifest's")
            self._compare(claimed.index, claimed.label, claimed.image)
            numbers = Rationals if self.exact else Floats
            outcome = check(self.network, claimed, numbers, self.claim == "float32")
        except Refused as error:
            return row, (0.0, 0), str(error)
        except (MemoryError, ArithmeticError, RecursionError) as error:
            return row, (0.0, 0), f"not checked: {type(error).__name__}"
        return row, (outcome.margin, outcome.leaves), ""

    def _compare(self, index: int, label: int, image: Array) -> None:
        """Refuse another image or label than the data file has at that place."""
        if self.truth is None:
            return
        images, labels = self.truth
        require(index < len(images), "the data file has no such image")
        require(int(labels[index]) == label, f"the data file has label {int(labels[index])}")
        true = images[index]
        same = true.size == image.size and bool((true.ravel() == image.ravel()).all())
        require(same, "the data file has another image")


_task: _Task | None = None


def _begin(task: _Task) -> None:
    global _task
    _task = task


def _one(row: dict[str, Any]) -> tuple[dict[str, Any], tuple[float, int], str]:
    assert _task is not None
    return _task.check(row)


def _results(task: _Task, rows: list[dict[str, Any]], workers: int) -> Iterable[Any]:
    if workers <= 1 or len(rows) < 2:
        yield from map(task.check, rows)
        return
    context = multiprocessing.get_context("spawn")  # (each with its own numpy, on one thread)
    with context.Pool(min(workers, len(rows)), _begin, (task,)) as pool:
        yield from pool.imap_unordered(_one, rows)
