"""Imported by the fork server, and by nothing else: what its forks need, and how it ends.

Leaving at once matters: the workers of a killed program end with the server, and an interpreter
with torch takes two seconds to shut down.
"""

from __future__ import annotations

import atexit
import os

import maar.certification.workers  # noqa: F401

atexit.register(os._exit, 0)
