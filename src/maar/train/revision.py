"""Whether a run is of today's training: a method may have been corrected since it was begun."""

from __future__ import annotations

import json
from pathlib import Path

from maar.config import Config

KEY = "revision"


def earlier_revision(run: Path, config: Config) -> str:
    """What to say of a run that was begun with another revision of its method; else nothing."""
    try:
        begun = json.loads((run / "env.json").read_text()).get(KEY, 1)
    except (OSError, ValueError, AttributeError):
        return ""  # nothing was trained yet, or nobody knows
    now = config.method.revision
    if begun == now:
        return ""
    return (
        f"{run} was begun with revision {begun} of method {config.method.name}, which trained "
        f"otherwise than revision {now} of now"
    )
