"""A whole certification: what is written, how it continues, what it survives."""

import importlib
import io
import json
import math
import multiprocessing
import os
import shutil
import signal
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from maar.certification import fork_server, workers
from maar.certification.display import Display
from maar.certification.run import make_plan, run
from maar.certification.verdict import Verdict
from maar.certification.workers import default_workers
from maar.core.errors import RunError, UsageError
from maar.core.machine import machine
from maar.data import load

INDICES = list(range(0, 1000, 40))


def lines(path):
    return [json.loads(line) for line in (path / "verdicts.jsonl").read_text().splitlines()]


def verdicts(path):
    """What must not depend on when and by whom an image was settled."""
    timed = ("seconds", "times", "seal")
    return {r["index"]: {k: v for k, v in r.items() if k not in timed} for r in lines(path)}


@pytest.fixture(scope="module")
def plan(trained, mnist_mini):
    return make_plan(trained, mnist_mini, 0.04, indices=INDICES, name="small")


@pytest.fixture(scope="module")
def whole(plan, tmp_path_factory):
    path = tmp_path_factory.mktemp("certify") / "whole"
    return path, run(plan, path, workers=1)


def test_what_is_written(plan, whole, mnist_mini):
    path, tally = whole
    records = lines(path)
    assert sorted(r["index"] for r in records) == INDICES
    for r in records:
        assert r["label"] == int(mnist_mini.labels("test", [r["index"]]))
        assert r["seconds"] == pytest.approx(sum(r["times"].values()), abs=1e-3)
        assert ("lb" in r) == (r["verdict"] in ("verified", "unknown"))
        assert ("margin" in r) == (r["verdict"] in ("falsified", "misclassified"))
        assert ("open" in r) == (r["verdict"] == "unknown")
        assert (r["by"] is None) == (r["verdict"] == "unknown")
        assert r["verdict"] != "verified" or r["lb"] > 0
    assert json.loads((path / "manifest.json").read_text())["machine"] == machine()
    counted = {v: sum(r["verdict"] == v for r in records) for v in tally.counts}
    assert counted == tally.counts
    assert counted["verified"] >= 3
    assert counted["falsified"] >= 3
    summary = json.loads((path / "summary.json").read_text())
    assert summary == {**summary, **json.loads(json.dumps(tally.summary()))}
    assert summary["certified"] == counted["verified"] / len(INDICES)
    assert summary["eps"] == 0.04
    assert summary["key"] == plan.key == json.loads((path / "manifest.json").read_text())["key"]
    assert summary["certified_interval95"][0] < summary["certified"]


def test_counterexamples_replay_from_their_files(plan, whole, mnist_mini, trained):
    path, _ = whole
    broken = {r["index"]: r for r in lines(path) if r["verdict"] == "falsified"}
    files = {int(file.stem): file for file in (path / "counterexamples").iterdir()}
    assert files.keys() == broken.keys()
    for index, file in files.items():
        with np.load(file, allow_pickle=False) as content:
            x_adv, label, target = content["x_adv"], int(content["label"]), int(content["target"])
            assert (content["x"] == mnist_mini.images("test", [index])[0].numpy()).all()
        assert x_adv.dtype == np.float32
        x = mnist_mini.images("test", [index])[0].double().numpy()
        assert np.abs(x_adv.astype(np.float64) - x).max() <= 0.04
        assert x_adv.min() >= 0
        assert x_adv.max() <= 1
        with torch.no_grad():
            z = trained(torch.from_numpy(x_adv)[None])[0]
        assert z.argmax() == target != label == broken[index]["label"]


def test_a_second_call_computes_nothing(plan, whole, tmp_path):
    path, tally = whole
    before = (path / "verdicts.jsonl").read_bytes()
    again = run(plan, path)
    assert (path / "verdicts.jsonl").read_bytes() == before
    assert again.summary() == tally.summary()


def test_more_images_of_the_same_key_join(plan, whole, trained, mnist_mini, tmp_path):
    few = make_plan(trained, mnist_mini, 0.04, indices=INDICES[:5])
    assert few.key == plan.key
    tally = run(few, tmp_path / "store")
    assert (tally.images, tally.done, len(lines(tmp_path / "store"))) == (5, 5, 5)
    run(plan, tmp_path / "store")
    assert verdicts(tmp_path / "store") == verdicts(whole[0])
    assert len(lines(tmp_path / "store")) == len(INDICES)
    assert run(few, tmp_path / "store").images == 5


