"""Every hostile file ends in one line or in time, within a few GB of memory."""

import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("vnnlib")

import hostile

from maar.cli.main import main
from maar.core import limits
from maar.core.errors import UsageError
from maar.exchange.onnx_fields import require_few
from maar.exchange.vnnlib import read_vnnlib
from maar.exchange.vnnlib1 import parse

TIMEOUT = 5.0
SLACK = 2.0  # seconds; a busy machine, and what a library takes for one call
MEMORY = 6 << 30

CHILD = """
import contextlib, io, json, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
import torch, onnxruntime, vnnlib
torch.set_num_threads(1)
from maar.cli.main import main
main(["verify", *{warm}])
for line in sys.stdin:
    name, *files = json.loads(line)
    out, err = io.StringIO(), io.StringIO()
    begin = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(["verify", *files, "--timeout", "{timeout}"])
        except BaseException as error:
            code = repr(error)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    seconds = time.monotonic() - begin
    print(json.dumps([name, code, out.getvalue(), err.getvalue(), seconds, peak]), flush=True)
"""


def write(folder: Path, name: str, ending: str, content: str | bytes) -> str:
    content = hostile.content_of(content)
    path = folder / f"{name}.{ending}{'.gz' if hostile.is_packed(content) else ''}"
    path.write_bytes(content)
    return str(path)


CASES = {
    **{f"net-{name}": (content, hostile.SAFE, words)
       for name, (content, words) in hostile.NETWORKS.items()},
    **{f"prop-{name}": (hostile.PLAIN, content, words)
       for name, (content, words) in hostile.PROPERTIES.items()},
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What `maar verify` said about each case; all in one process, which must survive them."""
    folder = tmp_path_factory.mktemp("hostile")
    warm = [write(folder, "p", "onnx", hostile.PLAIN), write(folder, "p", "vnnlib", hostile.SAFE)]
    asked = [
        json.dumps([name, write(folder, name, "onnx", net), write(folder, name, "vnnlib", prop)])
        for name, (net, prop, _) in CASES.items()
    ]
    script = CHILD.format(memory=MEMORY, timeout=TIMEOUT, warm=warm)
    child = subprocess.run(
        [sys.executable, "-c", script],
        input="\n".join(asked),
        capture_output=True,
        text=True,
        timeout=len(asked) * (TIMEOUT + SLACK) + 60,
    )
    lines = [line for line in child.stdout.splitlines() if line.startswith("[")]
    return {line[0]: line[1:] for line in map(json.loads, lines)}, child.stderr[-2000:]


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_ends_in_one_line_or_in_time(answers, name):
    said, stderr = answers
    assert name in said, f"the process ended here or before: {stderr}"
    code, out, err, seconds, peak = said[name]
    assert seconds < TIMEOUT + SLACK
    assert peak < MEMORY
    assert code in (0, 1, 2)
    if code == 0:
        assert out.splitlines()[0] in ("sat", "unsat", "timeout", "unknown")
    else:
        assert err.count("\n") == 1
        assert len(err) < 1000
    assert CASES[name][2] in out + err


def test_reading_counts_in_a_list_of_instances(tmp_path, capsys):
    files = [("unused", hostile.PLAIN, hostile.PROPERTIES["spaces_packed"][0])]
    files += [("fine", hostile.PLAIN, hostile.SAFE), ("deep", hostile.PLAIN, "(" * 10_000)]
    rows = []
    for name, net, prop in files:
        paths = write(tmp_path, name, "onnx", net), write(tmp_path, name, "vnnlib", prop)
        rows.append([*(Path(path).name for path in paths), "0.3" if name == "unused" else "60"])
    with open(tmp_path / "instances.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    begin = time.monotonic()
    out = tmp_path / "out.csv"
    assert main(["verify", "--instances", f"{tmp_path}/instances.csv", "--out", str(out)]) == 1
    assert time.monotonic() - begin < 30
    with open(out, newline="") as file:
        results = [row[4] for row in csv.reader(file)]
    assert results[0] in ("timeout", "error")  # its limit of bytes, or its time, whichever is first
    assert results[1:] == ["unsat", "error"]
    capsys.readouterr()


def boxes(count: int, inputs: int) -> str:
    """As nn4sys' cardinality properties are written: a disjunct for each box of inputs."""
    lines = [f"(declare-const X_{i} Real)" for i in range(inputs)]
    lines += ["(declare-const Y_0 Real)", "(assert (or"]
    for k in range(count):
        bounds = [
            f"(>= X_{i} {k * (i + 1) % 4783 / 4783}) (<= X_{i} {k * i % 97 / 97 + 1})"
            for i in range(inputs)
        ]
        lines.append(f"(and {' '.join(bounds)} (>= Y_0 {k}.5))")
    return "\n".join([*lines, "))"])


def test_4780_boxes_in_seconds():
    text = boxes(4780, 308)
    begin = time.process_time()
    prop = parse(text, "p")
    assert time.process_time() - begin < 15
    assert len(prop.cases) == 4780
    assert prop.cases[4779].conditions[0].b[0] == -4779.5
    assert prop.cases[3].lb[5] == pytest.approx(18 / 4783)


def test_time_is_linear_in_boxes():
    def seconds(count):
        text = boxes(count, 50)
        begin = time.process_time()
        parse(text, "p")
        return time.process_time() - begin

    seconds(100)
    assert seconds(4000) < 8 * max(seconds(1000), 0.05)


@pytest.mark.parametrize("most", [1000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_as_many_disjuncts_as_accepted(monkeypatch, most):
    assert most <= limits.DISJUNCTS
    monkeypatch.setattr(limits, "DISJUNCTS", most)
    head = hostile.HEAD + hostile.BOX
    choices = " ".join(f"(and (<= X_0 0.{k:06d}) (<= Y_0 {k}))" for k in range(1, most + 1))
    assert len(parse(f"{head}(assert (or {choices}))", "p").cases) == most
    with pytest.raises(UsageError, match=rf"{most + 1} disjuncts \(accepted: up to {most}\)"):
        parse(f"{head}(assert (or {choices} (<= Y_0 0)))", "p")


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("VNNLIB_BYTES", f"bytes: {len(hostile.SAFE)}"),
        ("DISJUNCTS", "has 1 disjuncts"),
        ("VARIABLES", "number of inputs: 2"),
        ("BOX_NUMBERS", "inputs of all boxes: 2"),
        ("CONDITION_NUMBERS", "coefficients of all conditions: 2"),
    ],
)
def test_a_limit_names_the_file_the_value_and_what_is_accepted(tmp_path, monkeypatch, limit, words):
    path = tmp_path / "p.vnnlib"
    path.write_text(hostile.SAFE)
    assert len(read_vnnlib(path).cases) == 1
    monkeypatch.setattr(limits, limit, 0)
    with pytest.raises(UsageError) as error:
        read_vnnlib(path)
    assert str(error.value).startswith(str(path))
    assert f"{words} (accepted: up to 0)" in str(error.value)


def test_packed_integers_are_counted(monkeypatch):
    import onnx

    tensor = onnx.TensorProto(name="t", dims=[1000], int64_data=[0] * 1000)
    content = onnx.ModelProto(graph=onnx.GraphProto(initializer=[tensor])).SerializeToString()
    require_few(content, Path("net.onnx"))
    monkeypatch.setattr(limits, "PACKED_BYTES", 999)
    with pytest.raises(UsageError, match="bytes of packed integers: 1000"):
        require_few(content, Path("net.onnx"))
