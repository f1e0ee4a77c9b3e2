"""Verifiers in order: each gets only the target classes that those before it left open."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import cast

import numpy as np

from maar.certification import VERIFIERS
from maar.certification.alarm import TimeUp, alarm
from maar.certification.block import Block, Quick
from maar.certification.query import Query
from maar.certification.replay import NoCounterexample, replay, rival
from maar.certification.solvers import SOLVERS
from maar.certification.verdict import Status, Verdict, proves
from maar.certification.verifier import Verifier
from maar.core.errors import UsageError

# Seconds that a verifier may take to notice by itself that time is up.
GRACE = 2.0


@dataclass
class Settled:
    """How one image ended, and how it came to that."""

    status: Status = Status.UNKNOWN
    by: str | None = None
    """The verifier that settled it, or that failed."""
    lb: dict[int, float] = field(default_factory=dict)
    """Class -> the best lower bound of z_y - z_k that was proved."""
    margin: float | None = None
    """z_y - z_target at the counterexample."""
    open: list[int] = field(default_factory=list)
    """Classes that nothing settled."""
    target: int | None = None
    """The class that is ahead there."""
    counterexample: np.ndarray | None = None
    """[*shape]"""
    times: dict[str, float] = field(default_factory=dict)
    """Seconds in each verifier that the image came to."""
    error: str = ""
    reason: str = ""
    """Why a complete verifier ended with unknown before its time was up."""
    proof: bytes | None = field(default=None, repr=False)
    """The certificate, where one was asked for and could be written."""

    @property
    def is_final(self) -> bool:
        """Whether no verifier is to be asked any more. (After a failure another one may do it.)"""
        return self.status not in (Status.UNKNOWN, Status.ERROR)


@dataclass(frozen=True)
class Cascade:
    """Ask the verifiers one after the other, until one settles the query.

    `timeout`: seconds for an image, all verifiers together. When they are over, the verifier at
    work gives what it has, and no other is asked.
    """

    verifiers: tuple[Verifier, ...]
    timeout: float = math.inf

    @staticmethod
    def named(names: Iterable[str]) -> Cascade:
        """From registered names; an unknown or repeated one is a `UsageError`."""
        names = list(names)
        if not names:
            raise UsageError(f"no verifiers (accepted: a list of {', '.join(VERIFIERS)})")
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"verifier {name!r} is named twice")
        made = tuple(_verifier(name) for name in names)
        for one in made:
            if [other.name for other in made].count(one.name) > 1:
                raise UsageError(f"two verifiers have the name {one.name!r}")
        return Cascade(made)

    def with_solver(self, name: str) -> Cascade:
        """The same, with another solver for mixed-integer programs."""
        from maar.certification.milp.program import Program

        if not any(isinstance(verifier, Program) for verifier in self.verifiers):
            names = ", ".join(self.names)
            raise UsageError(f"solver {name!r}: none of the verifiers has a solver ({names})")
        SOLVERS[name].require()
        chosen = (
            replace(verifier, solver=name) if isinstance(verifier, Program) else verifier
            for verifier in self.verifiers
        )
        return replace(self, verifiers=tuple(chosen))

    @property
    def names(self) -> list[str]:
        """Names of the verifiers, in order."""
        return [verifier.name for verifier in self.verifiers]

    @property
    def quick(self) -> tuple[Verifier, ...]:
        """The first verifiers, as far as they can answer for many images together."""
        return tuple(takewhile(lambda verifier: isinstance(verifier, Quick), self.verifiers))

    def begin(self, queries: Sequence[Query]) -> list[Settled]:
        """Ask the quick verifiers about images of one block; `settle` goes on where this ends.

        If one fails, or takes longer than all images may, it will be asked about each by itself.
        """
        queries = list(queries)
        begun = [Settled() for _ in queries]
        for verifier in self.quick:
            left = [n for n, settled in enumerate(begun) if not settled.is_final]
            if not left:
                break
            start = time.perf_counter()
            try:
                with alarm(len(left) * self.timeout + GRACE):
                    assert isinstance(verifier, Quick)
                    verdicts = verifier.together(Block.of([queries[n] for n in left]))
            except (TimeUp, Exception):
                break
            for n, verdict in zip(left, verdicts, strict=True):
                try:
                    queries[n] = _take(begun[n], verdict, verifier.name, queries[n])
                except Exception as error:
                    _note_exception(begun[n], verifier.name, error)
                begun[n].open = list(queries[n].targets)
            seconds = (time.perf_counter() - start) / len(left)
            for n in left:
                begun[n].times[verifier.name] = seconds
        return begun

    def settle(self, query: Query, begun: Settled | None = None) -> Settled:
        """The verdict on one image. A failure is this image's ERROR, never an exception.

        `begun`: what `begin` has found; its verifiers are not asked again.
        """
        settled = begun or Settled()
        asked = set(settled.times)
        end = time.monotonic() + self.timeout - sum(settled.times.values())
        # (by the bounds themselves: a class is proved by nothing else)
        query = query.narrowed(k for k in query.targets if not proves(settled.lb.get(k, 0.0)))
        query = replace(query, deadline=min(query.deadline, end))
        for verifier in self.verifiers:
            if settled.is_final or (settled.times and not query.left()):
                break
            if verifier.name in asked:
                continue
            start = time.perf_counter()
            try:
                with alarm(query.left() + GRACE):
                    verdict = verifier(query)
                query = _take(settled, verdict, verifier.name, query)
            except TimeUp:
                pass  # what it had is lost
            except Exception as error:
                _note_exception(settled, verifier.name, error)
            settled.times[verifier.name] = time.perf_counter() - start
        settled.open = list(query.targets)
        return settled


def _verifier(name: str) -> Verifier:
    """Make a verifier by its name; one from outside must not pass for one of maar's."""
    kind = VERIFIERS[name]
    if VERIFIERS.has_built_in(name):
        return kind()
    made = kind() if isinstance(kind, type) else kind
    own = getattr(made, "name", None)
    if not callable(made) or not isinstance(own, str) or not own.isidentifier():
        raise UsageError(
            f"verifier {name!r} is no verifier (accepted: a class without arguments, with a name, "
            "such as `name = 'mine'`, and a call that takes a query)"
        )
    if VERIFIERS.has_built_in(own):
        raise UsageError(f"verifier {name!r} calls itself {own!r}, as one of maar's: rename it")
    return cast(Verifier, made)


