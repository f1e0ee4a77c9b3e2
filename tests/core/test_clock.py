"""Deadlines: the nearest one counts, and it ends with its block."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from maar.core import clock
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Corners
from maar.domains.crown import Crown
from maar.domains.graph import trace


def test_the_nearest_deadline_counts():
    clock.check()
    assert clock.left() == float("inf")
    with clock.until(clock.now() + 100):
        clock.check()
        with clock.until(clock.now() - 1), pytest.raises(clock.Late):
            clock.check()
        with clock.until(clock.now() + 1000):
            assert clock.left() <= 100
        clock.check()
    assert clock.left() == float("inf")


def test_bounds_look_at_the_clock():
    layers = [nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)]
    graph = trace(nn.Sequential(*layers).double().requires_grad_(False), (3,))
    box = Corners(-torch.ones(1, 3).double(), torch.ones(1, 3).double())
    for bound in (Crown(rounding=True), AlphaCrown(rounding=True)):
        bound(graph, box)
        with clock.until(clock.now() - 1), pytest.raises(clock.Late):
            bound(graph, box)


def test_cpu_time():
    code = (
        "import time; from maar.core import clock; clock.count_cpu(); a = clock.now();"
        "time.sleep(0.5); assert clock.is_cpu_time() and clock.now() - a < 0.4"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
