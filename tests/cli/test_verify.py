"""`maar verify` and `maar export`: what the user sees, and the way there and back."""

import csv
import gzip
import json
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from maar.cli.main import COMMANDS, main
from maar.exchange.instances import read_instances
from maar.exchange.onnx_in import read_onnx
from maar.exchange.onnx_out import write_onnx
from maar.networks import Normalize, weights_hash

onnx = pytest.importorskip("onnx")

# The network below is y = x: the answers are known by hand.
HEAD = "".join(f"(declare-const {v} Real)\n" for v in ("X_0", "X_1", "Y_0", "Y_1"))
BOX = "".join(f"(assert (>= X_{i} 0)) (assert (<= X_{i} 1))\n" for i in range(2))
SAT = f"{HEAD}{BOX}(assert (<= Y_0 0.25))\n(assert (>= Y_1 0.5))\n"
UNSAT = f"{HEAD}{BOX}(assert (or (and (<= Y_0 -0.25)) (and (>= Y_1 1.5))))\n"
TIE = f"{HEAD}{BOX}(assert (< Y_0 0))\n"


@pytest.fixture
def net():
    linear = nn.Linear(2, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(2))
        linear.bias.zero_()
    return nn.Sequential(nn.Flatten(), linear).eval()


@pytest.fixture
def folder(tmp_path, net):
    write_onnx(net, tmp_path / "net.onnx", (1, 1, 2))
    for name, text in (("sat", SAT), ("unsat", UNSAT), ("tie", TIE)):
        (tmp_path / f"{name}.vnnlib").write_text(text)
    return tmp_path


def test_listed():
    assert {"verify", "export"} <= COMMANDS.keys()


def test_sat_with_the_counterexample(folder, capsys):
    out = folder / "answer.txt"
    code = main(["verify", f"{folder}/net.onnx", f"{folder}/sat.vnnlib", "--out", str(out)])
    said = capsys.readouterr().out
    assert code == 0
    first, *pairs = said.splitlines()
    assert first == "sat"
    assert said.startswith("sat\n((X_0 ")
    assert said.endswith("))\n")
    values = dict(pair.strip("()").split() for pair in pairs)
    assert list(values) == ["X_0", "X_1", "Y_0", "Y_1"]
    x = [Fraction(values["X_0"]), Fraction(values["X_1"])]
    assert 0 <= x[0] < 0.25
    assert 0.5 < x[1] <= 1
    assert float(values["Y_1"]) == pytest.approx(float(x[1]))
    assert out.read_text() == said


@pytest.mark.parametrize("out", ["", "net.onnx/x/answer.txt"])
def test_an_answer_that_cannot_be_written(folder, capsys, out):
    args = [f"{folder}/net.onnx", f"{folder}/unsat.vnnlib", "--out", f"{folder}/{out}"]
    assert main(["verify", *args]) == 1
    said = capsys.readouterr()
    assert said.out == "unsat\n"
    assert said.err.count("\n") == 1


def test_unsat(folder, capsys):
    assert main(["verify", f"{folder}/net.onnx", f"{folder}/unsat.vnnlib"]) == 0
    assert capsys.readouterr().out == "unsat\n"


def test_neither(folder, capsys):
    args = [f"{folder}/net.onnx", f"{folder}/tie.vnnlib", "--timeout", "0.5"]
    assert main(["verify", *args]) == 0
    assert capsys.readouterr().out in ("timeout\n", "unknown\n")


def test_the_reason_of_an_open_question_is_no_part_of_the_answer(folder, capsys, monkeypatch):
    from maar.certification.properties import decide

    decision = decide.Decision("unknown", None, 0.1, reason="too near zero")
    monkeypatch.setattr(decide, "decide", lambda *args, **kwargs: decision)
    assert main(["verify", f"{folder}/net.onnx", f"{folder}/tie.vnnlib"]) == 0
    assert capsys.readouterr() == ("unknown\n", "maar: unknown: too near zero\n")


