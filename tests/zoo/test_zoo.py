"""zoo:NAME: a tiny zoo for the commands, the shipped one for its own truth."""

import importlib.machinery
import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from maar import zoo
from maar.cli.main import main
from maar.core.errors import RunError, UsageError
from maar.core.files import sha256_file
from maar.core.seals import seal_line, sealed
from maar.records.runs import certified, read_run
from maar.records.stores import VERDICT_LINES

ROOT = Path(__file__).parents[2]
NAME = "mnist_mini-0.02-standard"


@pytest.fixture(scope="module")
def add():
    """scripts/add_to_zoo as a module."""
    loader = importlib.machinery.SourceFileLoader("add_to_zoo", str(ROOT / "scripts/add_to_zoo"))
    spec = importlib.util.spec_from_loader("add_to_zoo", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of seconds, certified on a few images."""
    folder = tmp_path_factory.mktemp("zoo")
    (folder / "my.toml").write_text(
        'data = "mnist_mini"\nnetwork = "mlp"\nthreads = 1\neps = 0.02\n'
        '[method]\nname = "standard"\n[train]\nepochs = 1\nbatch = 100\nlr = 0.01\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", ["maar", "train", "my.toml", "--name", "tiny", "--threads", "1"])
        assert main(["train", "my.toml", "--name", "tiny"]) == 0
        verifiers = ["--verifiers", "misclassified,quick_pgd"]
        assert main(["certify", "runs/tiny", "--limit", "10", *verifiers]) == 0
    return folder / "runs" / "tiny"


@pytest.fixture
def here(add, trained, tmp_path, monkeypatch):
    """A zoo with that network, in place of the shipped one."""
    (tmp_path / "index.toml").write_text("# a comment\n")
    add.add(trained, NAME, tmp_path)
    monkeypatch.setattr(zoo, "INDEX", tmp_path / "index.toml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def test_the_shipped_zoo_is_true():
    for name, entry in zoo.entries().items():
        assert zoo.entry(f"zoo:{name}") == entry
        assert sha256_file(entry.path) == entry.sha256
        assert 0 < entry.certified <= entry.certified_upper <= entry.accuracy <= 1
        from maar.zoo.weights import load_zoo

        assert load_zoo(entry)[0] is not None
    there = {path.name for path in zoo.INDEX.parent.glob("*.safetensors")}
    assert there == {entry.file for entry in zoo.entries().values()}


def test_the_shipped_numbers_are_those_of_the_results_or_there_is_a_note():
    """A network and the tables' row of the same recipe are one training, or a reader is told."""
    for name, entry in zoo.entries().items():
        recipe = entry.command.split()[2]
        # (a run with flags has these in its name)
        kept = list((ROOT / "results" / "cpu" / "runs").glob(f"{recipe}*-seed{entry.seed}.json"))
        assert kept, name
        trainings = [one for file in kept for one in json.loads(file.read_text())["trainings"]]
        is_ours = any(
            any(task["result"].get("accuracy") == entry.accuracy for task in training["tasks"])
            and any(
                task["result"].get("certified") == entry.certified for task in training["tasks"]
            )
            for training in trainings
        )
        assert is_ours != bool(entry.note), name


def test_the_index_says_how_it_was_made(here, trained):
    entry = zoo.entry(NAME)
    summary = certified(read_run(trained))
    assert (entry.data, str(entry.eps), entry.network) == ("mnist_mini", "0.02", "mlp")
    assert entry.command == "maar train my.toml"
    verifiers = "misclassified,quick_pgd"
    assert entry.certify == f"maar certify zoo:{NAME} --limit 10 --verifiers {verifiers}"
    assert (entry.accuracy, entry.images) == (summary["accuracy"], 10)
    assert entry.path.read_bytes() == (trained / "model.safetensors").read_bytes()


def test_the_index_says_how_long_was_tried(here, add, trained, tmp_path):
    """Defaults are not named; the time that the open images had is, where it was another."""
    run = shutil.copytree(trained, tmp_path / "run")
    summary = certified(read_run(run))
    [verdicts] = run.glob("certify/*/verdicts.jsonl")
    records = VERDICT_LINES.read(verdicts.parent).lines
    key = json.loads((verdicts.parent / "manifest.json").read_text())["key"]
    for seconds, flags in ((120.0, ""), (7.5, " --timeout 7.5")):
        lines, seal = [], key
        for record in records:
            line, seal = seal_line(seal, {**record, "limit": seconds})
            lines.append(line + b"\n")
        verdicts.write_bytes(b"".join(lines))
        changed = {**summary, "preset": "complete", "last_seal": seal}
        (verdicts.parent / "summary.json").write_text(json.dumps(sealed(changed)))
        add.add(run, "timed", here)
        assert zoo.entry("timed").certify == f"maar certify zoo:timed --limit 10{flags}"


def test_adding_again_replaces(here, add, trained):
    text = (here / "index.toml").read_text()
    add.add(trained, "another", here)
    add.add(trained, NAME, here)
    assert list(zoo.entries()) == ["another", NAME]
    assert (here / "index.toml").read_text().startswith("# a comment\n")
    add.add(trained, "another", here)
    assert list(zoo.entries()) == [NAME, "another"]
    assert text in (here / "index.toml").read_text().replace('\n["another"]', "")


def test_what_cannot_be_added(here, add, trained, tmp_path):
    for name in ("", "a/b", "../a", "-x", 'a"b'):
        with pytest.raises(UsageError, match="NAME"):
            add.add(trained, name, here)
    with pytest.raises(UsageError, match="is not a run"):
        add.add(tmp_path, "a", here)


def test_the_list(here, capsys):
    assert main(["zoo"]) == 0
    out = capsys.readouterr().out
    assert f"zoo:{NAME}" in out
    assert main(["zoo", NAME]) == 0
    assert "maar train my.toml (seed 0, commit " in capsys.readouterr().out
    assert main(["zoo", "mnist_mini-0.2"]) == 2
    err = capsys.readouterr().err
    assert f"unknown network 'mnist_mini-0.2'; did you mean 'zoo:{NAME}'?" in err


def test_a_narrow_list_keeps_what_matters(here, capsys, monkeypatch):
    for columns, heads in ((120, "acc CR images MB"), (80, "acc CR")):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["zoo"]) == 0
        head, first, *_ = capsys.readouterr().out.splitlines()
        assert head.split()[-len(heads.split()) :] == heads.split()
        assert first.startswith(f"zoo:{NAME} ")
        assert max(len(head), len(first)) <= columns


