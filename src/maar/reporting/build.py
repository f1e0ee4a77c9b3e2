"""The report on what was collected: which blocks, in which order, what to say where one lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

import maar
from maar.records.reading import Object
from maar.reporting.certification import cascade_figures, cr_over_eps, lambda_figures
from maar.reporting.collect import Collected
from maar.reporting.curves import curve_figures
from maar.reporting.experiments import experiment_notices, experiment_section, slug
from maar.reporting.gallery import counterexamples, least_robust
from maar.reporting.model import Block, Notice, Report, Section
from maar.reporting.radius import radius_figure, radius_table
from maar.reporting.results import cascade_table, certifications_table, results_table
from maar.reporting.runs import config_table, runs_table
from maar.reporting.stages import stage_figures, stage_table
from maar.reporting.systems import systems

SHOWN_PROBLEMS = 20


def make_report(found: Collected, title: str = "", command: str = "") -> Report:
    """Put it together; problems that were met while reading stand at the top."""
    problems = list(found.problems)
    own = _sections(found, problems) if found.runs else []
    sections: list[Section] = []
    here = {run.path.resolve().name for run in found.runs if run.state == "finished"}
    for path, content in found.experiments:
        if (section := _experiment(path, content, [*sections, *own], here)) is not None:
            sections.append(section)
    for path, content in found.experiments:
        if content and not any(isinstance(content.get(key), list) for key in ("rows", "beside")):
            problems.append(f"{path} is no experiment of maar reproduce: it has no rows")
    sections += [section for section in own if section.blocks]
    notices = [
        notice
        for path, content in found.experiments
        for notice in experiment_notices(path, content)
    ]
    notices += _notices(found)
    notices += [Notice("error", text) for text in problems[:SHOWN_PROBLEMS]]
    if len(problems) > SHOWN_PROBLEMS:
        notices.append(Notice("error", f"and {len(problems) - SHOWN_PROBLEMS} more problems"))
    # What spoils numbers, what limits them, what is merely to be known.
    notices.sort(key=lambda notice: ("error", "warning", "info").index(notice.level))
    return Report(
        title or _title(found),
        datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        maar.__version__,
        command,
        tuple(sections),
        tuple(notices),
        tuple(_facts(found)),
    )


def _experiment(
    path: Path, content: Object, others: list[Section], here: set[str]
) -> Section | None:
    """Its section; two files may have one name, but no two blocks of a page."""
    taken = {name for section in others for name in _ids(section)}
    name = slug(path.stem)
    for id in (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3))):
        section = experiment_section(path, content, id, here)
        if section is None or not taken & _ids(section):
            return section
    raise AssertionError("there are more names than sections")


def _ids(section: Section) -> set[str]:
    """Of itself and of its blocks."""
    return {f"section {section.id}", *(block.id for block in section.blocks)}


def _sections(found: Collected, problems: list[str]) -> list[Section]:
    every = systems(found.runs)
    return [
        _section(
            "results",
            "Results",
            [results_table(found), *cr_over_eps(found), *lambda_figures(found)],
        ),
        _section(
            "training",
            "Training",
            curve_figures(every),
            "Each point is an epoch; dashed runs are not finished.",
        ),
        _section(
            "stages",
            "Stages",
            [stage_table(every), *stage_figures(every)],
        ),
        _section(
            "certification",
            "Certification",
            [*cascade_figures(found), cascade_table(found), certifications_table(found)],
        ),
        _section(
            "radius",
            "Radius",
            [radius_figure(found), radius_table(found)],
        ),
        _section(
            "images",
            "Images",
            [counterexamples(found, problems), least_robust(found, problems)],
        ),
        _section("runs", "Runs", [runs_table(found), config_table(found)]),
    ]


def _section(id: str, title: str, blocks: Iterable[Block | None], caption: str = "") -> Section:
    return Section(id, title, tuple(block for block in blocks if block is not None), caption)


def _notices(found: Collected) -> list[Notice]:
    notices = []
    for state, what in (
        ("running", "still training"),
        ("interrupted", "not finished: maar train --resume continues"),
    ):
        names = [run.name for run in found.runs if run.state == state]
        if names:
            notices.append(Notice("info", f"{_listed(names)}: {what}"))
    pending = [run.name for run in found.runs if any(not s.is_complete for s in run.certifications)]
    if pending:
        text = "certification in progress, shares are of the images so far"
        notices.append(Notice("info", f"{_listed(pending)}: {text}"))
    other = [
        run.name
        for run in found.runs
        if run.certifications and all(store.split != "test" for store in run.certifications)
    ]
    if other:
        text = "CR is of validation images, not of the test set"
        notices.append(Notice("warning", f"{_listed(other)}: {text}"))
    partial = [
        store
        for store in found.certifications
        if store.is_complete and store.images < int(store.summary.get("of") or 0)
    ]
    if partial:
        least = min(store.images for store in partial)
        notices.append(
            Notice(
                "warning",
                f"CR is of a part of the images in {len(partial)} of "
                f"{len(found.certifications)} certifications ({least:,} images or more): see the "
                "95 % interval",
            )
        )
    return notices


def _listed(names: list[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _title(found: Collected) -> str:
    if len(found.experiments) == 1:
        name = found.experiments[0][1].get("title")
        if isinstance(name, str) and name:
            return name
    if len(found.runs) == 1:
        return found.runs[0].name
    return f"{len(found.runs)} runs" if found.runs else "Experiments"


def _facts(found: Collected) -> list[tuple[str, str]]:
    states = Counter(run.state for run in found.runs if run.state)
    datasets = dict.fromkeys(run.data for run in found.runs if run.data)
    prepared = (store.prepared for store in (*found.certifications, *found.radii))
    facts = {
        **{f"{state} {'run' if n == 1 else 'runs'}": str(n) for state, n in states.items()},
        **_number(sum(not run.state for run in found.runs), "network", " without a run"),
        **_number(len(found.certifications), "certification"),
        **_number(len(found.radii), "search", " of radii", plural="searches"),
        **_number(len(found.experiments), "experiment"),
        "data": ", ".join(datasets),
        "images": "; ".join(dict.fromkeys(filter(None, prepared))),
    }
    return [(name, text) for name, text in facts.items() if text]


def _number(number: int, noun: str, rest: str = "", *, plural: str = "") -> dict[str, str]:
    """The noun in its number, and how many; nothing if there is none."""
    name = noun if number == 1 else plural or f"{noun}s"
    return {name + rest: str(number)} if number else {}
