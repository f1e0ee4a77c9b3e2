"""Audit a folder: every line against the network, the data and the files it names.

folder = read_folder(Path("certs/mine"))
report = audit(folder, net, load("mnist"), runner)
report.wrong
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from torch import nn

from maar.certification.audit.counts import recount
from maar.certification.audit.crew import check_all
from maar.certification.audit.disagreement import Disagreement
from maar.certification.audit.facts import check_facts
from maar.certification.audit.folder import MANIFEST, Folder
from maar.certification.audit.lines import ATTACKS, BOUNDS
from maar.certification.audit.points import (
    FLOAT32,
    FLOAT64,
    Judge,
    Limits,
    Runner,
    breaks,
    check_falsified,
    check_misclassified,
    lead,
)
from maar.certification.audit.proofs import TRUST, Claim, Job, Seen, Task
from maar.data import DataSet
from maar.networks import weights_hash
from maar.records.verdicts import Record
from maar.regions.perturbation import Perturbation

# Images attacked at once, each with all its targets: more rows than a core has use for.
TOGETHER = 8
REPLAYED = "replayed"


@dataclass
class Report:
    """Result of an audit."""

    wrong: list[Disagreement]
    notes: list[str]
    levels: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """(verdict, by, how it was checked) -> images that agree."""
    refuted: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(verdict, by) -> images that disagree."""
    checked: dict[str, bool] = field(default_factory=dict)
    """What is about the folder as a whole -> whether it agrees."""
    bounds_on_trust: int = 0
    """Verified images whose recorded bound `lb` nothing here reaches."""

    @property
    def on_trust(self) -> int:
        """Verified images that nothing here proves again."""
        return self._trusted("verified")

    @property
    def open_on_trust(self) -> int:
        """Unknown images with classes that are said to be proved, and that nothing proves again."""
        return self._trusted("unknown")

    def _trusted(self, verdict: str) -> int:
        kinds = self.levels.items()
        return sum(n for (kind, _, level), n in kinds if (kind, level) == (verdict, TRUST))

    @property
    def verified(self) -> int:
        """Verified images that were looked at, those that disagree included."""
        counts = (*self.levels.items(), *self.refuted.items())
        return sum(images for (verdict, *_), images in counts if verdict == "verified")

    def say(self, index: int | None, what: str) -> None:
        """Enter a disagreement."""
        self.wrong.append(Disagreement(index, what))


@dataclass(frozen=True)
class Strength:
    """How hard the verified images are tried. `complete`: seconds for another complete verifier."""

    restarts: int = 2
    complete: float = 0.0
    seed: int = 1


STRENGTH = Strength()


