import importlib
import math
import signal
import sys
import threading
import time

import pytest

from maar.certification.alarm import TimeUp, alarm


def test_it_rings_once_and_leaves_no_trace():
    before = signal.getsignal(signal.SIGALRM)
    start = time.monotonic()
    with pytest.raises(TimeUp), alarm(0.05):
        time.sleep(5)
    assert 0.05 <= time.monotonic() - start < 1
    with alarm(0.05):
        pass
    time.sleep(0.1)
    assert signal.getsignal(signal.SIGALRM) == before


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_no_time_at_all(seconds):
    with pytest.raises(TimeUp), alarm(seconds):
        time.sleep(5)


@pytest.mark.parametrize("seconds", [math.inf, 1e300])
def test_all_the_time_of_the_world(seconds):
    with alarm(seconds):
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_import_is_not_cut_short(tmp_path, monkeypatch):
    (tmp_path / "slow_to_load.py").write_text("import time\ntime.sleep(0.3)\nwhole = True\n")
    monkeypatch.syspath_prepend(tmp_path)

    def load():
        importlib.import_module("slow_to_load")
        time.sleep(5)

    with pytest.raises(TimeUp), alarm(0.05):
        load()
    assert sys.modules["slow_to_load"].whole


def test_other_threads_are_left_alone():
    done = []

    def wait():
        with alarm(0.02):
            time.sleep(0.1)
            done.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert done
