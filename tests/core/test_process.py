"""Freed memory is kept, waiting threads sleep, and what the user has set is left alone."""

import os
import platform
import subprocess
import sys

import pytest

from maar.core import process

VARIABLES = ("OMP_WAIT_POLICY", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")

FAULTS = """
import resource, sys
import numpy as np
from maar.core.process import prepare
if sys.argv[1] == "prepared":
    prepare()
np.ones(1 << 23)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    np.ones(1 << 23)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.fixture
def environment(monkeypatch):
    """None of the variables set, and all as before afterwards."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    # this process runs the other tests: its own limits stay
    monkeypatch.setattr(process.ctypes, "CDLL", lambda name: None)
    return monkeypatch


def test_sets_what_is_not_set(environment):
    process.prepare()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert os.environ["MALLOC_MMAP_THRESHOLD_"] == str(1 << 30)
    assert os.environ["MALLOC_TRIM_THRESHOLD_"] == str(1 << 30)


@pytest.mark.parametrize("name", VARIABLES)
def test_leaves_what_the_user_has_set(environment, name):
    environment.setenv(name, "1")
    process.prepare()
    assert os.environ[name] == "1"


def page_faults(how, **more):
    env = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, how],
        env={**env, **more},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the limits are glibc's")
def test_freed_memory_is_kept():
    plain = page_faults("plain")
    assert 10 * page_faults("prepared") < plain
    # a spawned process gets the limits from its environment
    assert 10 * page_faults("plain", **dict.fromkeys(VARIABLES[1:], str(1 << 30))) < plain
