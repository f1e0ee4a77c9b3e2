"""Signals, and a killed parent: no process is left behind, and the way on is told."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from tests.descendants import alive, end_within, wait_until_busy

from maar.cli.interrupt import exit_code, farewell, word
from maar.cli.main import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# Branch and bound on every image, each of which takes longer than the test.
SLOW = ("zoo:maar-mnist-0.1", "--data", "mnist_mini", "--limit", "60", "--workers", "2")
CERTIFY = ("certify", *SLOW, "--eps", "0.25", "--verifiers", "bab", "--out", "store")
RADIUS = ("radius", *SLOW, "--verifiers", "quick_pgd,bab", "--timeout", "60", "--out", "store")
MINUTES = 60.0
AT_ONCE = 3.0
"""Seconds for processes to end; two, and one for a busy machine."""


@contextlib.contextmanager
def started(*words, busy, group=True):
    """The command, when so many processes below it have computed; and all processes below it.

    Workers are two, the process that they are forks of is the third.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "maar", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=group,
    )
    below = []
    try:
        below = wait_until_busy(process, busy)
        yield process, below
    finally:
        for pid in alive([process.pid, *below]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def stop(process, below, number, seconds=AT_ONCE):
    """Send the signal; returns exit code and stderr. Nothing may be left."""
    process.send_signal(number)
    left = end_within([process.pid, *below], seconds)
    assert not left, f"{left} of {process.pid}, {below}"
    _, err = process.communicate(timeout=MINUTES)
    return process.returncode, err


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "maar: interrupted; the same command continues store\n"),
        (signal.SIGTERM, 143, "maar: terminated; the same command continues store\n"),
        (
            signal.SIGHUP,
            129,
            "maar: stopped, as the terminal was closed; the same command continues store\n",
        ),
        (signal.SIGKILL, -signal.SIGKILL, ""),
    ],
)
def test_certify(here, number, code, said):
    with started(*CERTIFY, busy=3) as (process, below):
        assert stop(process, below, number) == (code, said)
    assert (here / "store" / "summary.json").exists() == (number != signal.SIGKILL)


def test_a_signal_to_the_whole_group_costs_no_image(here):
    """A scheduler signals every process of a job."""
    with started(*CERTIFY, busy=3) as (process, below):
        os.killpg(process.pid, signal.SIGTERM)
        assert not end_within([process.pid, *below], AT_ONCE)
        _, err = process.communicate(timeout=MINUTES)
        assert process.returncode == 143
        assert err == "maar: terminated; the same command continues store\n"
    path = here / "store" / "verdicts.jsonl"
    assert not path.exists() or '"error"' not in path.read_text()


def test_a_signal_that_comes_twice_is_one(here):
    """As `timeout` sends it: to the command, then to its group."""
    with started(*CERTIFY, busy=3) as (process, below):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.02)
        code, err = stop(process, below, signal.SIGTERM)
    assert (code, err) == (143, "maar: terminated; the same command continues store\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_radius(here, number):
    with started(*RADIUS, busy=3) as (process, below):
        code, err = stop(process, below, number)
    if number == signal.SIGTERM:
        assert (code, err) == (143, "maar: terminated; the same command continues store\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_audit(here, number, capsys):
    pytest.importorskip("onnxruntime")
    words = ["zoo:maar-mnist-0.1", "--data", "mnist_mini", "--limit", "60", "--workers", "1"]
    assert main(["certify", *words, "--verifiers", "crown", "--out", "store"]) == 0
    words = ("audit", "store", "--attack-restarts", "5000", "--workers", "2")
    with started(*words, busy=3) as (process, below):
        code, err = stop(process, below, number)
    if number == signal.SIGTERM:
        said = "maar: terminated; no audit result; the same command begins again\n"
        assert (code, err) == (143, said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_reproduce(here, number):
    words = ("reproduce", "fig2", "--profile", "smoke", "--jobs", "2")
    with started(*words, busy=2) as (process, below):
        code, err = stop(process, below, number, 15.0)  # its commands leave in order
    if number == signal.SIGTERM:
        assert code == 143
        assert err.endswith(
            "maar: terminated; continue with: maar reproduce fig2 --profile smoke --jobs 2\n"
        )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_train_in_two_processes(here, number):
    pytest.importorskip("lightning_fabric")
    words = ("train", "demo", "--stage-epochs", "1000", "--name", "long", "--devices", "2")
    with started(*words, busy=1) as (process, below):
        while not (here / "runs" / "long" / "metrics.jsonl").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        # the first process leaves its connections in order, the other ends with it
        code, err = stop(process, below, number, AT_ONCE if number == signal.SIGKILL else 15.0)
    if number == signal.SIGTERM:
        said = "maar: terminated; continue with: maar train runs/long --resume\n"
        assert (code, err) == (143, said)


def test_certify_on_a_cluster(here):
    pytest.importorskip("ray", reason="ray has no wheel for every Python")
    with started(*CERTIFY, "--ray", "local", busy=0) as (process, _):
        assert process.stdout is not None
        assert "60 of 1,000 test images" in process.stdout.readline()
        below = wait_until_busy(process, 2, seconds=3.0)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=MINUTES)
        assert process.returncode == 143
        assert err == "maar: terminated; the same command continues store\n"
        assert not end_within(below, AT_ONCE)


# A library that keeps the interpreter to itself: no Python code runs while it does.
DEAF = """
import ctypes, time
from maar.certification.fork_server import start
def work(pipe):
    pipe.send(None)
    ctypes.PyDLL(None).sleep(100)
if __name__ == "__main__":
    work.__module__ = "deaf"
    process, pipe = start(work)
    pipe.recv()
    print("at work", flush=True)
    time.sleep(100)
"""


def test_a_worker_within_a_library_dies_with_a_killed_program(tmp_path):
    (tmp_path / "deaf.py").write_text(DEAF)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "deaf.py")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "at work\n"
        below = wait_until_busy(process, 0)
        assert len(below) >= 2
        process.kill()
        assert not end_within(below, AT_ONCE)
    finally:
        process.kill()
        process.communicate()


# The main thread in a call that lets other threads run, and in an import.
MAIN = """
import hashlib
from maar.cli import interrupt
interrupt.GRACE = 0.5
interrupt.catch_signals()
print("ready", flush=True)
{}
"""


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")],
)
@pytest.mark.parametrize(
    ("body", "way_on"),
    [
        ("hashlib.pbkdf2_hmac('sha256', b'a', b'b', 10**9)", "; what was finished is kept"),
        ("import lazy", ""),
    ],
    ids=["in a library", "in an import"],
)
def test_a_main_thread_that_does_not_come_back(tmp_path, body, way_on, number, code, said):
    (tmp_path / "lazy.py").write_text("import time\ntime.sleep(100)\n")
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN.format(body)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        process.send_signal(number)
        _, err = process.communicate(timeout=MINUTES)
    finally:
        process.kill()
    assert (process.returncode, err) == (code, f"maar: {said}{way_on}\n")


def test_the_words_and_codes(capsys):
    assert (word(), exit_code()) == ("interrupted", 130)
    assert farewell("go on") == 130
    assert capsys.readouterr().err == "maar: interrupted; go on\n"
