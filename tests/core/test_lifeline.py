"""A process ends with the one that started it: by the kernel, or by a thread where that cannot."""

import os
import signal
import subprocess
import sys

import pytest
from tests.descendants import end_within

from maar.core import lifeline

CHILD = """
import os, signal, sys, time
from maar.core import lifeline
{}
print("following", os.getpid(), flush=True)
time.sleep(100)
"""
PARENT = """
import os, subprocess, sys, time
os.environ["MAAR_STARTER"] = str(os.getpid())
subprocess.Popen([sys.executable, "-c", sys.argv[1]])
time.sleep(100)
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.parametrize(
    "follow",
    [
        "lifeline.follow_parent()",
        "lifeline._kernel_sends = lambda number: False; lifeline.follow_parent()",
        "lifeline.follow_starter(); assert 'MAAR_STARTER' not in os.environ",
    ],
    ids=["kernel", "thread", "starter"],
)
def test_a_killed_parent(follow):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD.format(follow)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    word, pid = parent.stdout.readline().split()
    try:
        assert word == "following"
        assert end_within([int(pid)], 0.3) == [int(pid)]  # not before
        parent.kill()
        parent.wait()
        assert not end_within([int(pid)], 3.0)
    finally:
        parent.kill()
        parent.wait()
        for left in end_within([int(pid)], 0.0):
            os.kill(left, signal.SIGKILL)
        parent.stdout.close()


def test_a_parent_that_is_gone_already():
    """The signal comes at once, not never."""
    code = "from maar.core import lifeline; lifeline.follow_parent(15, parent=1 << 30); input()"
    done = subprocess.run([sys.executable, "-c", code], stdin=subprocess.PIPE, timeout=60)
    assert done.returncode == -signal.SIGTERM


def test_nobody_to_follow(monkeypatch):
    monkeypatch.delenv(lifeline.STARTER, raising=False)
    monkeypatch.setattr(lifeline, "follow_parent", lambda *words: pytest.fail("followed"))
    lifeline.follow_starter()
