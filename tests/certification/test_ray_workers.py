"""Certification on Ray: the same verdicts, whatever happens to the workers."""

import json
import os
import signal
import socket
import sys
import uuid
from types import SimpleNamespace

import pytest

import maar
from maar.certification import ray_workers
from maar.certification.display import Display
from maar.certification.ray_workers import ATTEMPTS, cluster
from maar.certification.run import make_plan, run
from maar.core.errors import RunError, UsageError

INDICES = list(range(0, 1000, 70))
needs_ray = pytest.mark.skipif(
    ray_workers.find_spec("ray") is None, reason="ray is absent: it has no wheel for every Python"
)


@pytest.fixture(scope="module")
def team():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_workers, "cores", lambda: 2)
        patch.setattr(ray_workers, "STORE", 80 << 20)
        patch.setenv("RAY_AUTH_TOKEN", uuid.uuid4().hex)  # else Ray writes one into the home folder
        with cluster("local") as team:
            yield team


@pytest.fixture
def plan(trained, mnist_mini):
    return make_plan(trained, mnist_mini, 0.04, indices=INDICES)


def lines(path):
    return [json.loads(line) for line in (path / "verdicts.jsonl").read_text().splitlines()]


def verdicts(path):
    timed = ("seconds", "times", "seal")
    records = lines(path)
    assert len(records) == len(INDICES)
    return {r["index"]: {k: v for k, v in r.items() if k not in timed} for r in records}


@pytest.fixture
def workers_of(monkeypatch):
    """Kill with SIGKILL the worker that gets an image, so many times: `workers_of({image: n})`."""

    def plant(times):
        hand = ray_workers._Crew.hand

        def deadly(crew, member, piece):
            index = piece.jobs[0].index if len(piece.jobs) == 1 else None
            if times.get(index):
                times[index] -= 1
                # Before it can begin: a quick image would else be done by the time.
                os.kill(member.hello.pid, signal.SIGKILL)
            hand(crew, member, piece)

        monkeypatch.setattr(ray_workers._Crew, "hand", deadly)

    return plant


@needs_ray
def test_a_lost_worker_costs_a_second_attempt_two_cost_the_image(
    team, plan, workers_of, tmp_path, capfd
):
    unlucky, cursed = INDICES[4], INDICES[11]
    workers_of({unlucky: 1, cursed: ATTEMPTS})
    tally = run(plan, tmp_path / "ray", team=team)
    assert (tally.done, tally.counts["error"]) == (len(INDICES), 1)
    assert tally.last_error.startswith(f"image {cursed}: 2 workers were lost on it")
    assert "perhaps out of memory" in tally.last_error
    run(plan, tmp_path / "here", workers=1)
    here, there = verdicts(tmp_path / "here"), verdicts(tmp_path / "ray")
    del here[cursed], there[cursed]
    assert there == here
    # Ray has a lot to say about a worker that dies, but not into the display
    assert capfd.readouterr() == ("", "")


@needs_ray
def test_an_interrupt_leaves_the_store_and_the_cluster(team, plan, tmp_path):
    class Interrupt(Display):
        def add(self, record, tally):
            if tally.done == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path, team=team, workers=1, display=Interrupt())
    assert len(lines(tmp_path)) == 4
    with cluster("auto") as again:  # what is connected already is used, and left as it was
        assert run(plan, tmp_path, team=again, workers=1).counts["error"] == 0
    assert verdicts(tmp_path).keys() == set(INDICES)
    assert team.size(1000) == 2


@needs_ray
def test_another_version_on_a_node_is_an_error(team, plan, tmp_path, monkeypatch):
    monkeypatch.setattr(maar, "__version__", "0.0.other")
    with pytest.raises(RunError, match=rf"node {socket.gethostname()} has maar .*0\.0\.other"):
        run(plan, tmp_path, team=team, workers=1)


@needs_ray
def test_no_room_on_the_cluster(team, plan, tmp_path, monkeypatch):
    import ray

    monkeypatch.setattr(ray_workers, "START", 2.0)
    taken = ray.util.placement_group([{"CPU": 2}])
    assert taken.wait(60)
    try:
        with pytest.raises(RunError, match=r"no worker has come .* 2 CPUs 0 are free"):
            run(plan, tmp_path, team=team, workers=1)
    finally:
        ray.util.remove_placement_group(taken)


@needs_ray
def test_a_worker_that_cannot_take_the_task_is_an_error(team, plan, tmp_path, monkeypatch):
    nonsense = SimpleNamespace(dumps=lambda task: b"nonsense")
    monkeypatch.setattr(ray_workers, "pickle", nonsense)
    with pytest.raises(RunError, match=r"a worker on .* cannot start: .*UnpicklingError"):
        run(plan, tmp_path, team=team, workers=1)


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'maar\[ray\]'"), cluster("auto"):
        pass


@pytest.mark.parametrize("address", ["somewhere", "http://here:6379", "host:port", ""])
def test_addresses_that_are_none(address):
    with pytest.raises(UsageError, match="accepted: auto, HOST:PORT or ray://HOST:PORT"):
        ray_workers._answers(address)


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RunError, match=f"127.0.0.1:{port}: no cluster answers there .*refused"):
        ray_workers._answers(f"127.0.0.1:{port}")


def test_who_listens_does_not_answer(monkeypatch):
    monkeypatch.setattr(ray_workers, "CONNECT", 0.5)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(RunError, match="no cluster answers within"),
    ):
        ray_workers._answers(f"127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize(
    ("probe", "found"), [("", True), (f"raise SystemExit({ray_workers.NOBODY})", False)]
)
def test_auto_takes_the_cluster_that_is_there(monkeypatch, probe, found):
    monkeypatch.setattr(ray_workers, "PROBE", probe)
    assert ray_workers._answers("auto") is found


def test_auto_is_not_held_up_by_a_cluster_that_was_killed(monkeypatch):
    probe = f"import sys, time; print({ray_workers.DEAD!r}, file=sys.stderr, flush=True)"
    monkeypatch.setattr(ray_workers, "PROBE", f"{probe}; time.sleep(60)")
    monkeypatch.setattr(ray_workers, "CONNECT", 3.0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert ray_workers._answers("auto") is False
    monkeypatch.setenv("RAY_ADDRESS", "node:6379")
    with pytest.raises(RunError, match="no cluster answers within 3 s"):
        ray_workers._answers("auto")


@pytest.mark.parametrize(
    ("probe", "told"),
    [
        ("print('Version mismatch'); raise SystemExit(4)", "--ray auto: Version mismatch"),
        ("raise SystemExit('Unauthenticated: RPC error')", "set RAY_AUTH_MODE=token"),
    ],
)
def test_what_the_cluster_has_against_us_is_told(monkeypatch, probe, told):
    monkeypatch.setattr(ray_workers, "PROBE", probe)
    with pytest.raises(RunError, match=told):
        ray_workers._answers("auto")
