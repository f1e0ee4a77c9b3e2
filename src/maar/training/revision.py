"""Whether a run is of today's training: a method may have been corrected since it was begun."""

from __future__ import annotations

from pathlib import Path

from maar.config import Config
from maar.core.unpacking import read_json

KEY = "revision"


def earlier_revision(run: Path, config: Config) -> str:
    """Return a remark on a run that was begun with another revision of its method, or ""."""
    try:
        begun = read_json(run / "env.json").get(KEY, 1)
    except (OSError, ValueError, AttributeError):
        return ""  # nothing was trained yet, or nobody knows
    now = config.method.revision
    if begun == now:
        return ""
    return (
        f"{run} was begun with revision {begun} of method {config.method.name}, which trained "
        f"otherwise than revision {now} of now"
    )
