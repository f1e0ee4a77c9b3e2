"""Certificates of settled images: written from the verifiers' notes, or found anew."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from maar.certificates.notes import Notes
from maar.certificates.proof import Question, Subject, noted_proof, packed, plain_proof
from maar.certificates.tree import Unproved
from maar.certification.network import PRECISIONS
from maar.certification.query import Query
from maar.certification.verdict import Status, proves
from maar_check.refusal import Refused

if TYPE_CHECKING:
    from maar.certification.cascade import Cascade, Settled

# Verifiers whose verdicts need no slopes, and those that leave them behind.
PLAIN = ("interval", "crown")
PROVERS = (*PLAIN, "alpha_crown", "bab")
BROKEN = (Status.FALSIFIED, Status.MISCLASSIFIED)
# Rounding a search's slopes may cost it some leaves; finding others takes a fraction of its time.
LEAST_SECONDS = 30.0
# A margin that the checker's own rounding cannot take.
CLEAR = 1e-3


def certifiable(cascade: Cascade) -> Cascade:
    """The cascade with verifiers that leave proofs before the first that leaves none."""
    from maar.certification import VERIFIERS
    from maar.certification.milp.program import Program

    asked = list(cascade.verifiers)
    first = next((n for n, each in enumerate(asked) if isinstance(each, Program)), None)
    if first is None:
        return cascade
    more = [VERIFIERS[name]() for name in PROVERS[1:] if name not in cascade.names]
    more = [
        # (half of the time is the program's)
        replace(each, seconds=cascade.timeout / 2) if each.name == "bab" else each
        for each in more
    ]
    return replace(cascade, verifiers=(*asked[:first], *more, *asked[first:]))


def certificate(query: Query, settled: Settled, subject: Subject, seconds: float) -> bytes | None:
    """The file for a settled image; None where its verdict rests on nothing that can be checked.

    `seconds`: how long a proof may be looked for anew, where the verdict has left none.
    """
    image = query.x[0].numpy()
    question = Question(query.seed, query.y, image)
    if settled.status in BROKEN:
        from maar.certificates.proof import Proof

        point = settled.counterexample
        assert point is not None
        proof = Proof([], {"point": point.astype("<f4")})
        is_falsified = settled.status is Status.FALSIFIED
        return packed(settled.status.value, subject, question, proof if is_falsified else None)
    if settled.status is not Status.VERIFIED:
        return None
    return _verified(query, settled, subject, question, seconds)


def _verified(
    query: Query, settled: Settled, subject: Subject, question: Question, seconds: float
) -> bytes | None:
    end = time.monotonic() + max(seconds, LEAST_SECONDS)
    content = _from_notes(query, settled, subject, question)
    if content is not None:
        return content
    for names in (PLAIN, PROVERS):
        again, notes = _again(query, names, end)
        if again.status is Status.VERIFIED:
            query = replace(query, notes=notes)
            content = _from_notes(query, again, subject, question, sure=True)
            if content is not None:
                return content
    return None


def _again(query: Query, names: tuple[str, ...], end: float) -> tuple[Settled, Notes]:
    """Ask verifiers that leave notes about every class."""
    from maar.certification.cascade import Cascade

    notes = Notes()
    whole = Query.of(query.network, query.x, query.y, query.eps, query.seed, notes=notes)
    cascade: Cascade = replace(Cascade.named(names), timeout=max(1.0, end - time.monotonic()))
    return cascade.settle(whole), notes


def _from_notes(
    query: Query, settled: Settled, subject: Subject, question: Question, sure: bool = False
) -> bytes | None:
    """The certificate that the notes make; asked of the checker itself where it may be close."""
    graph = query.network.graph(PRECISIONS[-1])
    is_plain = settled.by in PLAIN
    if not is_plain and settled.by not in PROVERS:
        return None
    if is_plain:
        proof = plain_proof(graph, settled.by == "interval")
    else:
        assert query.notes is not None
        proved = {k for k, lb in settled.lb.items() if proves(lb)}
        try:
            proof = noted_proof(graph, query.notes, proved, LEAST_SECONDS)
        except Unproved:
            return None
    content = packed("verified", subject, question, proof)
    close = not is_plain or min(settled.lb.values(), default=math.inf) < CLEAR
    return content if not (close or sure) or _holds(content, subject) else None


_checked: dict[str, object] = {}


def _holds(content: bytes, subject: Subject) -> bool:
    """Whether the checker accepts the file; the proof does not rest on this answer."""
    from maar_check.arithmetic import Floats
    from maar_check.certificate import read_certificate
    from maar_check.claim import check
    from maar_check.network import Network, read_network

    if subject.network not in _checked:
        _checked.clear()
        _checked[subject.network] = read_network(subject.content)
    network = _checked[subject.network]
    assert isinstance(network, Network)
    try:
        check(network, read_certificate(content), Floats)
    except Refused:
        return False
    return True