def test_no_networks(here, capsys):
    (here / "index.toml").write_text("")
    assert main(["zoo"]) == 0
    assert "no networks" in capsys.readouterr().out


def test_every_command_takes_it(here, capsys):
    network = f"zoo:{NAME}"
    certify = ["certify", network, "--limit", "3", "--verifiers", "misclassified,crown"]
    assert main([*certify, "--out", "store"]) == 0
    assert json.loads((here / "store/manifest.json").read_text())["source"]["network"] == network
    assert main(["audit", "store"]) == 0
    assert main(["evaluate", network, "--limit", "3", "--steps", "2"]) == 0
    assert (here / f"certs/zoo-{NAME}/evaluate-model-first-3.json").is_file()
    assert main(["export", network, "--vnnlib", "props", "--indices", "0"]) == 0
    (prop,) = (here / "props").glob("*.vnnlib")
    capsys.readouterr()
    assert main(["verify", network, str(prop), "--timeout", "60"]) == 0
    assert capsys.readouterr().out.splitlines()[0] in ("sat", "unsat")


@pytest.mark.parametrize("command", ["certify", "evaluate", "export"])
def test_an_unknown_name(here, capsys, command):
    more = ["--onnx", "net.onnx"] if command == "export" else []
    assert main([command, "zoo:mnist_mini-0.02-standart", *more]) == 2
    assert f"did you mean 'zoo:{NAME}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--mean", "0.1", "--std", "0.2"], "mean and std are for ONNX files"),
        (["--weights", "stage-1-best"], "weights is for runs"),
    ],
)
def test_flags_of_others(here, capsys, args, said):
    assert main(["evaluate", f"zoo:{NAME}", *args]) == 2
    assert said in capsys.readouterr().err


def test_a_damaged_file(here):
    from maar.zoo.weights import load_zoo

    path = zoo.entry(NAME).path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match="is damaged"):
        load_zoo(zoo.entry(NAME))
    path.unlink()
    with pytest.raises(RunError, match="is missing"):
        load_zoo(zoo.entry(NAME))


@pytest.mark.parametrize("text", ["x", "[a]\nfile = 'b'", "a = 1", "\0"])
def test_a_damaged_index(here, text):
    (here / "index.toml").write_text(text)
    with pytest.raises(RunError, match="is damaged"):
        zoo.entries()
