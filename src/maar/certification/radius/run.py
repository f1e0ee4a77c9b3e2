"""The radii of a data set's images: check everything first, then search what is not yet known.

plan = make_radius_plan(net, load("mnist"), limit=100)
tally, records = run_radius(plan, "certs/radii")
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from maar.certification.display import Display
from maar.certification.inquiry import Inquiry
from maar.certification.radius.display import counts, result, subject
from maar.certification.radius.record import make_record
from maar.certification.radius.search import RadiusTask
from maar.certification.run import Plan, make_plan
from maar.certification.work import work
from maar.certification.workers import LOCAL, Team
from maar.core.errors import UsageError
from maar.data import DataSet
from maar.records.radii import RADII, RadiusTally
from maar.records.verdicts import Record

LARGEST = 0.5
"""From here on all balls hold the grey image: nearly every network is broken."""
TOLERANCE = 0.001
TIMEOUT = 20.0
"""Seconds for a question; of the fifteen about an image, two or three are hard."""


def make_radius_plan(
    net: nn.Sequential,
    data: DataSet,
    largest: float = LARGEST,
    *,
    tolerance: float = TOLERANCE,
    timeout: float = TIMEOUT,
    **options: Any,
) -> Plan:
    """Check the request; `options` are those of `maar.certification.run.make_plan`."""
    plan = make_plan(net, data, largest, timeout=timeout, **options)
    if not 0 < tolerance < plan.eps:
        raise UsageError(
            f"tolerance = {tolerance:g} (accepted: more than 0 and less than the largest radius, "
            f"{plan.eps})"
        )
    task = RadiusTask(**vars(plan.task), tolerance=float(tolerance))
    about = {k: v for k, v in plan.subject.items() if k != "eps"}
    subject = {**about, "largest": float(plan.eps), "tolerance": float(tolerance)}
    return replace(plan, task=task, subject=subject)


def run_radius(
    plan: Plan,
    out: str | Path,
    *,
    workers: int | None = None,
    display: Display[RadiusTally] | None = None,
    team: Team = LOCAL,
) -> tuple[RadiusTally, list[Record]]:
    """Search as planned, as `work` does; return the count and each image's line."""
    return work(plan, RADIUS, out, workers=workers, display=display, team=team)


def _tally(plan: Plan) -> RadiusTally:
    return RadiusTally(len(plan.indices), plan.data.size(plan.split))


RADIUS = Inquiry(RADII, make_record, _tally, subject, result, counts, "a question")