def test_another_network_eps_or_cascade_has_another_key(plan, trained, mnist_mini, two_pixels):
    others = [
        make_plan(trained, mnist_mini, 0.05, limit=1),
        make_plan(trained, mnist_mini, 0.04, limit=1, verifiers=["crown"]),
        make_plan(nn.Sequential(*trained, nn.ReLU()), mnist_mini, 0.04, limit=1),
    ]
    assert len({plan.key, *(other.key for other in others)}) == 4


def test_workers_give_the_same_verdicts_and_a_killed_one_costs_its_image(
    plan, whole, tmp_path, monkeypatch
):
    crew, killed, send = set(), [], workers._Worker.send

    def noted(self, piece):
        crew.add(self)
        send(self, piece)

    monkeypatch.setattr(workers._Worker, "send", noted)

    class Killer(Display):
        """Kills a worker once, while it is at an image or gets the next one."""

        def add(self, record, tally):
            busy = [worker for worker in crew if worker.piece and worker.piece.begun]
            if busy and tally.done >= 3 and not killed:
                killed.append(busy[0].process.pid)
                os.kill(killed[0], signal.SIGKILL)

    path = tmp_path / "store"
    tally = run(plan, path, workers=2, display=Killer())
    assert (tally.done, tally.counts["error"]) == (len(INDICES), 1)
    (failed,) = [r for r in lines(path) if r["verdict"] == "error"]
    assert "killed, perhaps for want of memory" in failed["error"]
    assert not multiprocessing.active_children()
    # the next call takes the failed image again
    tally = run(plan, path, workers=1)
    assert tally.counts["error"] == 0
    assert verdicts(path) == verdicts(whole[0])


@pytest.mark.parametrize("stillborn", [2, 99])
def test_workers_that_die_before_they_are_ready_cost_nothing_unless_all_do(
    plan, whole, tmp_path, monkeypatch, stillborn
):
    started = []

    def start(*args):
        process, pipe = fork_server.start(*args)
        started.append(process.pid)
        if len(started) <= stillborn:
            os.kill(process.pid, signal.SIGKILL)
        return process, pipe

    monkeypatch.setattr(workers, "start", start)
    if stillborn > 2:
        with pytest.raises(RunError, match=r"cannot start; try --workers 1"):
            run(plan, tmp_path / "store", workers=2)
        assert len(started) <= 6
    else:
        run(plan, tmp_path / "store", workers=2)
        assert verdicts(tmp_path / "store") == verdicts(whole[0])
    assert not multiprocessing.active_children()


def test_an_interrupt_leaves_what_is_done(plan, whole, tmp_path):
    class Interrupt(Display):
        def add(self, record, tally):
            if tally.done == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path / "store", display=Interrupt(), workers=2)
    assert not multiprocessing.active_children()
    summary = json.loads((tmp_path / "store" / "summary.json").read_text())
    assert (summary["complete"], summary["pending"]) == (False, len(INDICES) - 4)
    assert summary["certified_interval95"] is None
    assert summary["certified"] <= whole[1].certified
    assert summary["certified_upper"] >= whole[1].certified_upper
    run(plan, tmp_path / "store", workers=1)
    assert verdicts(tmp_path / "store") == verdicts(whole[0])


def test_eps_0_is_the_image_alone(trained, mnist_mini, tmp_path):
    tally = run(make_plan(trained, mnist_mini, 0, limit=40), tmp_path, workers=1)
    assert tally.counts["falsified"] == tally.counts["unknown"] == tally.counts["error"] == 0
    with torch.no_grad():
        right = trained(mnist_mini.images("test", slice(0, 40))).argmax(1)
    hits = (right == mnist_mini.labels("test", slice(0, 40))).float().mean().item()
    assert tally.certified == tally.accuracy == pytest.approx(hits)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limit": 0}, "limit = 0"),
        ({"limit": -3}, "limit = -3"),
        ({"indices": []}, "indices is empty"),
        ({"indices": [0, 1000]}, r"index 1000 is not a test image of mnist_mini .*0 to 999"),
        ({"indices": [-1]}, "index -1"),
        ({"indices": [0], "limit": 1}, "exclude each other"),
        ({"verifiers": ["crwn"]}, "did you mean 'crown'"),
        ({"eps": -1}, "not a radius"),
        ({"eps": 8}, "larger than the whole pixel range"),
    ],
)
def test_requests_that_cannot_be(trained, mnist_mini, options, said):
    with pytest.raises(UsageError, match=said) as error:
        make_plan(trained, mnist_mini, **{"eps": 0.1, **options})
    assert "\n" not in str(error.value)