def test_packed_files(folder, capsys):
    for name in ("net.onnx", "unsat.vnnlib"):
        path = folder / name
        path.with_name(f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert main(["verify", f"{folder}/net.onnx.gz", f"{folder}/unsat.vnnlib"]) == 0
    assert capsys.readouterr().out == "unsat\n"


def test_mean_and_std(folder, capsys):
    # y = (x - 0.5) / 0.25 is between -2 and 2
    text = f"{HEAD}{BOX}(assert (<= Y_0 BOUND))"
    for bound, answer in (("-2.01", "unsat"), ("-1.9", "sat")):
        (folder / "p.vnnlib").write_text(text.replace("BOUND", bound))
        args = [f"{folder}/net.onnx", f"{folder}/p.vnnlib", "--mean", "0.5", "--std", "0.25"]
        assert main(["verify", *args]) == 0
        assert capsys.readouterr().out.splitlines()[0] == answer


def test_a_step_that_does_not_end(folder, capsys, monkeypatch):
    from maar.certification.properties import STEPS, attack, branching, splitting
    from maar.certification.properties import bounds as cheap

    def sleep(board):
        time.sleep(60)
        yield 0.0

    homes = {attack: ("QUICK", "STRONG"), cheap: ("BOUNDS",)}
    homes |= {branching: ("BRANCHING",), splitting: ("SPLITTING",)}
    for module, names in homes.items():
        for name in names:
            monkeypatch.setattr(module, name, sleep)
    assert all(STEPS[name] is sleep for name in STEPS)
    begin = time.monotonic()
    args = [f"{folder}/net.onnx", f"{folder}/sat.vnnlib", "--timeout", "0.2"]
    assert main(["verify", *args]) == 0
    assert capsys.readouterr().out == "timeout\n"
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("batch", [1, 3])
def test_a_file_for_so_many_images(folder, net, capsys, batch):
    write_onnx(net, folder / "fixed.onnx", (1, 1, 2), batch=batch)
    assert main(["verify", f"{folder}/fixed.onnx", f"{folder}/sat.vnnlib"]) == 0
    assert capsys.readouterr().out.startswith("sat\n")


def test_onnxruntime_has_a_say(folder, capsys, monkeypatch):
    from maar.exchange import runtime

    monkeypatch.setattr(runtime, "onnx_runner", lambda *a, **k: lambda x: np.ones((1, 2)))
    args = [f"{folder}/net.onnx", f"{folder}/sat.vnnlib", "--timeout", "0.5"]
    assert main(["verify", *args]) == 0
    assert not capsys.readouterr().out.startswith("sat")


def test_instances(folder, capsys):
    path, out = folder / "instances.csv", folder / "results" / "table.csv"
    path.write_text("net.onnx,sat.vnnlib,20\n./net.onnx,./unsat.vnnlib,20\n")
    assert main(["verify", "--instances", str(path), "--out", str(out)]) == 0
    rows = list(csv.reader(out.open()))
    assert [row[1:5] for row in rows] == [
        ["net.onnx", "sat.vnnlib", "0", "sat"],
        ["./net.onnx", "./unsat.vnnlib", "0", "unsat"],
    ]
    details = json.loads(out.with_suffix(".json").read_text())
    assert [each["timeout"] for each in details["instances"]] == [20, 20]
    assert len(details["cactus"]) == 2
    said = capsys.readouterr().out
    assert "1/2 net.onnx sat.vnnlib sat" in said
    assert said.splitlines()[-1].split()[:5] == ["all", "2", "2", "0", "0"]
    (found,) = (out.parent / "counterexamples").iterdir()
    assert found.read_text().startswith("sat\n((X_0 ")


def test_an_instance_that_fails_does_not_stop_the_others(folder, capsys):
    path, out = folder / "instances.csv", folder / "table.csv"
    path.write_text("net.onnx,none.vnnlib,9\nnone.onnx,sat.vnnlib,9\nnet.onnx,unsat.vnnlib,9\n")
    assert main(["verify", "--instances", str(path), "--out", str(out)]) == 1
    assert [row[4] for row in csv.reader(out.open())] == ["error", "error", "unsat"]
    assert "2 of 3 instances failed" in capsys.readouterr().err


def test_instances_that_go_on(folder, capsys, monkeypatch):
    from maar.api import checking

    path, out = folder / "instances.csv", folder / "table.csv"
    path.write_text("net.onnx,sat.vnnlib,20\nnet.onnx,none.vnnlib,20\nnet.onnx,unsat.vnnlib,20\n")
    args = ["verify", "--instances", str(path), "--out", str(out)]
    assert main(args) == 1
    (folder / "none.vnnlib").write_text(UNSAT)
    asked, verify = [], checking.verify

    def spy(network, prop, **options):
        asked.append(prop.name)
        return verify(network, prop, **options)

    monkeypatch.setattr(checking, "verify", spy)
    assert main([*args, "--resume"]) == 0
    assert asked == ["none.vnnlib"]
    assert [row[4] for row in csv.reader(out.open())] == ["sat", "unsat", "unsat"]
    assert main([*args, "--resume", "--timeout", "9"]) == 0
    assert len(asked) == 4  # another time limit is another question


def test_answers_are_compared_with_what_is_expected(folder, capsys):
    path = folder / "instances.csv"
    head = "network,property,timeout,expected\n"
    path.write_text(f"{head}net.onnx,sat.vnnlib,20,sat\nnet.onnx,unsat.vnnlib,20,sat\n")
    assert main(["verify", "--instances", str(path)]) == 1
    said = capsys.readouterr()
    assert "unsat.vnnlib unsat" in said.out
    assert "CONTRADICTS sat" in said.out
    assert said.out.splitlines()[-1].split()[:5] == ["all", "2", "1", "1", "0"]
    assert "1 answers contradict" in said.err


def test_verbose(folder, capsys):
    assert main(["verify", f"{folder}/net.onnx", f"{folder}/tie.vnnlib", "--verbose"]) == 0
    assert " s  " in capsys.readouterr().err


@pytest.mark.slow
def test_instances_on_workers(folder, capsys):
    path = folder / "instances.csv"
    path.write_text("net.onnx,sat.vnnlib,60\nnet.onnx,unsat.vnnlib,60\n")
    assert main(["verify", "--instances", str(path), "--workers", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:5] == ["all", "2", "2", "0", "0"]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--instances", "D/x.csv", "--workers", "0"], 2, "--workers 0"),
        (["--instances", "D/x.csv", "--resume"], 2, "name it"),
        (["D/net.onnx", "D/sat.vnnlib", "--resume"], 2, "are for --instances"),
        (["D/net.onnx"], 2, "NET.onnx and PROP.vnnlib"),
        ([], 2, "NET.onnx and PROP.vnnlib"),
        (["D/net.onnx", "D/none.vnnlib"], 2, "none.vnnlib' does not exist"),
        (["D/none.onnx", "D/sat.vnnlib"], 2, "none.onnx' does not exist"),
        (["D/net.onnx", "D/sat.vnnlib", "--timeout", "0"], 2, "--timeout 0"),
        (["D/net.onnx", "D/sat.vnnlib", "--timeout", "nan"], 2, "--timeout nan"),
        (["D/net.onnx", "--instances", "D/instances.csv"], 2, "give it alone"),
        (["--instances", "D/none.csv"], 2, "none.csv' does not exist"),
        (["D/net.onnx", "D/bad.vnnlib"], 2, "bad.vnnlib:1:17: ')' must come here"),
        (["D/net.onnx", "D/three.vnnlib"], 2, "3 inputs and 1 outputs, the network has 2"),
        (["D/net.onnx", "D/sat.vnnlib", "--mean", "1", "2", "--std", "1", "2"], 2, "mean"),
        (["D/random.onnx", "D/sat.vnnlib"], 1, "not an ONNX file"),
        (["D/nan.onnx", "D/sat.vnnlib"], 1, "NaN"),
        (["D/sign.onnx", "D/sat.vnnlib"], 2, "operator Sign: not supported"),
    ],
)
def test_a_mistake_is_one_line(folder, net, capsys, args, code, words):
    (folder / "bad.vnnlib").write_text("(assert (<= 0 1 2))\n")
    (folder / "three.vnnlib").write_text(
        "".join(f"(declare-const {v} Real)\n" for v in ("X_0", "X_1", "X_2", "Y_0"))
        + "".join(f"(assert (>= X_{i} 0)) (assert (<= X_{i} 1))\n" for i in range(3))
    )
    (folder / "random.onnx").write_bytes(np.random.default_rng(0).bytes(3000))
    model = onnx.load(folder / "net.onnx")
    model.graph.node[0].op_type = "Sign"
    del model.graph.node[0].attribute[:]
    onnx.save(model, folder / "sign.onnx")
    with torch.no_grad():
        net[1].weight[0, 0] = torch.nan
    write_onnx(net, folder / "nan.onnx", (1, 1, 2))
    assert main(["verify", *(arg.replace("D/", f"{folder}/") for arg in args)]) == code
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert words in told


