"""The processes below a process, from Linux's /proc."""

import os
import time
from pathlib import Path


def _stat(pid):
    """Its parent, its state, and its CPU seconds; None if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return int(fields[1]), fields[0], ticks / os.sysconf("SC_CLK_TCK")


def descendants(pid):
    """Pid -> CPU seconds of every process that it started, directly or not."""
    every = {int(path.name): _stat(path.name) for path in Path("/proc").glob("[0-9]*")}
    below, level = {}, {pid}
    while level:
        level = {each for each, stat in every.items() if stat and stat[0] in level}
        below.update({each: every[each][2] for each in level})
    return below


def alive(pids):
    """Those that have not ended; one that waits to be collected has."""
    return [pid for pid in pids if (stat := _stat(pid)) and stat[1] not in "ZX"]


def end_within(pids, seconds):
    """Wait for all of them; returns those that are still alive in the end."""
    deadline = time.monotonic() + seconds
    while (left := alive(pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def wait_until_busy(process, count, seconds=0.3):
    """Wait until so many descendants have computed; returns all of them."""
    deadline = time.monotonic() + 90
    while True:
        below = descendants(process.pid)
        if sum(cpu >= seconds for cpu in below.values()) >= count:
            return list(below)
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, below
        time.sleep(0.05)
