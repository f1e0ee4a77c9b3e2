"""Print one version's section of CHANGELOG.md, for the notes of a release.

python scripts/changelog.py 0.2.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def section(text: str, version: str) -> str:
    """Return what stands below the version's heading; empty if there is none."""
    found = re.search(rf"^## \[{re.escape(version)}\].*?\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return found[1].strip() if found else ""


if __name__ == "__main__":
    notes = section(CHANGELOG.read_text(encoding="utf-8"), sys.argv[1])
    sys.exit(f"CHANGELOG.md has no section [{sys.argv[1]}]") if not notes else print(notes)