def test_a_limit_beyond_the_end_takes_all(two_pixels, tiny_data):
    data = tiny_data([[[[0.75, 0.25]]]] * 3, [0, 0, 1])
    assert make_plan(two_pixels, data, 0.1, limit=99).indices == [0, 1, 2]
    assert make_plan(two_pixels, data, 0.1, indices=[2, 0, 2]).indices == [2, 0]


def test_data_that_do_not_fit(two_pixels, tiny_data):
    wide = tiny_data([[[[0.1, 0.2, 0.3]]]], [0])
    with pytest.raises(UsageError, match=r"does not take images of tiny: layer 1 .* 2 features"):
        make_plan(two_pixels, wide, 0.1)
    labelled = tiny_data([[[[0.75, 0.25]]]] * 3, [0, 1, 2], classes=3)
    with pytest.raises(UsageError, match=r"image 2 of tiny has label 2 .*0 to 1"):
        make_plan(two_pixels, labelled, 0.1)
    # only the images that are asked for matter
    assert make_plan(two_pixels, labelled, 0.1, limit=2).indices == [0, 1]
    empty = tiny_data(np.empty((0, 1, 1, 2)), [])
    with pytest.raises(UsageError, match="tiny has no test images"):
        make_plan(two_pixels, empty, 0.1)


def test_nan_weights_give_no_verdict(two_pixels, tiny_data, tmp_path):
    with torch.no_grad():
        two_pixels[1].weight[0, 1] = float("nan")
    with pytest.raises(RunError, match=r"cannot be certified: 1 of 4 numbers of 1.weight are NaN"):
        make_plan(two_pixels, tiny_data([[[[0.75, 0.25]]]], [0]), 0.1)


def test_few_images_are_not_worth_many_processes():
    assert default_workers(0) == default_workers(39) == 1
    assert 1 <= default_workers(10_000) <= (os.cpu_count() or 1)


def test_validation_images_are_another_subject(trained, mnist_mini):
    data = load("mnist_mini", valid=50)
    plan = make_plan(trained, data, 0.04, limit=3, split="valid")
    assert plan.facts["images"] == 50
    assert plan.key != make_plan(trained, data, 0.04, limit=3).key
    other = make_plan(trained, load("mnist_mini", valid=60), 0.04, limit=3, split="valid")
    assert plan.key != other.key
    with pytest.raises(UsageError, match="has no valid images"):
        make_plan(trained, mnist_mini, 0.04, split="valid")


@dataclass(frozen=True)
class Patient:
    """Proves an image in as many seconds as a tenth of its index, if it has them."""

    name: ClassVar[str] = "patient"

    def __call__(self, query):
        if query.seed == 3:
            raise ValueError("never")
        enough = query.left(60.0) > query.seed / 10
        return Verdict.bounded(dict.fromkeys(query.targets, 1.0 if enough else -1.0))


@pytest.fixture
def patient(two_pixels, tiny_data):
    """Plans with a time-out; images 1 to 5 but 3 are open below a tenth of it."""
    data = tiny_data([[[[0.75, 0.25]]]] * 6, [0] * 6)

    def plan(timeout):
        plan = make_plan(two_pixels, data, 0.1, timeout=timeout)
        cascade = replace(plan.task.cascade, verifiers=(Patient(),))
        subject = {**plan.subject, "verifiers": ["Patient()"]}
        return replace(plan, task=replace(plan.task, cascade=cascade), subject=subject)

    return plan


