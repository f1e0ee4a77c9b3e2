"""Runs that differ in nothing but their seed are one system, with a mean and a spread."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from maar.core.eps import Eps
from maar.core.neutral import NEUTRAL
from maar.records.reading import Object, number, table
from maar.records.stores import MODEL
from maar.reporting.collect import Run, Store
from maar.reporting.model import Cell, Evidence, duration

NOT_THE_SYSTEM = ("seed", *NEUTRAL)


@dataclass(frozen=True, eq=False)
class System:
    """Runs with one configuration and different seeds."""

    name: str
    runs: tuple[Run, ...]

    @property
    def first(self) -> Run:
        """Of its runs; they agree in method, data and eps."""
        return self.runs[0]


def systems(runs: Iterable[Run]) -> list[System]:
    """The systems, in the order of their first runs."""
    found: dict[tuple[str, int], list[Run]] = {}
    seen: Counter[tuple[str, int | None]] = Counter()
    for run in runs:
        identity = _identity(run)
        # The same seed again is the same experiment again, no further sample of it.
        found.setdefault((identity, seen[identity, run.seed]), []).append(run)
        seen[identity, run.seed] += 1
    groups = [tuple(sorted(group, key=lambda run: run.seed or 0)) for group in found.values()]
    methods = [group[0].method for group in groups]
    names = []
    for group, method in zip(groups, methods, strict=True):
        is_plain = method and methods.count(method) == 1
        names.append(method if is_plain else re.sub(r"[-_]seed-?\d+$", "", group[0].name))
    # A name that occurs twice, for different configurations, is told apart by its run.
    return [
        System(name if names.count(name) == 1 else group[0].name, group)
        for name, group in zip(names, groups, strict=True)
    ]


def _identity(run: Run) -> str:
    if not run.config:
        return f"path {run.path.resolve()}"
    kept = {key: value for key, value in flat(run.config).items() if key not in NOT_THE_SYSTEM}
    # A method may have been corrected between two runs (`Method.revision`).
    return repr((sorted(kept.items()), run.env.get("revision", 1)))


def flat(config: Object, prefix: str = "") -> dict[str, Any]:
    """A configuration with dotted keys, as flags write them."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[prefix + key] = value
    return found


def best(run: Run, eps: float | None, weights: str = MODEL) -> Store | None:
    """The certification that says most: of test images, complete, of many images."""

    def rank(store: Store) -> tuple[object, ...]:
        settled = sum(store.summary.get(name, 0) for name in ("verified", "falsified"))
        return store.split == "test", store.is_complete, store.images, settled

    fitting = [
        store
        for store in run.certifications
        if store.weights == weights
        and store.images
        and store.data == run.data
        and (eps is None or same(store.eps, eps))
    ]
    return max(fitting, key=rank, default=None)


def same(a: float, b: float) -> bool:
    """Whether two radii are one, however they were written."""
    return abs(a - b) < 1e-9


def eps_text(eps: float | None) -> str:
    """A radius for people: 2/255 where it is that."""
    if eps is None:
        return ""
    for top in range(1, 255):
        if same(eps, top / 255) and len(repr(eps)) > 8:
            return f"{top}/255"
    return str(Eps(eps)) if 0 <= eps <= 1 else f"{eps:g}"


def evidence_of(store: Store, run: Run | None = None) -> Evidence:
    """What a number of a certification or of radii rests on."""
    eps = store.summary.get("eps", store.summary.get("largest"))
    return Evidence(
        source=str(store.path),
        images=store.images,
        of=store.summary.get("of"),
        split=store.split,
        eps=eps_text(eps) if isinstance(eps, float) else "",
        preset=store.preset,
        verifiers=store.verifiers,
        seconds=store.seconds,
        seeds=(run.seed,) if run is not None and run.seed is not None else (),
        weights=store.hash[:8],
    )


def trained(run: Run, file: str = "result.json") -> Evidence:
    """What a number of a training rests on."""
    return Evidence(
        source=str(run.path / file),
        seconds=run.seconds,
        seeds=() if run.seed is None else (run.seed,),
        hardware=run.hardware,
        command=run.command,
    )


def together(evidence: Sequence[Evidence]) -> Evidence | None:
    """That of a mean: what all agree in, all seeds, all sources."""
    if len(evidence) < 2:
        return evidence[0] if evidence else None

    def common(get: Callable[[Evidence], Any], empty: Any) -> Any:
        found = {get(one) for one in evidence}
        return found.pop() if len(found) == 1 else empty

    seconds = [one.seconds for one in evidence if one.seconds is not None]
    return Evidence(
        source=", ".join(one.source for one in evidence),
        images=common(lambda one: one.images, None),
        of=common(lambda one: one.of, None),
        split=common(lambda one: one.split, ""),
        eps=common(lambda one: one.eps, ""),
        preset=common(lambda one: one.preset, ""),
        verifiers=common(lambda one: one.verifiers, ()),
        seconds=sum(seconds) if seconds else None,
        profile=common(lambda one: one.profile, ""),
        seeds=tuple(seed for one in evidence for seed in one.seeds),
        hardware=common(lambda one: one.hardware, ""),
        command="; ".join(dict.fromkeys(one.command for one in evidence if one.command)),
    )


def percent(values: Sequence[float], evidence: Sequence[Evidence] = ()) -> Cell:
    """Shares as a cell in percent: their mean, and the standard deviation if there are several."""
    if not values:
        return Cell()
    mean = fmean(values)
    text = f"{100 * mean:.2f}"
    if len(values) > 1:
        text += f" ± {100 * stdev(values):.2f}"
    is_mixed = len({(one.images, one.split, one.preset) for one in evidence}) > 1
    note = "not all seeds with the same images and verifiers" if is_mixed else ""
    return Cell(text, mean, together(evidence), note=note)


def spread(values: Sequence[float]) -> tuple[float, float] | None:
    """Mean minus and plus a standard deviation; None of fewer than two."""
    if len(values) < 2:
        return None
    return fmean(values) - stdev(values), fmean(values) + stdev(values)


def accuracy(run: Run) -> float | None:
    """On the test images, of a finished run."""
    return number(table(run.result, "test"), "accuracy")


def plain(text: str) -> Cell:
    """A cell with a word in it."""
    return Cell(text, text or None)


def seconds_cell(seconds: float) -> Cell:
    """A time, as people read it."""
    return Cell(duration(seconds), seconds) if seconds else Cell()
