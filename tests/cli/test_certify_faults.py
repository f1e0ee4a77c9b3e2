"""`maar certify` when the world is against it: one clear line, no wrong verdict, none lost."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from maar.cli.main import main

QUICK = ("--verifiers", "misclassified,crown,pgd", "--workers", "1", "--out", "store")


@pytest.fixture
def maar(capsys):
    def call(*args):
        code = main(["certify", "runs/my", *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def verdicts(path):
    records = map(json.loads, (path / "verdicts.jsonl").read_text().splitlines())
    return {r["index"]: (r["verdict"], r["by"], r.get("lb"), r.get("margin")) for r in records}


def start(*args, **options):
    command = [sys.executable, "-m", "maar", "certify", "runs/my", *args]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, **options)


def test_a_full_disk_and_then_room_again(here, maar):
    assert maar(*QUICK[:-1], "undisturbed")[0] == 0
    size = (here / "undisturbed/verdicts.jsonl").stat().st_size

    def little_room():
        # a write beyond this fails in the middle of a line, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))

    process = start(*QUICK, preexec_fn=little_room)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.startswith("maar: error: File too large")
    assert err.count("\n") == 1
    torn = (here / "store/verdicts.jsonl").read_bytes()
    assert not torn.endswith(b"\n")
    assert maar(*QUICK)[0] == 0
    assert verdicts(here / "store") == verdicts(here / "undisturbed")
    assert (here / "store/summary.json").exists()


def test_killed_again_and_again(here, maar):
    """Each time a little further; in the end everything is as if nothing had happened."""
    assert maar(*QUICK[:-1], "undisturbed")[0] == 0
    path = here / "store" / "verdicts.jsonl"
    chance = random.Random(0)
    for _ in range(3):
        process = start(*QUICK, start_new_session=True)
        before = path.read_bytes().count(b"\n") if path.exists() else 0
        while process.poll() is None:
            if path.exists() and path.read_bytes().count(b"\n") > before:
                break
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.02))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert maar(*QUICK)[0] == 0
    assert verdicts(here / "store") == verdicts(here / "undisturbed")
    for file in (here / "undisturbed/counterexamples").iterdir():
        with np.load(file) as one, np.load(here / "store/counterexamples" / file.name) as two:
            assert (one["x_adv"] == two["x_adv"]).all()


@pytest.mark.parametrize(
    ("damage", "code", "said"),
    [
        (lambda store: (store / "manifest.json").write_bytes(b"\xff\xfe\0"), 1, "is damaged"),
        (lambda store: (store / "manifest.json").write_text("{}"), 1, "manifest.json is damaged"),
        (lambda store: (store / "manifest.json").unlink(), 2, "store holds something else"),
        (
            lambda store: (store / "verdicts.jsonl").write_bytes(os.urandom(99) + b"\n"),
            1,
            "verdicts.jsonl is damaged: line 1 is no verdict",
        ),
        (
            lambda store: (store / "verdicts.jsonl").write_text('{"index": 0, "label": 1}\n'),
            1,
            "verdicts.jsonl is damaged: line 1 is no verdict",
        ),
        (lambda store: _folder(store / "verdicts.jsonl"), 1, "Is a directory"),
        (lambda store: _folder(store / "manifest.json"), 1, "Is a directory"),
        (lambda store: _folder(store / ".lock"), 1, "Is a directory"),
    ],
)
def test_a_damaged_store_is_told_and_left_as_it_is(here, maar, damage, code, said):
    assert maar(*QUICK, "--limit", "3")[0] == 0
    damage(here / "store")
    before = {path: path.read_bytes() for path in (here / "store").rglob("*") if path.is_file()}
    found, out, err = maar(*QUICK, "--limit", "4")
    assert (found, out) == (code, "")
    assert said in err
    assert err.count("\n") == 1
    after = {path: path.read_bytes() for path in (here / "store").rglob("*") if path.is_file()}
    assert after == before


def _folder(path):
    path.unlink(missing_ok=True)
    path.mkdir()


def test_a_counterexample_that_was_deleted_is_found_again(here, maar):
    assert maar(*QUICK)[0] == 0
    shutil.rmtree(here / "store/counterexamples")
    code, out, _ = maar(*QUICK)
    broken = sum(verdict == "falsified" for verdict, *_ in verdicts(here / "store").values())
    assert code == 0
    assert f"{broken} taken again" in out
    assert len(list((here / "store/counterexamples").iterdir())) == broken > 0


@pytest.mark.parametrize(
    "content", [b"", b"\x08\x07" + bytes(range(256)), b"PK\x03\x04" + b"\0" * 100]
)
def test_files_that_are_no_networks(here, capsys, content):
    (here / "net.onnx").write_bytes(content)
    code = main(["certify", "net.onnx", "--data", "npz:my.npz", "--eps", "0.1"])
    out, err = capsys.readouterr()
    assert code in (1, 2)
    assert out == ""
    assert err.startswith("maar: error: ")
    assert "net.onnx" in err
    assert err.count("\n") == 1


def test_images_that_are_none(here, maar):
    x = np.zeros((2, 3, 3), np.float32)
    x[1, 0, 0] = np.nan
    np.savez("nan.npz", x_test=x, y_test=[0, 1])
    code, out, err = maar("--data", "npz:nan.npz")
    assert code in (1, 2)
    assert out == ""
    assert err.count("\n") == 1
    np.savez("wide.npz", x_test=np.zeros((2, 4, 4), np.uint8), y_test=[0, 1])
    code, _, err = maar("--data", "npz:wide.npz")
    assert code == 2
    assert "does not take images of npz:wide.npz" in err
