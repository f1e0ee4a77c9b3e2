"""The outcome of an audit, kept beside the folder that it is about."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone

import maar
from maar.certification.audit.folder import Folder
from maar.certification.audit.run import Report
from maar.core.machine import machine
from maar.records.audits import MOST_KEPT, AuditOutcome


def outcome(folder: Folder, report: Report, images: int) -> AuditOutcome:
    """Return what an audit of so many images found."""
    checks: Counter[str] = Counter()
    for (_, _, level), count in report.levels.items():
        checks[level] += count
    return AuditOutcome(
        key=folder.manifest["key"],
        lines=folder.lines,
        last_seal=str((folder.summary or {}).get("last_seal", "")),
        images=images,
        of=len(folder.records),
        verified=report.verified,
        on_trust=report.on_trust,
        checks=dict(checks),
        disagreements=len(report.wrong),
        wrong=[str(one) for one in report.wrong[:MOST_KEPT]],
        notes=list(report.notes),
        made=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        maar=maar.__version__,
        machine=machine(),
    )
