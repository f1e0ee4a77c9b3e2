"""`maar doctor`: what it reports, and that a broken part fails it while an absent one does not."""

import builtins
import shutil
import types
from importlib import metadata

import pytest

from maar.cli import doctor
from maar.cli.main import main
from maar.data import DATASETS


def by_name(checks):
    return {check.name: check for check in checks}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty place for data and runs, whatever this machine has."""
    monkeypatch.setenv("MAAR_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def installed(monkeypatch):
    """Pretend which distributions are installed: name -> version, None for an absent one."""
    real = metadata.version
    pretended = {}

    def version(name):
        found = pretended.get(name, real(name) if name not in pretended else None)
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", version)
    return pretended


def test_a_sound_machine(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for title in ("versions", "device", "disk", "data", "solvers", "extras"):
        assert f"\n{title}" in out
    for name in ("torch", "numpy", "cpu", "memory", "threads", "mnist_mini", "SCIP"):
        assert name in out
    assert "broken" not in out
    assert out.endswith("everything that maar needs is here\n")


def test_requirements_are_those_of_the_metadata():
    needs = doctor.requirements()
    assert len(needs) == len(metadata.requires("maar") or [])
    assert {need.extra for need in needs if need.extra} == set(
        metadata.metadata("maar").get_all("Provides-Extra") or []
    )
    core = {need.name: need for need in needs if not need.extra}
    assert f"torch>={core['torch'].floor}" in (metadata.requires("maar") or [])
    assert core["tomli"].conditional
    assert not core["rich"].conditional


@pytest.mark.parametrize(
    ("version", "floor", "enough"),
    [
        ("2.13.0+cpu", "2.2", True),
        ("2.2", "2.2", True),
        ("2.1.9", "2.2", False),
        ("13.0.0", "13", True),
        ("0.10", "0.9", True),
        ("2.2.0+cu118", "2.2.1", False),
    ],
)
def test_at_least(version, floor, enough):
    assert doctor.at_least(version, floor) is enough


def test_an_absent_core_dependency_is_broken(installed, capsys):
    installed["safetensors"] = None
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "install 'safetensors'" in " ".join(out.split())
    assert out.endswith("broken: safetensors\n")


def test_an_old_core_dependency_is_broken(installed):
    installed["numpy"] = "1.19.5"
    check = by_name(doctor.versions())["numpy"]
    assert check.state == "broken"
    assert "1.19.5 is too old" in check.detail
    assert "'numpy>=1.26'" in check.detail


def test_an_absent_extra_is_no_fault_and_shows_the_command(installed):
    installed["plotly"] = None
    check = by_name(doctor.extras())["report"]
    assert check.state == "absent"
    assert "lacks plotly" in check.detail or "plotly" in check.detail
    assert "pip install 'maar[report]'" in check.detail


def test_a_complete_extra_is_ok(installed):
    installed.update({"onnx": "1.17", "onnxruntime": "1.20", "onnxscript": "0.5"})
    check = by_name(doctor.extras())["onnx"]
    assert check.state == "ok"
    assert check.detail.startswith("onnx 1.17, onnxruntime 1.20")


def test_a_torch_that_cannot_be_imported_is_broken(monkeypatch, capsys):
    main(["doctor"])  # tyro looks for torch once, when it is first used
    capsys.readouterr()
    real = builtins.__import__

    def broken(name, *args, **kwargs):
        if name == "torch":
            raise OSError("libtorch_cpu.so: cannot open shared object file\nmore")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", broken)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "broken  device          OSError: libtorch_cpu.so: cannot open shared" in out
    assert "more" not in out
    assert "\nextras" in out, "the other sections are still shown"


def test_disk_names_folders_that_do_not_exist_yet(home):
    checks = by_name(doctor.disk())
    assert {check.state for check in checks.values()} == {"ok"}
    assert checks["data"].detail.startswith(str(home / "data"))
    assert checks["runs"].detail.startswith(str(home / "runs"))
    assert "GB free" in checks["runs"].detail


def test_little_space_is_a_warning(home, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(free=1 << 20))
    checks = by_name(doctor.disk())
    assert checks["data"].state == checks["runs"].state == "warn"
    assert checks["data"].detail.endswith("0.0 GB free: little")


def test_a_folder_that_cannot_be_written_is_a_warning(home, monkeypatch):
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    checks = by_name(doctor.disk())
    assert checks["runs"].state == "warn"
    assert checks["runs"].detail.endswith("not writable")


def test_data_absent_whole_and_damaged(home):
    mnist = DATASETS["mnist"]
    assert by_name(doctor.data(False))["mnist"].state == "absent"
    assert "maar data fetch mnist" in by_name(doctor.data(False))["mnist"].detail
    for file in mnist.files:  # the right sizes, the wrong content
        path = mnist.folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as sparse:
            sparse.truncate(file.size)
    assert by_name(doctor.data(False))["mnist"].state == "ok"
    hashed = by_name(doctor.data(True))["mnist"]
    assert hashed.state == "broken"
    assert "SHA-256" in hashed.detail
    (mnist.folder / mnist.files[0].name).write_bytes(b"cut")
    assert by_name(doctor.data(False))["mnist"].state == "broken"


def test_the_embedded_data_are_always_verified(home):
    check = by_name(doctor.data(False))["mnist_mini"]
    assert check.state == "ok"
    assert check.detail.endswith("content verified")


def test_solvers_present_and_absent(installed, monkeypatch):
    installed["highspy"] = "1.7"
    found = {"highspy": object()}
    monkeypatch.setattr(doctor.util, "find_spec", found.get)
    checks = by_name(doctor.solvers())
    assert (checks["HiGHS"].state, checks["HiGHS"].detail[:11]) == ("ok", "highspy 1.7")
    assert checks["SCIP"].state == "absent"
    assert "pip install 'pyscipopt'" in checks["SCIP"].detail


@pytest.mark.parametrize("solver", ["HiGHS", "SCIP"])
def test_solvers_are_tried(solver, monkeypatch):
    pytest.importorskip(doctor.SOLVERS[solver])
    assert by_name(doctor.solvers())[solver].state == "ok"
    monkeypatch.setattr(doctor, "_solves", lambda name: False)
    assert by_name(doctor.solvers())[solver].state == "broken"

    def refuse(name):
        raise RuntimeError("no licence\nand more")

    monkeypatch.setattr(doctor, "_solves", refuse)
    check = by_name(doctor.solvers())[solver]
    assert (check.state, check.detail.partition(" does ")[2]) == ("warn", "not work: no licence")
