"""`maar audit` as a user sees it, with onnxruntime."""

import json
import shutil
import sys

import numpy as np
import pytest

from maar.cli.main import main
from maar.core.seals import sealed
from maar.exchange.onnx_out import write_onnx
from maar.networks import make


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An ONNX network, images of two classes, and a certification of it in `store`."""
    folder = tmp_path_factory.mktemp("audited")
    rng = np.random.RandomState(0)
    y = np.arange(30) % 2
    # of class 1 if brighter: the network below knows
    x = np.clip(rng.normal(0.3 + 0.4 * y[:, None, None], 0.3, (30, 3, 3)), 0, 1)
    x = (255 * x).astype(np.uint8)
    np.savez(folder / "my.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    (folder / "net.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "def net(shape, classes, mean, std):\n"
        "    first, last = nn.Linear(9, 2), nn.Linear(2, classes)\n"
        "    with torch.no_grad():\n"
        "        first.weight.copy_(torch.tensor([[1.0] * 9, [-1.0] * 9]))\n"
        "        first.bias.copy_(torch.tensor([-4.5, 4.5]))\n"
        "        last.weight.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))\n"
        "        last.bias.zero_()\n"
        "    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), last)\n"
    )
    write_onnx(make(f"{folder / 'net.py'}:net", (1, 3, 3), 2), folder / "net.onnx", (1, 3, 3))
    store = folder / "store"
    arguments = ["net.onnx", "--data", "npz:my.npz", "--eps", "0.1", "--workers", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["certify", *arguments, "--out", "store"]) == 0
    counts = json.loads((store / "summary.json").read_text())
    assert min(counts[k] for k in ("misclassified", "falsified", "verified")) > 0
    return folder


@pytest.fixture
def here(folder, tmp_path, monkeypatch):
    """A copy of that folder, to work in; the store names the original's network."""
    shutil.copytree(folder, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def maar(capsys):
    def call(*args):
        code = main(["audit", *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_true_store(here, maar, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = maar("store")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "audit of store: 30 images of npz:my.npz, eps 0.1"
    assert lines[1] == (
        "facts ok, lines ok, summary ok, weights ok, data ok, labels ok, onnxruntime ok"
    )
    heads = ["verdict", "by", "images", "replayed", "CROWN", "disagree"]
    assert [head for head in lines[2].split() if head in heads] == heads
    verified = json.loads((here / "store/summary.json").read_text())["verified"]
    assert lines[-1] == f"no disagreement; 0 of {verified} verified verdicts rest on trust"
    assert max(map(len, lines)) <= 80


def test_a_lie(here, maar):
    path = here / "store" / "verdicts.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    line = next(line for line in lines if line["verdict"] == "falsified")
    line.update(verdict="verified", lb=0.1)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, out, err = maar("store")
    assert code == 1
    assert f"disagreement: image {line['index']}: verified by {line['by']}, but class " in out
    assert "does not fit its seal" in out
    assert "disagreement: summary.json: verified is " in out
    assert "no disagreement" not in out
    assert err.startswith("maar: error: store does not hold: ")
    assert err.count("\n") == 1


def test_a_network_that_has_changed(here, maar):
    text = (here / "net.py").read_text().replace("-4.5, 4.5", "-4.4, 4.5")
    (here / "other.py").write_text(text)
    write_onnx(make(f"{here / 'other.py'}:net", (1, 3, 3), 2), here / "other.onnx", (1, 3, 3))
    code, out, err = maar("store", "--network", "other.onnx")
    assert code == 1
    assert "weights NO" in out
    assert "weights: the folder is about " in err


def test_a_network_that_has_moved(here, maar):
    manifest = json.loads((here / "store" / "manifest.json").read_text())
    manifest["source"]["network"] = str(here / "gone.onnx")
    (here / "store" / "manifest.json").write_text(json.dumps(sealed(manifest)))
    code, _, err = maar("store")
    assert code == 2
    assert "gone.onnx is no longer there: give --network" in err
    code, out, _ = maar("store", "--network", "net.onnx", "--limit", "4")
    assert code == 0
    assert "4 images" in out


def test_a_store_that_does_not_say_where_its_network_is(here, maar):
    manifest = json.loads((here / "store" / "manifest.json").read_text())
    del manifest["source"]
    (here / "store" / "manifest.json").write_text(json.dumps(sealed(manifest)))
    assert "does not say where its network is: give --network" in maar("store")[2]
    assert maar("store", "--network", "net.onnx", "--indices", "3,5")[0] == 0


def test_without_onnxruntime(here, maar, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, out, err = maar("store")
    assert (code, out) == (1, "")
    assert "pip install 'maar[onnx]'" in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nowhere"], "nowhere is not a folder of `maar certify`: it has no manifest.json"),
        (["store", "--limit", "0"], "--limit 0 (accepted: 1 or more)"),
        (["store", "--workers", "0"], "--workers 0 (accepted: 1 or more)"),
        (["store", "--attack-restarts", "0"], "--attack-restarts 0 (accepted: 1 or more)"),
        (["store", "--complete", "-1"], "--complete -1.0 (accepted: a number of seconds > 0)"),
        (["store", "--indices", "a"], "--indices 'a' is not a list of numbers"),
        (["store", "--indices", "1", "--limit", "1"], "exclude each other"),
        (["store", "--mean", "0.1"], "go with --network"),
        (["store", "--network", "no.onnx"], "'no.onnx' does not exist"),
        (["store", "--network", "zoo:no"], "unknown network 'zoo:no'"),
        ([], "maar audit --help"),
    ],
)
def test_mistakes_are_one_line(here, maar, args, said):
    code, out, err = maar(*args)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_an_image_without_a_line(here, maar):
    code, out, _ = maar("store", "--indices", "2,30")
    assert code == 1
    assert "disagreement: image 30: verdicts.jsonl has no line of it" in out
