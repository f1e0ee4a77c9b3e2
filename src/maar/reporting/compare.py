"""Two certified networks, image by image: what `maar compare` finds, read from files only.

An image is certified, broken (misclassified or falsified) or open. Which of two networks certifies
more is a question about the certified ones; which is more robust also depends on the open ones, so
that question is answered from both ends: open for good or for bad.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maar.core.errors import RunError, UsageError
from maar.core.neutral import NEUTRAL
from maar.records.reading import Object, number, word, words
from maar.records.stores import MODEL
from maar.records.verdicts import BROKEN
from maar.reporting.collect import Run, Store, collect
from maar.reporting.mcnemar import difference, p_values
from maar.reporting.runs import value_text
from maar.reporting.systems import eps_text, flat


@dataclass(frozen=True)
class Certified:
    """What is known of one network's images at one radius, from one or more certifications."""

    eps: float
    data: str
    split: str
    """As the store has it: `test`, or `valid 5000`."""
    data_hash: str
    weights: str
    presets: tuple[str, ...]
    verifiers: tuple[str, ...]
    asked: tuple[str, ...]
    """The verifiers with their settings, as the store has them."""
    limits: tuple[float, ...]
    """Seconds that open images were given."""
    verdicts: dict[int, str]

    def __str__(self) -> str:
        return f"{self.data} {self.split} at eps {eps_text(self.eps)}"


@dataclass(frozen=True)
class McNemar:
    """McNemar's test of b against c of n images."""

    b: int
    c: int
    n: int

    @property
    def p(self) -> tuple[float, float]:
        """Exact and mid-p."""
        return p_values(self.b, self.c)

    @property
    def difference(self) -> tuple[float, float, float]:
        """Of the shares, with its 95 % interval."""
        return difference(self.b, self.c, self.n)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        points, low, high = self.difference
        exact, mid = self.p
        return {
            "only_a": self.b,
            "only_b": self.c,
            "difference": points,
            "interval95": [low, high],
            "p_exact": exact,
            "p_mid": mid,
        }


@dataclass(frozen=True)
class Comparison:
    """Two networks on the images that both have, at one radius."""

    a: Certified
    b: Certified
    images: tuple[int, ...]

    def pairs(self) -> Counter[tuple[str, str]]:
        """(of A, of B) -> images; each is certified, broken or open."""
        return Counter((_kind(self.a, i), _kind(self.b, i)) for i in self.images)

    def only(self, one: Certified, other: Certified) -> list[int]:
        """Images that one certifies and the other does not."""
        return [
            i for i in self.images
            if _kind(one, i) == "certified" and _kind(other, i) != "certified"
        ]  # fmt: skip

    def count(self, one: Certified, *verdicts: str) -> int:
        """Images with one of these verdicts."""
        return sum(one.verdicts[i] in verdicts for i in self.images)

    @property
    def certified(self) -> McNemar:
        """Which certifies more."""
        only_a, only_b = self.only(self.a, self.b), self.only(self.b, self.a)
        return McNemar(len(only_a), len(only_b), len(self.images))

    @property
    def extremes(self) -> tuple[McNemar, McNemar]:
        """Which is more robust, if all that is open turned out best for B, and best for A."""
        proved, perhaps = ("certified",), ("certified", "open")
        return self._robust(proved, perhaps), self._robust(perhaps, proved)

    def _robust(self, of_a: tuple[str, ...], of_b: tuple[str, ...]) -> McNemar:
        pairs = self.pairs().items()
        only_a = sum(n for (x, y), n in pairs if x in of_a and y not in of_b)
        only_b = sum(n for (x, y), n in pairs if x not in of_a and y in of_b)
        return McNemar(only_a, only_b, len(self.images))

    def open(self, one: Certified) -> int:
        """Images that are neither proved nor broken."""
        return sum(_kind(one, i) == "open" for i in self.images)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        sides = {"a": self.a, "b": self.b}
        n, pairs = len(self.images), self.pairs()
        least, most = self.extremes
        return {
            "eps": self.a.eps,
            "data": self.a.data,
            "split": self.a.split,
            "images": n,
            **{
                name: {
                    "weights": one.weights,
                    "presets": list(one.presets),
                    "verifiers": list(one.verifiers),
                    "images": len(one.verdicts),
                    "certified": self.count(one, "verified") / n,
                    "certified_upper": 1 - self.count(one, *BROKEN) / n,
                    "accuracy": 1 - self.count(one, "misclassified") / n,
                    "open": self.open(one),
                }
                for name, one in sides.items()
            },
            "both": pairs["certified", "certified"],
            "only_a": self.only(self.a, self.b),
            "only_b": self.only(self.b, self.a),
            "certified_test": self.certified.to_json(),
            "robust_test_best_for_b": least.to_json(),
            "robust_test_best_for_a": most.to_json(),
        }


@dataclass(frozen=True)
class Compared:
    """Two networks at every radius that both were certified at."""

    names: tuple[str, str]
    settings: tuple[tuple[str, str, str], ...]
    """(key, of A, of B) where the configurations differ."""
    comparisons: tuple[Comparison, ...]
    problems: tuple[str, ...]