def test_a_longer_time_takes_just_the_open_images_again(patient, tmp_path):
    def ask(timeout):
        before = len(lines(tmp_path)) if (tmp_path / "verdicts.jsonl").exists() else 0
        tally = run(patient(timeout), tmp_path, workers=1)
        return tally.counts["verified"], [r["index"] for r in lines(tmp_path)[before:]]

    assert ask(0.15) == (2, [0, 1, 2, 3, 4, 5])
    had = {r["index"]: r.get("limit", "none") for r in lines(tmp_path)}
    assert had == {0: "none", 1: "none", 2: 0.15, 3: 0.15, 4: 0.15, 5: 0.15}
    assert ask(0.15) == (2, [3])  # one that failed is tried again anyway
    assert ask(0.1) == (2, [3])
    assert ask(0.45) == (4, [2, 3, 4, 5])
    assert ask(0.4) == (4, [3])
    assert ask(math.inf) == (5, [3, 5])
    assert patient(1.0).key == patient(2.0).key


@pytest.mark.parametrize("timeout", [0, -1, math.nan])
def test_times_that_cannot_be(two_pixels, tiny_data, timeout):
    with pytest.raises(UsageError, match=r"timeout = .* \(accepted: a number of seconds > 0"):
        make_plan(two_pixels, tiny_data([[[[0.75, 0.25]]]], [0]), 0.1, timeout=timeout)


def test_a_counterexample_that_is_gone_is_found_again(plan, whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "store")
    gone = next((tmp_path / "store" / "counterexamples").iterdir())
    content = gone.read_bytes()
    gone.unlink()
    run(plan, tmp_path / "store", workers=1)
    assert lines(tmp_path / "store")[-1]["index"] == int(gone.stem)
    assert len(lines(tmp_path / "store")) == len(INDICES) + 1
    assert np.array_equal(np.load(gone)["x_adv"], np.load(io.BytesIO(content))["x_adv"])
    assert verdicts(tmp_path / "store") == verdicts(whole[0])


DIES = """
import os, signal
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class Dies:
    name: ClassVar[str] = "patient"

    def together(self, block):
        if len(block.queries) > 1 or block.queries[0].seed == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return [self(query) for query in block.queries]

    def __call__(self, query):
        from maar.certification.verdict import Verdict
        return Verdict.bounded(dict.fromkeys(query.targets, 1.0))
"""


def test_a_block_whose_worker_dies_is_begun_again_image_by_image(patient, tmp_path, monkeypatch):
    (tmp_path / "dies.py").write_text(DIES)
    monkeypatch.syspath_prepend(tmp_path)
    plan = patient(1.0)
    verifier = importlib.import_module("dies").Dies()
    task = replace(plan.task, cascade=replace(plan.task.cascade, verifiers=(verifier,)))
    tally = run(replace(plan, task=task), tmp_path / "store", workers=2)
    assert (tally.counts["verified"], tally.counts["error"]) == (5, 1)
    (failed,) = [r for r in lines(tmp_path / "store") if r["verdict"] == "error"]
    assert failed["index"] == 2
    assert "killed, perhaps for want of memory" in failed["error"]


HANGS = """
from dataclasses import dataclass
from typing import ClassVar
import maar.certification.alarm, maar.certification.cascade

maar.certification.alarm.HANG = maar.certification.cascade.GRACE = 0.5

@dataclass(frozen=True)
class Hangs:
    name: ClassVar[str] = "patient"

    def __call__(self, query):
        if query.seed == 2:
            sum(range(10**12))  # as a library's code does: deaf to signals, and it has the lock
        from maar.certification.verdict import Verdict
        return Verdict.bounded(dict.fromkeys(query.targets, 1.0))
"""


def test_a_library_that_does_not_come_back_costs_its_image_only(patient, tmp_path, monkeypatch):
    (tmp_path / "hangs.py").write_text(HANGS)
    monkeypatch.syspath_prepend(tmp_path)
    for name, at in (("alarm", "HANG"), ("cascade", "GRACE")):
        module = importlib.import_module(f"maar.certification.{name}")
        monkeypatch.setattr(module, at, getattr(module, at))
    verifier = importlib.import_module("hangs").Hangs()
    plan = patient(1.0)
    task = replace(plan.task, cascade=replace(plan.task.cascade, verifiers=(verifier,)))
    tally = run(replace(plan, task=task), tmp_path / "store", workers=2)
    assert (tally.counts["verified"], tally.counts["error"]) == (5, 1)
    (failed,) = [r for r in lines(tmp_path / "store") if r["verdict"] == "error"]
    assert failed["index"] == 2
    assert "the worker process died" in failed["error"]
