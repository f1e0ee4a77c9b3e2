"""How a process uses the machine. For programs (the command line, benchmarks); importing maar as a
library changes nothing.
"""

from __future__ import annotations

import ctypes
import os
from types import FrameType

# glibc's names for the two limits: as an environment variable and as mallopt's number.
_MMAP_THRESHOLD = ("MALLOC_MMAP_THRESHOLD_", -3)
_TRIM_THRESHOLD = ("MALLOC_TRIM_THRESHOLD_", -1)
_GIGABYTE = 1 << 30
# About a tenth of a millisecond.
_SPINS = 20_000


def prepare() -> None:
    """Call before torch is loaded. What the user has set in the environment stays.

    Threads: OpenMP's spin while they wait for each other; on a machine that does anything else
    beside, that makes two threads several times slower than one. If they sleep at once, to wake
    them costs more than a small operation: a training step took twice as long (measured). So they
    spin for a moment.

    Memory: bounds allocate and free tensors of many megabytes, image after image. By default each
    goes back to the kernel and comes again page by page, which can cost as much as the arithmetic.
    Here freed memory is kept for the next tensor.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPINS))  # GNU's, which PyTorch brings along
    for variable, option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
        if variable in os.environ:
            continue
        os.environ[variable] = str(_GIGABYTE)  # for processes started from here
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # absent outside glibc
        if mallopt is not None:
            mallopt(option, _GIGABYTE)


def is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: cut short, it would stay behind half made."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
