"""What the package declares, and what a built wheel and source distribution hold."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import maar

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The folder with wheel and source distribution, built without isolation or network."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(dist, tmp_path_factory):
    """The wheel's content, unpacked."""
    (path,) = dist.glob("*.whl")
    folder = tmp_path_factory.mktemp("wheel")
    zipfile.ZipFile(path).extractall(folder)
    return folder


def test_extras():
    extras = set(metadata.metadata("maar").get_all("Provides-Extra") or [])
    optional = {"report", "onnx", "vnnlib", "ray", "parallel", "tensorboard", "gurobi"}
    assert extras == optional | {"dev", "docs"}


def test_nothing_fights_with_the_users_torch():
    requires = metadata.requires("maar") or []
    (torch,) = [line for line in requires if re.match(r"torch\b", line)]
    assert not re.search(r"[<~]|==", torch)
    assert not [line for line in requires if re.match(r"(torchvision|torchaudio|nvidia)", line)]


def test_cpu_constraints():
    lines = (ROOT / "constraints-cpu.txt").read_text().splitlines()
    assert [line for line in lines if line and line[0] != "#"] == ["torch==2.13.0"]


def test_one_version_everywhere():
    assert metadata.version("maar") == maar.__version__
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", citation, re.M)[1] == maar.__version__


def test_the_script_is_the_module():
    (script,) = [e for e in metadata.entry_points(group="console_scripts") if e.name == "maar"]
    assert script.value == "maar.cli.main:entry"


def test_wheel_has_every_file_of_the_package(wheel):
    def files(folder):
        return {
            path.relative_to(folder)
            for path in folder.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }

    packed = files(wheel / "maar")
    assert packed == files(ROOT / "src" / "maar")
    assert Path("py.typed") in packed
    assert any(path.suffix == ".toml" for path in packed), "no recipe"


def test_wheel_names_the_licence_and_the_script(wheel):
    (info,) = wheel.glob("*.dist-info")
    assert "maar = maar.cli.main:entry" in (info / "entry_points.txt").read_text()
    assert (info / "licenses" / "LICENSE").is_file()
    assert "Requires-Python: >=3.10" in (info / "METADATA").read_text()


def test_wheel_runs_without_the_checkout(wheel, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "import maar.cli.main as m; print(m.__file__); m.entry()", "-V"],
        env={**os.environ, "PYTHONPATH": str(wheel)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        str(wheel / "maar" / "cli" / "main.py"),
        f"maar {maar.__version__}",
    ]


def test_source_distribution(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert names >= {
        "pyproject.toml", "Makefile", ".ci/run", "README.md", "LICENSE", "CHANGELOG.md",
        "CITATION.cff", "constraints-cpu.txt", "mkdocs.yml", "src/maar/py.typed",
        "tests/test_packaging.py", "scripts/docs_hook.py",
    }  # fmt: skip
    assert not [name for name in names if name.startswith((".venv", "runs", "site"))]
