"""A page as PDF, printed by a headless Chromium where there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from maar.core.errors import RunError
from maar.core.files import atomic_path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 300.0
"""Seconds for a browser to start and to print."""


def write_pdf(page: Path, out: Path) -> None:
    """Print a page to `out`; a `RunError` says what to do where no browser can."""
    by_hand = f"open {page.resolve().as_uri()} and print it to a PDF"
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise RunError(f"--pdf needs Chromium or Chrome, and there is none: {by_hand}")
    with atomic_path(out) as part, tempfile.TemporaryDirectory() as profile:
        command = [
            browser,
            "--headless",
            "--disable-gpu",
            "--no-pdf-header-footer",
            "--virtual-time-budget=20000",  # for the figures, which are drawn one after another
            f"--user-data-dir={profile}",
            f"--print-to-pdf={part.resolve()}",
            # (its sandbox does not work for root, who is the user of most containers)
            *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
            page.resolve().as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise RunError(f"{browser} did not print within {PATIENCE:.0f} s: {by_hand}") from None
        if done.returncode or not part.stat().st_size:
            raise RunError(f"{browser} could not print (exit code {done.returncode}): {by_hand}")
