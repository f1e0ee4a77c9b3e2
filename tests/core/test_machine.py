"""What a result says about the machine it was computed on."""

import os

from maar.core.machine import cpu_model, machine


def test_the_machine_in_a_line():
    assert cpu_model()
    assert machine().startswith(f"{cpu_model()}, {os.cpu_count()} cores, ")
    assert "\n" not in machine()