def audit(
    folder: Folder,
    net: nn.Sequential,
    data: DataSet,
    runner: Runner,
    *,
    strength: Strength = STRENGTH,
    indices: Iterable[int] | None = None,
    workers: int = 1,
    name: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Report:
    """Check all images of the folder, or some; the folder's own sums are always checked.

    `name`: what the network is called, to compare it with the manifest. Another network or other
    data than the folder is about end the audit: no line could agree.
    """
    facts = check_facts(folder, data, name)
    report = Report([], [*folder.notes, *facts.notes])
    if not isinstance(folder.near.each, float):
        report.notes.append("perturbation.npz has the radius of each place, and the range")
    report.checked["facts"] = not facts.wrong
    for what in facts.wrong:
        report.say(None, f"{MANIFEST}: {what}")
    report.checked["lines"] = not folder.wrong
    report.wrong += folder.wrong
    sums = recount(folder)
    if folder.summary is not None:
        report.checked["summary"] = not sums
    report.wrong += sums
    _compare(report, "weights", folder.subject["weights"], weights_hash(net), "the network")
    _compare(report, "data", folder.subject["data"], data.sha256, "the data set")
    if not (report.checked["weights"] and report.checked["data"]):
        return report
    chosen = _choose(report, folder, data, indices)
    labels = dict(zip(chosen, data.labels(folder.split, chosen).tolist(), strict=True))
    mislabelled = [i for i in chosen if folder.records[i]["label"] != labels[i]]
    for index in mislabelled:
        said = folder.records[index]["label"]
        report.say(index, f"the line has label {said}, the data set {labels[index]}")
    report.checked["labels"] = not mislabelled
    judge = Judge(net, runner)
    _replay(report, folder, data, labels, judge, progress)
    _check_proofs(report, folder, data, labels, net, strength, workers, progress)
    return report


def _compare(report: Report, name: str, said: str, found: str, what: str) -> None:
    report.checked[name] = said == found
    if said != found:
        report.say(None, f"{name}: the folder is about {said[:8]}, {what} here is {found[:8]}")


def _choose(
    report: Report, folder: Folder, data: DataSet, indices: Iterable[int] | None
) -> list[int]:
    there = data.size(folder.split)
    chosen = sorted(folder.records if indices is None else set(indices))
    for index in chosen:
        if index not in folder.records:
            report.say(index, "verdicts.jsonl has no line of it")
        elif not isinstance(index, int) or not 0 <= index < there:
            report.say(index, f"{data.name} has no such {folder.split} image (0 to {there - 1})")
    return [i for i in chosen if i in folder.records and isinstance(i, int) and 0 <= i < there]


def _replay(
    report: Report,
    folder: Folder,
    data: DataSet,
    labels: dict[int, int],
    judge: Judge,
    progress: Callable[[int], None],
) -> None:
    """Every image by two programs; those said to be broken, where they are said to be."""
    differ = []
    for index, y in labels.items():
        record = folder.records[index]
        x = data.images(folder.split, [index])[0].numpy()
        scores = judge.scores(x)
        if scores.differ():
            differ.append(index)
        if record["verdict"] == "misclassified":
            _enter(report, record, REPLAYED, check_misclassified(scores, y))
        elif record["verdict"] == "falsified":
            path = folder.counterexample(index)
            found = check_falsified(record, path, x, y, folder.near, judge)
            tried = "misclassified" in record["times"]
            if tried and lead(scores.exact, y)[1] > FLOAT32 * scores.size():
                found.append("falsified, but it is misclassified without any attack")
            _enter(report, record, REPLAYED, found)
        elif record["verdict"] == "error":
            _enter(report, record, "", [])
        else:
            path = folder.counterexample(index)
            if path.is_file() and breaks(path, x, y, folder.near, judge):
                report.say(index, f"{record['verdict']}, but counterexamples/{path.name} breaks it")
            continue  # counted when it has been attacked
        progress(1)
    report.checked["onnxruntime"] = not differ
    for index in differ:
        report.say(index, "onnxruntime and float64 give different scores: not the same network")


def _check_proofs(
    report: Report,
    folder: Folder,
    data: DataSet,
    labels: dict[int, int],
    net: nn.Sequential,
    strength: Strength,
    workers: int,
    progress: Callable[[int], None],
) -> None:
    """Attack what was not broken, bound again what is said to be proved."""
    left = [i for i in labels if folder.records[i]["verdict"] in ("verified", "unknown")]
    classes = len(data.classes)
    jobs = []
    for start in range(0, len(left), TOGETHER):
        part = left[start : start + TOGETHER]
        x = np.ascontiguousarray(data.images(folder.split, part).numpy())
        claims = [_claim(folder.records[i], labels[i], classes) for i in part]
        jobs.append(Job(part, x, [labels[i] for i in part], claims))
    names, spelled = folder.frame.verifiers, folder.subject["verifiers"]
    settings = dict(zip(names, spelled, strict=True)) if len(names) == len(spelled) else {}
    options = (strength.restarts, strength.seed, strength.complete, settings)
    task = Task(net, folder.near, *options, moves=moves_of(folder.near))
    broken, proved = [], []
    with contextlib.closing(check_all(task, jobs, workers)) as results:
        for seen in (each for part in results for each in part):
            record, y = folder.records[seen.index], labels[seen.index]
            claim = _claim(record, y, classes)
            if record["verdict"] == "verified":
                wrong = _judge(record, seen, y, claim)
                report.bounds_on_trust += not wrong and not _reaches(seen, record["lb"])
            else:
                wrong = _judge_open(record, seen, y, classes, claim)
                broken += [seen.index] if seen.margin < 0 else []
                proved += [seen.index] if seen.proves_all else []
            _enter(report, record, seen.level, wrong)
            progress(1)
    if broken:
        report.notes.append(f"the attack breaks {len(broken)} of the open images: {_few(broken)}")
    if proved:
        report.notes.append(f"bounds prove {len(proved)} of the open images: {_few(proved)}")


def moves_of(near: Limits) -> Perturbation | None:
    """Return the same question for maar's own verifiers; None for the usual one."""
    if isinstance(near.each, float):
        return None
    return Perturbation(*(np.asarray(a, np.float64) for a in (near.each, near.low, near.high)))


def _few(images: list[int]) -> str:
    return ", ".join(map(str, sorted(images)[:10])) + (", ..." if len(images) > 10 else "")


def _claim(record: Record, y: int, classes: int) -> Claim:
    """Return what a line says is proved."""
    is_proved = record["verdict"] == "verified"
    left = {y} if is_proved else {y, *record.get("open", range(classes))}
    behind = tuple(k for k in range(classes) if k not in left)
    return Claim(behind, str(record["by"]) if is_proved else "", tuple(record["times"]))


def _judge(record: Record, seen: Seen, y: int, claim: Claim) -> list[str]:
    """A verified image: nothing found in the ball may be below what is said to be proved."""
    by = f"verified by {record['by']}"
    if seen.margin <= 0:
        where = f"at a distance of {seen.distance:.6g}" if seen.distance else "without any attack"
        return [f"{by}, but class {seen.target} is ahead of {y} by {-seen.margin:.3g} {where}"]
    lb, slack = record.get("lb"), FLOAT64 * max(1.0, seen.margin)
    if lb is None or not lb > 0:
        return [f"{by}, but the line has no bound above zero (lb: {lb})"]
    if lb > seen.margin + slack:
        return [f"{by}, but its bound {lb:.6g} is above {seen.margin:.6g}, a margin in the ball"]
    if seen.lb is not None and seen.lb > seen.margin + slack:
        return [f"the audit's own bound {seen.lb:.6g} is above {seen.margin:.6g}: a fault of maar"]
    return _judge_bounds(record, seen, claim)


def _judge_open(record: Record, seen: Seen, y: int, classes: int, claim: Claim) -> list[str]:
    """An open image: classes that it does not list as open are said to be proved."""
    strange = [k for k in record.get("open", ()) if k >= classes]
    if strange:
        return [f"class {strange[0]} is said to be open, the data set has {classes}"]
    if seen.margin < 0 and seen.target in claim.classes:
        ahead = f"ahead of {y} by {-seen.margin:.3g} at a distance of {seen.distance:.6g}"
        return [f"class {seen.target} is said to be proved, but it is {ahead}"]
    return _judge_bounds(record, seen, claim)


def _judge_bounds(record: Record, seen: Seen, claim: Claim) -> list[str]:
    """Compare a line with the bounds that it names, which were asked again."""
    again = seen.repeated
    if again is None or not again.lb:
        return []
    if set(claim.asked) <= ATTACKS | BOUNDS:  # nothing else can have proved a class
        for k in claim.classes:
            lb = again.lb.get(k, -math.inf)
            if lb < -again.slack(0.0, seen.margin):
                names = ", ".join(again.names)
                return [f"class {k} is said to be proved, but {names} bounds it by {lb:.6g} only"]
        least = min(again.lb.values())
    else:  # a class that a bound proves keeps that bound
        least = min((lb for lb in again.lb.values() if lb > 0), default=math.inf)
    lb = record.get("lb")
    if "crown" in again.names and seen.lb is not None:
        # In float32 it may have failed by a rounding there and not here, which float64 makes up.
        least = max(least, seen.lb)
    if lb is not None and lb > least + again.slack(lb, seen.margin):
        return [f"its bound {lb:.6g} is above {least:.6g}, which its verifiers give"]
    return []


def _reaches(seen: Seen, lb: float) -> bool:
    """Return whether the audit's bound, or the verifiers asked again, reach a recorded bound."""
    again, reached = seen.repeated, -math.inf if seen.lb is None else seen.lb
    slack = FLOAT64 * max(1.0, seen.margin)
    if again is not None and again.lb:
        reached = max(reached, min(again.lb.values()))
        slack = again.slack(lb, seen.margin)
    return lb <= reached + slack


def _enter(report: Report, record: Record, level: str, wrong: list[str]) -> None:
    kind = (record["verdict"], str(record["by"] or ""))
    for what in wrong:
        report.say(record["index"], what)
    if wrong:
        report.refuted[kind] += 1
    else:
        report.levels[(*kind, level)] += 1
