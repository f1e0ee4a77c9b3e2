"""Tasks are done by processes: in order, side by side, and whatever fails or is stopped."""

import io
import os
import signal
import sys
import threading
import time

import pytest
from rich.console import Console

from maar.experiments import display as display_module
from maar.experiments import launch, work
from maar.experiments.display import Board, Lines, board
from maar.experiments.launch import Local, Process, Ticket, run_there
from maar.experiments.measured import State
from maar.experiments.plan import Run, Task
from maar.experiments.tables import profiles
from maar.experiments.work import Progress, said

SMOKE = profiles()["smoke"]
# What stands for a command: it notes when it began, and does as its run's name says.
SCRIPT = """
import sys, time, pathlib
folder, label = pathlib.Path(sys.argv[1]), sys.argv[2]
folder.mkdir(parents=True, exist_ok=True)
with open(folder.parent / "order", "a") as file:
    file.write(f"{folder.name} {label}\\n")
if "bad" in folder.name:
    print("some words")
    print("maar: error: it is broken")
    sys.exit(1)
if "busy" in folder.name and not (folder / "tried").exists():
    (folder / "tried").touch()
    print(f"maar: error: {folder} is in use by another maar process")
    sys.exit(1)
if "slow" in folder.name:
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        (folder / "saved").touch()
        sys.exit(130)
if "mute" not in folder.name:
    (folder / f"{label}.done").touch()
"""


def tasks_of(folder, *names):
    found = []
    for name in names:
        run = Run(name, "smoke", (), 0, folder / name, None)
        found += [Task(run, "train", SMOKE), Task(run, "certify", SMOKE)]
    return found


@pytest.fixture(autouse=True)
def pretended(monkeypatch):
    def state_of(task):
        done = (task.run.folder / f"{task.label}.done").exists()
        return State(1, 1, "", {"seconds": 1.0}) if done else State()

    def argv(task):
        return [sys.executable, "-c", SCRIPT, str(task.run.folder), task.label]

    monkeypatch.setattr(work, "state_of", state_of)
    monkeypatch.setattr("maar.experiments.measured.in_folder", state_of)
    monkeypatch.setattr(work, "in_folder", state_of)
    monkeypatch.setattr("maar.experiments.display.state_of", state_of)
    monkeypatch.setattr(launch, "argv", argv)
    monkeypatch.setattr(work, "TICK", 0.01)


def order(folder):
    return (folder / "order").read_text().splitlines()


def test_a_run_is_trained_before_it_is_certified(tmp_path):
    tasks = tasks_of(tmp_path, "a", "b")
    assert work.work(tasks, Local(1), work.Display()) == {}
    assert order(tmp_path) == ["a train", "a certify", "b train", "b certify"]


def test_what_is_done_is_not_done_again(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "train.done").touch()
    work.work(tasks_of(tmp_path, "a"), Local(2), work.Display())
    assert order(tmp_path) == ["a certify"]


def test_a_failed_row_does_not_stop_the_others(tmp_path, capsys):
    tasks = tasks_of(tmp_path, "bad", "good")
    failed = work.work(tasks, Local(2), Lines())
    assert {(task.run.name, task.label): reason for task, reason in failed.items()} == {
        ("bad", "train"): "it is broken",
        ("bad", "certify"): "it was not trained",
    }
    assert (tmp_path / "good" / "certify.done").exists()
    said = capsys.readouterr().out
    assert f"bad: train FAILED: it is broken (log: {tmp_path / 'bad-train.log'})" in said
    assert "good: certify done in 0:0" in said


def test_a_process_that_leaves_no_result_has_failed(tmp_path):
    failed = work.work(tasks_of(tmp_path, "mute"), Local(1), work.Display())
    assert len(failed) == 2
    assert "exit code 0" in failed[tasks_of(tmp_path, "mute")[0]]


def test_a_run_that_another_process_is_at_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "ELSEWHERE", 0.05)
    assert work.work(tasks_of(tmp_path, "busy"), Local(1), work.Display()) == {}
    assert order(tmp_path) == ["busy train", "busy train", "busy certify"]