def _take(settled: Settled, verdict: Verdict, name: str, query: Query) -> Query:
    """Enter a verdict; returns the query with what is still open."""
    if verdict.status is Status.ERROR:
        _note_failure(settled, name, verdict.error)
    elif verdict.status in (Status.MISCLASSIFIED, Status.FALSIFIED):
        point = verdict.counterexample
        if point is None:
            raise NoCounterexample("there is no point")
        if verdict.status is Status.FALSIFIED:
            replay(query, point)  # never take a verifier's word for it
        settled.status, settled.by, settled.error = verdict.status, name, ""
        settled.counterexample = point[0].numpy()
        settled.target, settled.margin = rival(query, point)
    else:
        for k, lb in verdict.lb.items():
            settled.lb[k] = max(settled.lb.get(k, -math.inf), lb)
        query = query.narrowed(k for k in query.targets if not proves(verdict.lb.get(k, 0.0)))
        settled.reason = f"{name}: {verdict.reason}" if verdict.reason else settled.reason
        if not query.targets:
            settled.status, settled.by, settled.error = Status.VERIFIED, name, ""
    return query


def _note_exception(settled: Settled, name: str, error: Exception) -> None:
    lines = str(error).splitlines() or [""]
    _note_failure(settled, name, f"{type(error).__name__}: {lines[0]}")


def _note_failure(settled: Settled, name: str, why: str) -> None:
    """An image that failed in one verifier may still be settled by another; if not, it is ERROR."""
    settled.status, settled.by, settled.error = Status.ERROR, name, f"{name}: {why}"