# export


@pytest.fixture
def images(tmp_path):
    """Four images of two pixels; the network above is right about all but the last."""
    x = np.float32([[0.9, 0.1], [0.2, 0.8], [0.55, 0.45], [0.3, 0.7]]).reshape(4, 1, 2)
    y = np.array([0, 1, 0, 0])
    path = tmp_path / "tiny.npz"
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    return f"npz:{path}"


@pytest.fixture
def normalised(tmp_path):
    """y = 4 x - 2, with the normalisation inside, for images of two pixels."""
    linear = nn.Linear(2, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(2))
        linear.bias.zero_()
    net = nn.Sequential(Normalize([0.5], [0.25]), nn.Flatten(), linear).eval()
    path = tmp_path / "mine.onnx"
    write_onnx(net, path, (1, 1, 2))
    return path


def test_export_a_network(normalised, tmp_path, capsys):
    out = tmp_path / "again.onnx"
    assert main(["export", str(normalised), "--onnx", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    assert out.read_bytes() == normalised.read_bytes()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_there_and_back(normalised, images, tmp_path, capsys, version):
    if version == "2.0":
        pytest.importorskip("vnnlib")
    folder = tmp_path / "out"
    what = ["--data", images, "--eps", "0.1", "--indices", "0,1,2,3", "--version", version]
    assert main(["export", str(normalised), "--vnnlib", str(folder), *what]) == 0
    assert weights_hash(read_onnx(folder / "net.onnx")) == weights_hash(read_onnx(normalised))
    instances = read_instances(folder / "instances.csv")
    assert len(instances) == 4
    assert {instance.network for instance in instances} == {"net.onnx"}
    table = tmp_path / "table.csv"
    args = ["--instances", f"{folder}/instances.csv", "--out", str(table), "--timeout", "20"]
    assert main(["verify", *args]) == 0
    # margins 0.8, 0.6 and 0.1 against 2 eps; the last is wrong without any attack
    assert [row[4] for row in csv.reader(table.open())] == ["unsat", "unsat", "sat", "sat"]
    capsys.readouterr()


def test_export_what_certify_left_open(normalised, images, tmp_path, capsys):
    store, folder = tmp_path / "store", tmp_path / "out"
    certify = ["--data", images, "--eps", "0.1", "--out", str(store), "--workers", "1"]
    verifiers = ["--verifiers", "misclassified,interval"]  # which leave image 2 open
    assert main(["certify", str(normalised), *certify, *verifiers]) == 0
    args = ["export", str(normalised), "--vnnlib", str(folder), "--open", str(store)]
    assert main(args) == 0
    (instance,) = read_instances(folder / "instances.csv")
    assert "_2_eps_0.1" in instance.property
    capsys.readouterr()
    assert main(["verify", f"{folder}/net.onnx", f"{folder}/{instance.property}"]) == 0
    assert capsys.readouterr().out.startswith("sat\n")

    for line in ("--data", images), ("--eps", "0.2"):
        assert main([*args, *line]) == 2
        assert "leave --data and --eps out" in capsys.readouterr().err
    other = tmp_path / "other.onnx"
    write_onnx(nn.Sequential(nn.Flatten(), nn.Linear(2, 2)), other, (1, 1, 2))
    assert main(["export", str(other), *args[2:]]) == 2
    assert "about another network" in capsys.readouterr().err
    manifest = json.loads((store / "manifest.json").read_text())
    (store / "manifest.json").write_text(json.dumps({**manifest, "subject": 1}))
    assert main(args) == 1
    assert "damaged" in capsys.readouterr().err


def test_nothing_is_open(normalised, images, tmp_path, capsys):
    store = tmp_path / "store"
    certify = ["--data", images, "--eps", "0.01", "--out", str(store), "--workers", "1"]
    assert main(["certify", str(normalised), *certify]) == 0
    args = ["--vnnlib", str(tmp_path / "out"), "--open", str(store)]
    assert main(["export", str(normalised), *args]) == 0
    assert "no image is open" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "give --onnx FILE or --vnnlib DIR"),
        (["--onnx", "x.onnx", "--indices", "1"], "are for --vnnlib"),
        (["--vnnlib", "out"], "--indices I,J,... or --open DIR"),
        (["--vnnlib", "out", "--indices", "1", "--open", "s"], "one of them"),
        (["--vnnlib", "out", "--indices", "1"], "--data is needed"),
        (["--vnnlib", "out", "--indices", "1", "--data", "IMAGES"], "--eps is needed"),
        (["--vnnlib", "out", "--indices", "x", "--data", "IMAGES", "--eps", "0.1"], "'x'"),
        (["--vnnlib", "out", "--indices", "9", "--data", "IMAGES", "--eps", "0.1"], "0 to 3"),
        (["--vnnlib", "out", "--indices", "1", "--data", "mnist_mini", "--eps", "0.1"], "1x28x28"),
        (["--vnnlib", "out", "--indices", "1", "--data", "IMAGES", "--eps", "9"], "9/255"),
        (["--vnnlib", "out", "--open", "nowhere"], "no manifest.json"),
        (["--onnx", "x.onnx", "--batch", "0"], "batch = 0"),
        (["--vnnlib", "out", "--indices", "1", "--timeout", "-1"], "--timeout -1"),
    ],
)
def test_export_refuses(normalised, images, tmp_path, capsys, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    given = [images if arg == "IMAGES" else arg for arg in args]
    assert main(["export", str(normalised), *given]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert words in told
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "x.onnx").exists()


def test_export_of_a_run(images, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "def small(shape, classes, mean, std):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(2, classes))\n"
    )
    (tmp_path / "my.toml").write_text(
        f'data = "{images}"\nnetwork = "net.py:small"\nthreads = 1\neps = 0.1\n'
        '[method]\nname = "standard"\n[train]\nepochs = 1\nbatch = 2\n'
    )
    assert main(["train", "my.toml"]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    out = ["--onnx", "run.onnx", "--vnnlib", "out", "--indices", "1"]
    assert main(["export", str(run), *out]) == 0  # data and eps are the run's
    assert main(["export", "run.onnx", "--onnx", "again.onnx"]) == 0
    content = (tmp_path / "out" / "net.onnx").read_bytes()
    assert (tmp_path / "run.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes() == content
    assert main(["export", str(run), "--onnx", "x.onnx", "--mean", "0", "--std", "1"]) == 2
    capsys.readouterr()


def test_export_of_nothing(capsys):
    assert main(["export", "nowhere", "--onnx", "x.onnx"]) == 2
    assert "neither the folder of a run" in capsys.readouterr().err
