"""`maar certify` as a user sees it: real runs, real processes, faults."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from maar.cli.main import main
from maar.core.seals import seal_line
from maar.records.runs import certified, read_run

IMAGES = 24


@pytest.fixture
def maar(capsys):
    def call(*args):
        code = main(["certify", *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def records(path):
    return [json.loads(line) for line in (path / "verdicts.jsonl").read_text().splitlines()]


def verdicts(path):
    return {
        r["index"]: (r["verdict"], r["by"], r.get("lb"), r.get("margin")) for r in records(path)
    }


def test_a_run_needs_no_flags(here, maar, capsys):
    code, out, err = maar("runs/my")
    assert (code, err) == (0, "")
    said = out.splitlines()
    assert said[0].startswith(f"my on npz:my.npz, eps 0.1 ({IMAGES} test images, ")
    (store,) = (here / "runs/my/certify").glob("eps-0.1-*")
    assert said[-1] == f"verdicts in {store.relative_to(here)}"
    summary = json.loads((store / "summary.json").read_text())
    assert len(records(store)) == summary["images"] == summary["of"] == IMAGES
    assert summary["verified"] >= 5
    assert summary["falsified"] >= 1
    assert summary["unknown"] == summary["error"] == summary["pending"] == 0
    counts = ", ".join(f"{summary[k]} {k}" for k in ("misclassified", "falsified", "verified"))
    assert f"{counts}, 0 unknown, 0 error" in out
    assert f"certified {100 * summary['certified']:.2f} %" in out
    assert "95 % interval" not in out
    # `maar runs` shows it
    assert main(["runs"]) == 0
    assert f" {100 * summary['certified']:.1f} " in capsys.readouterr().out
    # and again: nothing is left to do
    code, out, _ = maar("runs/my")
    assert code == 0
    assert f"{IMAGES} from before" in out
    assert len(records(store)) == IMAGES


def test_a_part_gets_an_interval_and_does_not_replace_the_whole(here, maar):
    def known():
        return certified(read_run(here / "runs/my"))

    assert maar("runs/my", "--limit", "10")[0] == 0
    assert known()["images"] == 10
    assert maar("runs/my")[0] == 0
    code, out, _ = maar("runs/my", "--indices", "3,7,3")
    assert code == 0
    assert f"2 of {IMAGES} test images" in out
    assert f"95 % interval for all {IMAGES} images, if these are typical: " in out
    assert known()["images"] == IMAGES
    # a cascade that settles less of the same images does not either
    assert maar("runs/my", "--verifiers", "misclassified")[0] == 0
    assert known()["verified"] > 0
    # another eps is another store, and not what the run was trained for
    assert maar("runs/my", "--eps", "2/255", "--limit", "3")[0] == 0
    assert known()["eps"] == 0.1
    assert len(list((here / "runs/my/certify").glob("eps-*"))) == 3


@pytest.mark.parametrize("flags", [["--eps", "0.05,0.1"], ["--eps", "0.05", "0.1"]])
def test_several_eps_are_compared(here, maar, flags):
    code, out, err = maar(*flags, "runs/my", "--limit", "9")
    assert (code, err) == (0, "")
    stores = sorted((here / "runs/my/certify").glob("eps-*"))
    assert [store.name[:8] for store in stores] == ["eps-0.05", "eps-0.1-"]
    (header, *rows) = [line.split() for line in out.splitlines()[-3:]]
    assert header == [
        *("eps", "misclassified", "falsified", "verified", "unknown", "error", "certified"),
        *("upper", "bound"),
    ]
    for row, store, eps in zip(rows, stores, ("0.05", "0.1"), strict=True):
        summary = json.loads((store / "summary.json").read_text())
        counts = [str(summary[k]) for k in ("misclassified", "falsified", "verified")]
        assert row[:4] == [eps, *counts]
        assert row[6] == f"{100 * summary['certified']:.2f}"
    # the run is told of its own eps only
    assert certified(read_run(here / "runs/my"))["eps"] == 0.1
    # and again, below a folder of one's own, in another order, one of them twice
    assert maar("runs/my", "--limit", "9", "--eps", "0.1 1e-1,5e-2", "--out", "mine")[0] == 0
    mine = sorted((here / "mine").iterdir())
    assert [path.name for path in mine] == [path.name for path in stores]
    assert [verdicts(path) for path in mine] == [verdicts(path) for path in stores]


def test_eps_that_contradict_each_other(here, maar):
    assert maar("runs/my", "--limit", "9", "--eps", "0.05,0.1", "--out", "mine")[0] == 0
    small, large = sorted((here / "mine").iterdir())
    proved = next(i for i, (verdict, *_) in verdicts(large).items() if verdict == "verified")
    lie = {"verdict": "misclassified", "by": "misclassified", "margin": -1.0, "target": 0}
    seal, lines = json.loads((small / "manifest.json").read_text())["key"], []
    for record in records(small):
        del record["seal"]
        if record["index"] == proved:
            seconds = record["times"]["misclassified"]
            record |= {**lie, "times": {"misclassified": seconds}, "seconds": seconds}
            record["target"] = int(record["label"] == 0)
        line, seal = seal_line(seal, record)
        lines.append(line)
    (small / "verdicts.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (small / "summary.json").unlink()
    code, _, err = maar("runs/my", "--limit", "9", "--eps", "0.05,0.1", "--out", "mine")
    assert code == 1
    assert err.startswith(f"maar: error: image {proved} is verified at eps 0.1 and misclassified")


def test_parts_are_merged(here, maar):
    assert maar("runs/my", "--limit", "9", "--out", "one")[0] == 0
    assert maar("runs/my", "--indices", "7,8,9,10", "--out", "two")[0] == 0
    code, out, err = maar("--merge", "both", "one", "two")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "verdicts in both"
    assert "95 % interval" in out
    assert sorted(verdicts(here / "both")) == list(range(11))
    # what was merged is continued like any other
    code, out, _ = maar("runs/my", "--out", "both")
    assert code == 0
    assert "11 from before" in out
    assert maar("runs/my", "--out", "whole")[0] == 0
    assert verdicts(here / "both") == verdicts(here / "whole")
    assert maar("runs/my", "--limit", "3", "--eps", "0.2", "--out", "other")[0] == 0
    code, _, err = maar("--merge", "both", "other")
    assert code == 2
    assert "other is about something else than both (eps: 0.1 there, 0.2 here)" in err


def test_open_images_are_taken_again_with_more_time(here, maar):
    few = ("--verifiers", "misclassified,interval", "--out", "store")
    assert maar("runs/my", *few, "--timeout", "5")[0] == 0
    left = sum(r["verdict"] == "unknown" for r in records(here / "store"))
    assert left > 0
    assert f"{IMAGES} from before" in maar("runs/my", *few, "--timeout", "5")[1]
    out = maar("runs/my", *few)[1]
    assert f"{IMAGES - left} from before, {left} taken again, at most 120 s each" in out
    assert len(records(here / "store")) == IMAGES + left
    assert "no time limit" in maar("runs/my", *few, "--timeout", "inf")[1]


def test_the_same_folder_for_another_question_is_refused(here, maar):
    assert maar("runs/my", "--limit", "2", "--out", "mine")[0] == 0
    code, out, err = maar("runs/my", "--limit", "2", "--out", "mine", "--eps", "0.2")
    assert (code, out) == (2, "")
    assert err == (
        "maar: error: mine is about something else (eps: 0.1 there, 0.2 here): "
        "give another folder with --out\n"
    )
    code, _, err = maar("runs/my", "--limit", "2", "--out", "mine", "--verifiers", "crown")
    assert code == 2
    assert "verifiers: " in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["runs/your"], "'runs/your' is neither the folder of a run, nor a FILE.onnx"),
        (["runs"], "runs is not a run: it has no config.toml"),
        (["no.onnx", "--data", "mnist", "--eps", "0.1"], "'no.onnx' does not exist"),
        (["no.onnx", "--data", "mnist"], "--eps is needed"),
        (["no.onnx", "--eps", "0.1"], "--data is needed"),
        (["runs/my", "--eps", "8/0"], "eps = '8/0' divides by zero"),
        (["runs/my", "--eps", "-1"], "eps"),
        (["runs/my", "--eps", "0.1,-1"], "eps = '-1' is not a radius"),
        (["runs/my", "--eps", "0.1 0.2x"], "eps = '0.2x' is not a number"),
        (["runs/my", "--eps", " , "], "--eps ' , ' names no radius"),
        (["runs/my", "--timeout", "0"], "timeout = 0.0 (accepted: a number of seconds > 0"),
        (["runs/my", "--timeout", "-2"], "timeout = -2.0"),
        (["runs/my", "--timeout", "nan"], "timeout = nan"),
        (["runs/my", "--timeout", "soon"], "--timeout"),
        (["runs/my", "--merge", "a", "b"], "--merge stands alone"),
        (["--merge", "a", "b", "--limit", "3"], "--limit has no effect with --merge"),
        (["--merge", "a"], "--merge takes OUT and one or more folders"),
        (["--merge", "a", "b"], "b is not a folder of results: it has no manifest.json"),
        (["--merge", "a", "runs/my"], "runs/my is not a folder of results"),
        (["runs/my", "--limit", "0"], "limit = 0 (accepted: 1 or more images)"),
        (["runs/my", "--limit", "x"], "--limit"),
        (["runs/my", "--indices", "23,24"], "index 24 is not a test image of npz:my.npz"),
        (["runs/my", "--indices", "1-3"], "--indices '1-3' is not a list of numbers"),
        (["runs/my", "--indices", "1", "--limit", "1"], "exclude each other"),
        (["runs/my", "--verifiers", "crown,pdg"], "unknown verifier 'pdg'; did you mean 'pgd'?"),
        (["runs/my", "--verifiers", "cauchy"], "unknown verifier 'cauchy'"),
        (["runs/my", "--workers", "0"], "--workers 0 (accepted: 1 or more)"),
        (["runs/my", "--mean", "0.1", "--std", "0.3"], "are for ONNX files"),
        (["runs/my", "--data", "mnist_mini"], "does not take images of mnist_mini"),
        (["runs/my", "--data", "npz:no.npz"], "npz:no.npz is not a file"),
        (["runs/my", "--out", "my.toml"], "my.toml is not a folder"),
        (["runs/my", "--out", "runs"], "runs holds something else"),
        (["runs/my", "--limt", "3"], "did you mean --limit?"),
        ([], "RUN|FILE.onnx"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(here, maar, args, said):
    code, out, err = maar(*args)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("maar: error: ")
    assert err.count("\n") == 1


def test_labels_out_of_range(here, maar):
    x = np.zeros((3, 3, 3), np.uint8)
    np.savez("wrong.npz", x_test=x, y_test=[0, 1, 7])
    code, _, err = maar("runs/my", "--data", "npz:wrong.npz")
    assert code == 2
    assert "test image 2 of npz:wrong.npz has label 7 (accepted: 0 to 1" in err


def test_nan_weights(here, maar):
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    path = here / "runs/my/model.safetensors"
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        facts = file.metadata()
    next(t for t in tensors.values() if t.dim() == 2)[0, 0] = float("nan")
    save_file(tensors, path, facts)
    code, out, err = maar("runs/my")
    assert (code, out) == (1, "")
    assert "is not the file that result.json names" in err
    (here / "runs/my/result.json").unlink()  # of a run that nobody says is finished
    code, out, err = maar("runs/my")
    assert (code, out) == (1, "")
    assert "the network cannot be certified: 1 of " in err
    assert err.count("\n") == 1
    assert not (here / "runs/my/certify").exists()


def start(*args):
    return subprocess.Popen(
        [sys.executable, "-m", "maar", "certify", "runs/my", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path, lines, process):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= lines:
            return
        time.sleep(0.005)
    raise AssertionError(f"{path} never had {lines} lines: {process.communicate()}")


# Slow enough to be hit in the middle.
SLOW = ("--verifiers", "misclassified,pgd,crown", "--out", "store")


def test_killed_at_any_time_it_ends_with_the_same_verdicts(here, maar):
    assert maar("runs/my", *SLOW[:-1], "undisturbed")[0] == 0
    assert maar("runs/my", *SLOW, "--limit", "1")[0] == 0
    assert (here / "store" / "summary.json").exists()
    path = here / "store" / "verdicts.jsonl"
    for lines, workers in ((2, 2), (9, 1)):
        process = start(*SLOW, "--workers", str(workers))
        wait_for(path, lines, process)
        process.kill()
        process.communicate()
        assert not (here / "store" / "summary.json").exists()
    with open(path, "ab") as file:
        file.write(b'{"index": 23, "lab')
    code, out, err = maar("runs/my", *SLOW)
    assert (code, err) == (0, "")
    assert " from before" in out
    assert verdicts(here / "store") == verdicts(here / "undisturbed")
    assert len(records(here / "store")) == IMAGES


def test_ctrl_c(here):
    process = start(*SLOW, "--workers", "2")
    wait_for(here / "store" / "verdicts.jsonl", 3, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "maar: interrupted; the same command continues store\n"
    summary = json.loads((here / "store" / "summary.json").read_text())
    assert summary["complete"] is False
    assert f"{summary['pending']} to do" in out


def test_two_at_once(here, maar):
    process = start(*SLOW)
    wait_for(here / "store" / "verdicts.jsonl", 1, process)
    code, _, err = maar("runs/my", *SLOW)
    assert (code, err) == (1, "maar: error: store is in use by another maar process\n")
    assert process.poll() is None
    process.kill()
    process.communicate()


def test_images_that_fail_are_told_and_taken_again(here, maar, monkeypatch):
    from maar.certification.verifiers.pgd import Pgd

    answer = Pgd.__call__

    def fail(self, query):
        if query.seed == 5:
            raise RuntimeError("no memory\nat all")
        return answer(self, query)

    monkeypatch.setattr(Pgd, "__call__", fail)
    only = ("--verifiers", "pgd", "--limit", "8", "--workers", "1", "--out", "store")
    code, out, err = maar("runs/my", *only)
    assert code == 1
    assert err == (
        "maar: error: 1 of 8 images failed, such as image 5: pgd: RuntimeError: no memory\n"
    )
    assert "1 error" in out
    monkeypatch.undo()
    os.chdir(here)
    code, _, err = maar("runs/my", *only)
    assert (code, err) == (0, "")
    assert len(records(here / "store")) == 9


def test_a_terminal_gets_a_moving_table(here, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert main(["certify", "runs/my", "--limit", "5", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "images/s" in out
    assert "\x1b[" in out
    assert "alpha_crown" in out


def test_help_needs_no_torch():
    code = (
        "import sys; from maar.cli.main import main\n"
        "try: main(['certify', '--help'])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "quick_pgd" in done.stdout


def test_a_stages_weights_are_exported(here):
    from maar.exchange.onnx_in import read_onnx
    from maar.training.checkpoint import load_weights, save_weights
    from maar.training.run import load_network

    file = here / "runs/my/checkpoints/stage-1-last.safetensors"
    net, _ = load_network("runs/my", "stage-1-last")
    net[-1].bias.data.fill_(7.0)  # unlike the end of the run
    save_weights(file, net, load_weights(file)[1])
    found = {}
    for weights in ("model", "stage-1-last"):
        assert main(["export", "runs/my", "--weights", weights, "--onnx", f"{weights}.onnx"]) == 0
        found[weights] = read_onnx(f"{weights}.onnx")[-1].bias.tolist()
    assert found["stage-1-last"] == [7.0, 7.0] != found["model"]
    assert main(["export", "runs/my", "--weights", "stage-9-last", "--onnx", "x.onnx"]) == 2
