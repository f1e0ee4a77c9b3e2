"""Check certificates of robustness: a program of its own that trusts nothing of maar.

    python -m maar_check DIR [--workers N] [--sample N] [--exact] [--claim float32] [--data FILE]

numpy and the standard library only. README.md states what is trusted and argues each step.
"""

from __future__ import annotations

from maar_check.folder import Total, check_folder
from maar_check.refusal import Refused

__all__ = ["Refused", "Total", "check_folder"]
