"""What the package declares, and what a built wheel and source distribution hold."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from scripts import version

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
    optional = {"report", "onnx", "vnnlib", "ray", "parallel", "tensorboard", "gurobi", "tune"}
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
    # (of a checkout some commits behind a tag, metadata has the next patch's .dev)
    assert metadata.version("maar").partition(".dev")[0] >= maar.__version__
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
    assert packed == files(ROOT / "src" / "maar") | {Path("_version.py")}
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
        f"maar {version.version()}",
    ]


def test_the_wheel_is_small(dist):
    (path,) = dist.glob("*.whl")
    assert path.stat().st_size < 20e6


@pytest.fixture
def repository(tmp_path):
    """A repository of a file with `__version__`, one commit, no tag."""
    source = tmp_path / "src" / "maar"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text('__version__ = "0.1.0"\n')

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    return tmp_path, git


def test_versions_come_from_tags(repository):
    root, git = repository
    assert version.version(root) == "0.1.0"  # no tag: what the source says
    git("tag", "v0.2.0")
    assert version.version(root) == "0.2.0"
    git("commit", "-qm", "two", "--allow-empty")
    assert re.fullmatch(r"0\.2\.1\.dev1\+g[0-9a-f]+", version.version(root))
    (root / "PKG-INFO").write_text("Metadata-Version: 2.4\nVersion: 0.3.0\n")
    assert version.version(root) == "0.3.0"  # a source distribution


def test_an_archive_within_another_repository_is_not_described_by_it(repository):
    root, git = repository
    git("tag", "v9.0.0")
    inner = root / "inner"
    (inner / "src" / "maar").mkdir(parents=True)
    (inner / "src" / "maar" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    assert version.version(inner) == "0.1.0"


@pytest.mark.slow
def test_the_wheel_works_in_an_environment_of_its_own(dist, tmp_path):
    """pip installs it, and the demo recipe trains and certifies, far from the checkout.

    The environment has nothing but pip, the wheel, and a path to the installed dependencies, which
    does not lead to the checkout: an editable install's own .pth is not read there.
    """
    (path,) = dist.glob("*.whl")
    home = tmp_path / "env"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    clean = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}

    def run(*words):
        done = subprocess.run(
            words, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(str(python), "-m", "pip", "install", "--no-deps", "--no-index", str(path))
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    where = run(str(python), "-c", "import maar; print(maar.__file__)").strip()
    assert Path(where).is_relative_to(site)
    command = str(home / "bin" / "maar")
    assert run(command, "--version") == f"maar {version.version()}\n"
    assert "is finished: test accuracy" in run(command, "train", "demo", "--threads", "1")
    found = run(command, "certify", "runs/demo", "--limit", "20", "--timeout", "30")
    assert "verdicts in runs/demo/certify" in found
    assert "demo" in run(command, "runs")


def test_source_distribution(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert names >= {
        "pyproject.toml", "Makefile", ".ci/run", "README.md", "LICENSE", "CHANGELOG.md",
        "CITATION.cff", "constraints-cpu.txt", "mkdocs.yml", "src/maar/py.typed",
        "hatch_build.py", "scripts/version.py",
        "tests/test_packaging.py", "scripts/docs_hook.py",
    }  # fmt: skip
    assert not [name for name in names if name.startswith((".venv", "runs", "site"))]