def test_an_interrupt_lets_the_processes_save_and_leaves_none(tmp_path):
    started: list[Process] = []

    class Watched(Local):
        def start(self, task):
            handle = super().start(task)
            started.append(handle)
            return handle

    def interrupt():
        order = tmp_path / "order"
        while not order.exists() or len(order.read_text().splitlines()) < 2:
            time.sleep(0.05)
        time.sleep(0.3)  # until they sleep
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        work.work(tasks_of(tmp_path, "slow-1", "slow-2"), Watched(2), work.Display())
    assert all(handle.poll() == 130 for handle in started)
    assert (tmp_path / "slow-1" / "saved").exists()
    assert (tmp_path / "slow-2" / "saved").exists()


@pytest.mark.parametrize("how", ["blocked", "ignored"])
def test_where_an_interrupt_does_not_come_through_it_still_reaches_the_processes(tmp_path, how):
    (task, _) = tasks_of(tmp_path, "slow")
    if how == "blocked":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if how == "ignored" else None
    try:
        handle = Local(1).start(task)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if before is not None:
            assert signal.signal(signal.SIGINT, before) is signal.SIG_IGN
    while not (tmp_path / "order").exists():
        time.sleep(0.05)
    time.sleep(0.3)
    handle.stop()
    handle.end()
    assert handle.poll() == 130


def test_a_process_that_will_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(launch, "PATIENCE", 0.5)
    monkeypatch.setattr(launch, "AT_LAST", 0.5)
    deaf = "import signal, time\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(60)"
    process = Process([sys.executable, "-c", deaf], None)
    time.sleep(1.0)
    process.stop()
    process.end()
    assert process.poll() == -signal.SIGKILL


def test_the_log_keeps_every_attempt(tmp_path):
    (task, _) = tasks_of(tmp_path, "bad")
    for _ in range(2):
        work.work([task], Local(1), work.Display())
    text = task.log.read_text()
    assert text.count(f"$ {task.command}\n") == 2
    assert said(task.log) == "it is broken"
    assert said(tmp_path / "none.log") == ""


def test_a_board_that_is_too_long_shows_what_is_at_work(tmp_path, capsys):
    tasks = tasks_of(tmp_path, *(f"run-{n}" for n in range(10)))
    at_work = tasks[-2]
    progress = Progress(tasks, [t for t in tasks if t is not at_work], {at_work: object()})
    progress.began[at_work] = time.monotonic()
    Console(width=160).print(board(progress, room=3))
    _, first, *others, below = capsys.readouterr().out.splitlines()
    assert first.startswith("run-9")
    assert len(others) == 2
    assert "7 runs not shown. Ctrl-C stops" in below


def test_what_stays_on_the_screen_is_the_end(tmp_path):
    tasks = tasks_of(tmp_path, "run")
    shown = io.StringIO()
    display = Board(Console(file=shown, force_terminal=True, width=160))
    display.close()  # before anything began
    progress = Progress(tasks, [tasks[1]], {tasks[0]: object()})
    progress.began[tasks[0]] = time.monotonic()
    display.begin(progress)
    assert "0 of 2 tasks done, 1 at work" in shown.getvalue()
    progress.running, progress.waiting = {}, []
    for _ in range(2):
        display.close()
    assert shown.getvalue().rpartition("2 of 2 tasks done, 0 at work")[1]


def test_runs_that_are_done_are_read_once(tmp_path, monkeypatch):
    tasks = tasks_of(tmp_path, "run")
    asked = []
    monkeypatch.setattr(display_module, "state_of", lambda task: asked.append(task) or State())
    known = {}
    for _ in range(3):
        board(Progress(tasks), room=3, known=known)  # (no numbers: trained again elsewhere)
    assert asked == list(tasks)
    board(Progress(tasks, [tasks[1]]), room=3, known=known)
    assert known == {}


def test_on_a_node_the_command_runs_in_the_folder_with_its_log(tmp_path):
    log = tmp_path / "runs" / "there.log"
    assert run_there(["--version"], str(log), str(tmp_path)) == 0
    lines = log.read_text().splitlines()
    assert lines[0] == "$ maar --version"
    assert lines[1].startswith("maar ")
    assert run_there(["no-such-command"], str(log), str(tmp_path)) == 2


def test_a_task_that_is_lost_with_its_node_has_failed(tmp_path):
    class Ray:
        class exceptions:
            class RayError(Exception):
                pass

        def wait(self, refs, timeout):
            return refs, []

        def get(self, ref, timeout=None):
            raise self.exceptions.RayError("some lines\nThe node died.")

    assert Ticket(Ray(), "ref", tmp_path / "log").poll() == 1
    assert (tmp_path / "log").read_text() == "maar: error: on the cluster: The node died.\n"