def compare(
    paths: tuple[Path, Path],
    weights: str = MODEL,
    effective: Callable[[Object], Object] = lambda config: config,
) -> Compared:
    """Read two runs, networks without a run, or certifications; refuse what cannot be compared.

    `effective` takes the settings without effect out of a configuration.
    """
    runs, problems = [], []
    for path in paths:
        found = collect([path])
        if len(found.runs) != 1:
            raise UsageError(
                f"{path} holds {len(found.runs)} runs or networks (accepted: the folder of one run,"
                " of one certification, or certs/NAME)"
            )
        runs.append(found.runs[0])
        problems += found.problems
    known = [
        _certified(run, path, weights, problems) for run, path in zip(runs, paths, strict=True)
    ]
    one, other = known
    names = [run.name for run in runs]
    if names[0] == names[1]:
        names = [str(path) for path in paths]
    shared = sorted(set(one) & set(other), key=lambda key: (key[1], key[0]))
    if not shared:
        raise UsageError(
            f"nothing to compare: {names[0]} was certified on {_listed(one)}, {names[1]} on "
            f"{_listed(other)}"
        )
    pairs, refused = [], []
    for key in shared:
        try:
            pairs.append(_paired(one[key], other[key], names))
        except UsageError as error:
            refused.append(error)
    if not pairs:
        raise refused[0]
    problems += map(str, refused)
    return Compared(
        (names[0], names[1]),
        _settings(*(effective(run.config) for run in runs)),
        tuple(pairs),
        tuple(problems),
    )


def _certified(
    run: Run, path: Path, weights: str, problems: Sequence[str]
) -> dict[tuple[str, float], Certified]:
    """(split, eps) -> what all certifications of these weights say together."""
    stores = list(run.certifications)
    if run.config:
        stores = [store for store in stores if store.weights == weights]
    if not stores:
        there = sorted({store.weights for store in run.certifications})
        damaged = [problem for problem in problems if problem.startswith(f"{path}/")]
        hint = f"; there are some of {', '.join(there)}" if there else ""
        hint = "; ".join((hint, *damaged))
        flag = "" if weights == MODEL else f" --weights {weights}"
        raise UsageError(
            f"{path} has no certification of {weights}{hint} (make one: maar certify {path}{flag})"
        )
    found: dict[tuple[str, float], Certified] = {}
    for store in stores:
        new = _of_store(store)
        key = new.split, new.eps
        found[key] = _joined(found[key], new, path) if key in found else new
    return found


def _of_store(store: Store) -> Certified:
    subject = store.subject
    return Certified(
        eps=store.eps,
        data=store.data,
        split=word(subject, "split") or store.split,
        data_hash=word(subject, "data"),
        weights=store.hash,
        presets=(store.preset,) if store.preset else (),
        verifiers=store.verifiers,
        asked=words(subject, "verifiers"),
        limits=tuple(sorted({x for line in store.lines.values() if (x := number(line, "limit"))})),
        verdicts={index: line["verdict"] for index, line in sorted(store.lines.items())},
    )


def _joined(one: Certified, other: Certified, path: Path) -> Certified:
    """Two certifications of the same network: what either settles is settled."""
    if (one.weights, one.data_hash) != (other.weights, other.data_hash):
        raise UsageError(
            f"{path} has certifications of different weights or images on {one}: name one of "
            "their folders"
        )
    verdicts = dict(one.verdicts)
    for index, verdict in other.verdicts.items():
        before = verdicts.get(index, "")
        if {verdict, before} & set(BROKEN) and "verified" in (verdict, before):
            raise RunError(
                f"image {index} is both verified and {verdict if before == 'verified' else before}"
                f" on {one} in {path}: one of them is wrong, please report it"
            )
        if before not in ("verified", *BROKEN):
            verdicts[index] = verdict
    return Certified(
        one.eps, one.data, one.split, one.data_hash, one.weights,
        tuple(dict.fromkeys(one.presets + other.presets)),
        tuple(dict.fromkeys(one.verifiers + other.verifiers)),
        tuple(dict.fromkeys(one.asked + other.asked)),
        tuple(sorted({*one.limits, *other.limits})),
        dict(sorted(verdicts.items())),
    )  # fmt: skip


def _paired(one: Certified, other: Certified, names: list[str]) -> Comparison:
    if one.data_hash != other.data_hash:
        raise UsageError(
            f"{names[0]} and {names[1]} were certified on different images: {one.data} "
            f"{one.split} with hash {one.data_hash[:8]}, {other.data} {other.split} with hash "
            f"{other.data_hash[:8]}"
        )
    images = tuple(index for index in one.verdicts if index in other.verdicts)
    if not images:
        raise UsageError(
            f"{names[0]} and {names[1]} have no image in common on {one}: "
            f"{len(one.verdicts):,} and {len(other.verdicts):,} others"
        )
    return Comparison(one, other, images)


def _unwrapped(settings: dict[str, Any], beside: dict[str, Any]) -> dict[str, Any]:
    """Of a method around the other's, such as MAAR's around COLT: the base's settings as its own.

    A knob that both have, such as lam, stays apart.
    """
    inner = settings.get("method.base.name")
    if inner is None or inner != beside.get("method.name"):
        return settings
    own = {}
    for key, value in settings.items():
        plain = key.replace("method.base.", "method.", 1)
        if key != "method.base.name":
            own[key if plain in settings else plain] = value
    return own


def _kind(one: Certified, index: int) -> str:
    verdict = one.verdicts[index]
    return "certified" if verdict == "verified" else "broken" if verdict in BROKEN else "open"


def _listed(known: dict[tuple[str, float], Certified]) -> str:
    return ", ".join(map(str, known.values()))


def _settings(one: Object, other: Object) -> tuple[tuple[str, str, str], ...]:
    if not one or not other:
        return ()
    left, right = flat(one), flat(other)
    left, right = (
        {key: value_text(value) for key, value in _unwrapped(of, beside).items()}
        for of, beside in ((left, right), (right, left))
    )
    return tuple(
        (key, left.get(key, ""), right.get(key, ""))
        for key in dict.fromkeys([*left, *right])
        if key not in NEUTRAL and left.get(key) != right.get(key)
    )
