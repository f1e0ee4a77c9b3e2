"""Join the stores of one question, such as parts of the images certified on several machines."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path

from maar.certification.compare import require_agreement
from maar.core.errors import UsageError
from maar.core.files import write_bytes
from maar.core.seals import SEAL
from maar.records.stores import MANIFEST, PERTURBATION, difference, header, read_manifest
from maar.records.verdicts import Record, Tally
from maar.records.writing import Store, open_store

# Parts of a manifest that each folder has for itself.
OWN = ("key", "format", "subject", "asked", SEAL)


def merge(out: Path, stores: Sequence[Path]) -> Tally:
    """Add what `stores` know to `out`, which may be new or a store of the same key.

    Of two verdicts on an image the decided one counts, else the one that had more time, else the
    one in the store named first. Verified in one and broken in another is an error, before
    anything is written.
    """
    sources = {path.resolve(): path for path in stores if path.resolve() != out.resolve()}
    if not sources:
        raise UsageError("nothing to merge (accepted: OUT and one or more other stores)")
    there = [out, *sources.values()] if (out / MANIFEST).exists() else list(sources.values())
    manifest, *others = map(read_manifest, there)
    subject = manifest.subject
    for path, other in zip(there[1:], others, strict=True):
        if other.key != manifest.key:
            what = difference(manifest, other.subject)
            raise UsageError(f"{path} is about something else than {there[0]} ({what})")
    facts = {k: v for k, v in manifest.content.items() if k not in OWN}
    if "eps" not in subject:
        raise UsageError(f"{there[0]} is not a folder of `maar certify`")
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(open_store(path, subject, facts)) for path in there]
        lines = [record for store in opened for record in store.lines]
        require_agreement({subject["eps"]: lines})
        into = opened.pop(0) if there[0] == out else None
        into = into or stack.enter_context(open_store(out, subject, facts))
        into.drop_summary()
        into.ask(frozenset().union(*(store.asked for store in opened)))
        for store in opened:
            _take(into, store)
        moved = there[0] / PERTURBATION
        if "perturbation" in subject and not (out / PERTURBATION).exists() and moved.is_file():
            write_bytes(out / PERTURBATION, moved.read_bytes())
        tally = Tally.of_all(into.records.values(), facts["images"], facts["verifiers"])
        into.write_summary({**header(subject, facts, into.records), **tally.summary()})
    return tally


def _take(into: Store, store: Store) -> None:
    for record in store.records.values():
        known = into.whole(record["index"])
        if known is None or _weight(record) > _weight(known):
            into.copy(record, store)


def _weight(record: Record) -> tuple[int, float]:
    """How much a verdict says: decided, open after so many seconds, failed."""
    if record["verdict"] not in ("unknown", "error"):
        return 2, 0.0
    limit = record.get("limit")
    return int(record["verdict"] == "unknown"), math.inf if limit is None else limit
