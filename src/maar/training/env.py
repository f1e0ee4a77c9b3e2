"""Environment of a run: versions, commit, machine, and the choice of device and threads."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy
import torch

import maar
from maar.core.errors import UsageError
from maar.core.machine import cpu_model


def resolve_device(name: str) -> torch.device:
    """The device to use; one that this machine lacks is a `UsageError`."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        there = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        raise UsageError(f"device {name!r} is not there (there is: {', '.join(['cpu', *there])})")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UsageError("device 'mps' is not there (there is: cpu)")
    return device


def resolve_threads(threads: int) -> int:
    """The number of CPU threads; 0 means one per physical core that this process may use."""
    if threads:
        return threads
    # torch's own default is the number of physical cores (or OMP_NUM_THREADS); a container or
    # taskset may allow fewer.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(torch.get_num_threads(), allowed or 1))


def environment(seed: int, threads: int, device: torch.device, devices: int) -> dict[str, Any]:
    """The facts for env.json."""
    return {
        "maar": maar.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "commit": _commit(),
        "seed": seed,
        "threads": threads,
        "device": str(device),
        "devices": devices,
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "cpu": cpu_model(),
        "platform": platform.platform(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def _commit() -> str | None:
    """The commit of the checkout that maar is run from, `+` for changes; None if installed."""
    source = Path(maar.__file__).parent
    git = ["git", "-C", str(source)]
    try:
        found = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
        # A checkout of something else that merely contains an installed maar is not maar's commit.
        tracked = subprocess.run(
            [*git, "ls-files", "--error-unmatch", "__init__.py"], capture_output=True, timeout=5
        )
        if tracked.returncode:
            return None
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() + ("+" if changed.stdout.strip() else "")
