"""Worker processes: how they start, and in which order they are given work."""

import importlib
import os
import subprocess
import sys

import numpy as np
import pytest

from maar.certification import CASCADE
from maar.certification.agenda import LAST, Job
from maar.certification.cascade import Cascade
from maar.certification.fork_server import start
from maar.certification.workers import Task, hardness

# What a worker finds itself in.
REPORT = """
import os, signal, torch
def report(pipe):
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    pipe.send((ignored, os.environ.get("OMP_NUM_THREADS"), torch.get_num_threads()))
"""


def test_a_process_has_one_thread_and_ignores_ctrl_c(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    (tmp_path / "reporting.py").write_text(REPORT)
    monkeypatch.syspath_prepend(tmp_path)
    process, pipe = start(importlib.import_module("reporting").report)
    assert pipe.recv() == (True, "1", 1)
    process.join()
    assert process.exitcode == 0
    assert os.environ["OMP_NUM_THREADS"] == "7"


@pytest.mark.skipif(sys.platform != "linux", reason="there is a fork server on Linux only")
def test_the_fork_server_has_torch_and_a_single_thread():
    code = """
import os, sys
from multiprocessing import forkserver
from maar.certification.fork_server import warm_up, start
if __name__ == "__main__":
    warm_up()
    assert "torch" not in sys.modules
    start(repr)  # returns when the server has imported what it has to
    server = forkserver._forkserver._forkserver_pid
    assert len(os.listdir(f"/proc/{server}/task")) == 1
    assert "libtorch_cpu" in open(f"/proc/{server}/maps").read()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_last_images_come_hardest_first(two_pixels):
    count = 3 * LAST
    gaps = np.random.default_rng(0).permutation(count) / count
    jobs = [Job(k, np.array([[[gap, 0.0]]], np.float32), 0) for k, gap in enumerate(gaps)]
    task = Task(two_pixels, (1, 1, 2), 0.1, Cascade.named(CASCADE))
    found = hardness(task, jobs, 2)
    assert list(found) == list(range(LAST, count))
    assert sorted(found, key=found.__getitem__) == sorted(found, key=lambda k: gaps[k])
    assert set(hardness(task, jobs, 9)) == set(range(count))
