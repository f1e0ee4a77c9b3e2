"""The report for whoever must rely on a certification: plain words first, then the tables.

For each certification: the claim, what it is about, who has checked it, the classes, the worst
images, what is not claimed, and how to repeat it.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timezone

import maar
from maar.core.errors import UsageError
from maar.records.audits import AuditOutcome, read_audit
from maar.records.checks import spans
from maar.records.reading import Object, Reader, count, number, numbers, word, words
from maar.records.verdicts import VERDICTS
from maar.reporting.collect import Collected, Run, Store
from maar.reporting.gallery import class_name, counterexamples
from maar.reporting.model import Cell, Column, Notice, Report, Section, Table
from maar.reporting.results import cascade_table
from maar.reporting.systems import eps_text, evidence_of, plain

WORST = 10
"""Verified images with the smallest margins that are listed."""
CHECK = "check.json"
"""What `python -m maar_check FOLDER --json` printed, if somebody has kept it."""
MEANING = {
    "verified": "answered correctly, and proved to be so within the whole radius",
    "falsified": "answered correctly; a change within the radius makes the answer wrong",
    "unknown": "answered correctly; neither proved nor disproved",
    "misclassified": "answered wrong without any change",
    "error": "the computation failed; counted as not proved",
}
CHECKS = {
    "replayed": "counterexample or wrong answer replayed, in float64 and by onnxruntime",
    "crown": "proved again by the audit's own CROWN, in float64",
    "alpha_crown": "proved again by the audit's own alpha-CROWN, in float64",
    "complete": "proved again by another complete verifier than the one that proved it",
    "repeated": "proved again by the bounds that the line names, which are maar's own",
    "attacked": "unknown: attacked again, nothing is claimed",
    "trust": "withstood the audit's attack, not proved again: rests on trust",
}
"""How the audit checks a line, in words."""
NOT_CLAIMED = (
    "Nothing is claimed about other images than those listed. A share is not the probability that "
    "the next image is safe.",
    "Nothing is claimed about larger changes, or about changes of another kind: rotations, shifts, "
    "light, blur, dirt, added objects.",
    "Nothing is claimed about images that are not verified. Unknown does not mean unsafe: no proof "
    "was found in the time given.",
    "The claim is about the network in exact arithmetic, with the stored weights. Where two "
    "classes are closer than a rounding error, a device may answer otherwise.",
    "The labels of the data set are taken as right. Whether its images are like those that the "
    "network will meet is not examined.",
)


def make_audit_report(found: Collected, title: str = "", command: str = "") -> Report:
    """Put it together from every certification; a `UsageError` if there is none.

    `command` made it; it stands at the end.
    """
    stores = [(run, store) for run in found.runs for store in run.certifications if store.images]
    if not stores:
        raise UsageError(
            "--audience audit takes certifications, and there are none (make one: maar certify)"
        )
    reader = Reader()
    problems = list(found.problems)
    sections: list[Section] = []
    for place, (run, store) in enumerate(stores, 1):
        own = list(_sections(run, store, reader, problems, command))
        suffix = f"-{place}" if len(stores) > 1 else ""
        sections += [_named(section, suffix, run, store) for section in own]
    problems += reader.problems
    network, data = stores[0][1].network, stores[0][1].data
    usual = f"Robustness of {network} on {data}" if len(stores) == 1 else "Robustness"
    facts = _glance(stores[0][1]) if len(stores) == 1 else (("certifications", str(len(stores))),)
    return Report(
        title or usual,
        datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        maar.__version__,
        "",  # (how to repeat it stands at the end)
        tuple(sections),
        tuple(Notice("error", text) for text in problems),
        facts,
    )


def _named(section: Section, suffix: str, run: Run, store: Store) -> Section:
    """Return a section whose ids differ from those of other certifications."""
    if not suffix:
        return section
    blocks = tuple(replace(block, id=block.id + suffix) for block in section.blocks)
    title = f"{section.title}: {run.name}, eps {eps_text(store.eps)}"
    return replace(section, id=section.id + suffix, title=title, blocks=blocks)


def _sections(
    run: Run, store: Store, reader: Reader, problems: list[str], command: str
) -> Iterator[Section]:
    alone = Collected((_only(run, store),))
    yield Section("claim", "The claim", (_counts(run, store),), lead=tuple(_claim(store)))
    yield Section("subject", "What it is about", (_subject(store),))
    audit = read_audit(store.path, reader)
    checker = reader.json(store.path / CHECK)
    checks = tuple(filter(None, [_audited(audit), cascade_table(alone)]))
    yield Section("checks", "Checked by whom", checks, lead=tuple(_checked(store, audit, checker)))
    yield Section("classes", "By class", (_classes(store),))
    worst = tuple(filter(None, [_margins(store), counterexamples(alone, problems)]))
    lead = tuple(_unknown(store))
    if worst or lead:
        yield Section("worst", "The worst images", worst, lead=lead)
    yield Section("limits", "What is not claimed", (), points=NOT_CLAIMED)
    yield Section("repeat", "How to repeat it", (), points=tuple(_repeat(store, checker, command)))


def _only(run: Run, store: Store) -> Run:
    return replace(run, certifications=(store,), radii=(), evaluations=())


def _glance(store: Store) -> tuple[tuple[str, str], ...]:
    verified = count(store.summary, "verified") / store.images
    return (
        ("verified", f"{100 * verified:.1f} %"),
        ("images", f"{store.images:,}"),
        ("radius", eps_text(store.eps)),
    )


def _within(store: Store) -> str:
    """Say which changes a verified image withstands."""
    if moves := word(store.content, "moves"):
        return f"change of its inputs within {moves}"
    return f"change of at most {eps_text(store.eps)} in every pixel"


def _scale(store: Store) -> str:
    if word(store.content, "moves"):
        return "Which input may change by how much is kept beside the verdicts, under that hash."
    eps = eps_text(store.eps)
    return f"Pixels lie between 0 and 1, so {eps} is {255 * store.eps:.3g} of 255 steps."


def _share(images: int, of: int) -> str:
    return f"{100 * images / of:.1f} %"


def _claim(store: Store) -> Iterator[str]:
    summary, of = store.summary, store.images
    counts = {verdict: count(summary, verdict) for verdict in VERDICTS}
    yield (
        f"{counts['verified']:,} of {of:,} images ({_share(counts['verified'], of)}) are verified: "
        f"the network {store.network} answers each of them correctly, and it is proved that no "
        f"{_within(store)} changes the answer. {_scale(store)}"
    )
    broken = counts["falsified"]
    if broken:
        yield (
            f"{_are(broken)} falsified ({_share(broken, of)}): a change within this radius that "
            "makes the answer wrong was found, checked in two precisions, and kept."
        )
    if wrong := counts["misclassified"]:
        yield f"{_are(wrong)} misclassified ({_share(wrong, of)}) without any change."
    if left := counts["unknown"] + counts["error"]:
        yield f"{_are(left)} unknown ({_share(left, of)}): neither proved nor disproved."
    if of < store.of:
        ends = numbers(summary, "certified_interval95")
        typical = ""
        if len(ends) == 2:
            low, high = (f"{100 * end:.1f}" for end in ends)
            typical = f" If they are typical, {low} to {high} % of all are robust (95 % interval)."
        yield (
            f"The images are {_listed(store.lines)}, counted from 0, of the {store.of:,} "
            f"{store.split} images of {store.data}.{typical}"
        )
    if not store.is_complete:
        yield "The certification is not finished: shares are of the images so far."


def _listed(images: Iterable[int]) -> str:
    return spans(images).replace(",", ", ")


def _are(images: int) -> str:
    return "1 image is" if images == 1 else f"{images:,} images are"


def _counts(run: Run, store: Store) -> Table:
    evidence, rows = evidence_of(store, run), []
    for verdict, meaning in MEANING.items():
        images = count(store.summary, verdict)
        if images or verdict != "error":
            share = images / store.images
            cells = (Cell(f"{images:,}", images, evidence), Cell(f"{100 * share:.2f} %", share))
            rows.append((plain(verdict), *cells, plain(meaning)))
    columns = (Column("verdict"), Column("images", True), Column("share", True), Column("meaning"))
    return Table("counts", "Verdicts", columns, tuple(rows))


def _subject(store: Store) -> Table:
    source, machine, file = store.source, store.machine, word(store.source, "network")
    asked = "; ".join(words(store.subject, "verifiers"))
    facts = {
        "network": store.network,
        "file": file if file != store.network else "",
        "weights": word(source, "weights").removeprefix("model"),
        "hash of the weights": store.hash,
        "data": store.data,
        "hash of the data": word(store.subject, "data"),
        "images": f"{store.images:,} of {store.of:,} {store.split} images: {_listed(store.lines)}",
        "prepared": word(store.content, "prepared"),
        "region": f"every {_within(store)}. {_scale(store)}",
        "verifiers": f"{', '.join(store.verifiers)}"
        + (f" (preset {store.preset})" if store.preset else ""),
        "time": f"{store.seconds:,.1f} s in all verifiers",
        "computed on": machine,
        "software": f"maar {word(store.content, 'maar')}, torch {word(store.content, 'torch')}",
        "key of the folder": store.key,
        "settings of the verifiers": asked,
    }
    rows = tuple((plain(name), plain(text)) for name, text in facts.items() if text.strip())
    return Table("subject", "Network, data and verifiers", (Column("what"), Column("value")), rows)


def _checked(store: Store, audit: AuditOutcome | None, checker: Object) -> Iterator[str]:
    if audit is None:
        yield (
            "No audit is kept beside these verdicts: they rest on the code that made them. "
            f"`maar audit {shlex.quote(str(store.path))}` checks them by other code."
        )
    else:
        yield from _audit_said(store, audit)
    if checker:
        holds = checker.get("holds") is True
        yield (
            f"The separate checker (`maar_check`, {CHECK}) read the certificates: "
            + ("every claim that it checked holds" if holds else "NOT every claim holds")
            + f" ({count(checker, 'checked'):,} certificates checked)."
        )


def _audit_said(store: Store, audit: AuditOutcome) -> Iterator[str]:
    if audit.key != store.key:
        yield "The audit beside these verdicts is about another certification: it counts nothing."
        return
    if store.is_sealed and audit.last_seal != store.last_seal:
        yield (
            "The audit beside these verdicts is of an earlier state: verdicts were added or "
            f"changed since. `maar audit {shlex.quote(str(store.path))}` checks them all."
        )
        return
    who = f"`maar audit` of maar {audit.maar}, on {audit.machine}, {audit.made}"
    what = f"{audit.images:,} of {audit.of:,} images"
    if audit.disagreements:
        yield (
            f"The audit does NOT agree ({who}): {audit.disagreements:,} disagreements on {what}. "
            f"The first: {audit.wrong[0] if audit.wrong else ''}"
        )
    else:
        yield (
            f"The audit agrees with every line that it checked ({who}): {what}. Of "
            f"{audit.verified:,} verified images it proved {audit.verified - audit.on_trust:,} "
            f"again; {audit.on_trust:,} withstood its attack and rest on trust."
        )
    yield "This is what `audit.json` beside the verdicts says; whoever doubts it repeats the audit."


def _audited(audit: AuditOutcome | None) -> Table | None:
    if audit is None or not audit.checks:
        return None
    rows = tuple(
        (plain(CHECKS.get(name, name)), Cell(f"{n:,}", n)) for name, n in audit.checks.items()
    )
    columns = (Column("check"), Column("verdicts that agree", numeric=True))
    return Table("audit", "The audit", columns, rows, notes=tuple(audit.notes))


def _classes(store: Store) -> Table:
    verdicts = [name for name in VERDICTS if count(store.summary, name)]
    by_class: dict[int, Counter[str]] = {}
    for line in store.lines.values():
        by_class.setdefault(line["label"], Counter())[line["verdict"]] += 1
    rows = []
    for label, counts in sorted(by_class.items()):
        images = counts.total()
        share = counts["verified"] / images
        cells = (Cell(f"{counts[name]:,}", counts[name]) for name in verdicts)
        rows.append(
            (
                plain(class_name(store, label)),
                Cell(f"{100 * share:.1f}", share),
                Cell(f"{images:,}", images),
                *cells,
            )
        )
    columns = (
        Column("class"),
        Column("verified, in %", numeric=True),
        Column("images", numeric=True),
        *(Column(name, numeric=True) for name in verdicts),
    )
    return Table("classes", "Verdicts by class", columns, tuple(rows))


def _margins(store: Store) -> Table | None:
    """The verified images whose proof has the least to spare."""
    known = [
        (bound, line)
        for line in store.lines.values()
        if line["verdict"] == "verified" and (bound := number(line, "lb")) is not None
    ]
    if not known:
        return None
    known.sort(key=lambda pair: pair[0])
    rows = tuple(
        (
            Cell(str(line["index"]), line["index"]),
            plain(class_name(store, line["label"])),
            Cell(f"{bound:.4g}", bound),
            plain(str(line.get("by") or "")),
        )
        for bound, line in known[:WORST]
    )
    columns = (
        Column("image", numeric=True),
        Column("class"),
        Column("least margin", numeric=True, help="Proved lead of the right class in the radius"),
        Column("verified by"),
    )
    return Table("margins", "Verified with the least to spare", columns, rows)


def _unknown(store: Store) -> Iterator[str]:
    for verdict in ("unknown", "error"):
        images = [index for index, line in store.lines.items() if line["verdict"] == verdict]
        if images:
            yield f"Images that ended as {verdict}: {_listed(images)}."
    broken = count(store.summary, "falsified")
    if broken:
        images = [i for i, line in store.lines.items() if line["verdict"] == "falsified"]
        yield f"Images with a counterexample: {_listed(images)}."


def _repeat(store: Store, checker: Object, command: str) -> Iterator[str]:
    source, path = store.source, shlex.quote(str(store.path))
    network = word(source, "network") or store.network
    data = word(store.content, "data")
    flags = [shlex.quote(network), "--data", shlex.quote(data), "--eps", eps_text(store.eps)]
    if (weights := word(source, "weights")) not in ("", "model"):
        flags += ["--weights", shlex.quote(weights)]
    if store.preset:
        flags += ["--preset", store.preset]
    else:
        flags += ["--verifiers", ",".join(store.verifiers)]
    for name in ("mean", "std"):
        if values := numbers(source, name):
            flags += [f"--{name}", *map(str, values)]
    if sorted(store.lines) == list(range(len(store.lines))):
        flags += ["--limit", str(len(store.lines))] if len(store.lines) < store.of else []
    elif len(store.lines) <= 100:
        flags += ["--indices", ",".join(map(str, sorted(store.lines)))]
    if not word(store.content, "moves"):
        yield f"Certify again, into a new folder: `maar certify {' '.join(flags)} --out again`"
    yield f"Check these verdicts by other code: `maar audit {path}`"
    certificates = store.path / "certificates"
    if certificates.is_dir() or checker:
        folder = shlex.quote(str(certificates))
        yield f"Check the certificates without maar: `python -m maar_check {folder}`"
    yield f"Make this report again: `{command}`"
