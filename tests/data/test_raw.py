"""Finding raw files: plain, gzipped, in archives, and archives that mean harm."""

import gzip
import io
import tarfile

import pytest

from maar.core.errors import RunError
from maar.data.raw import Raw


@pytest.fixture
def places(tmp_path):
    folder, scratch = tmp_path / "given", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    return folder, scratch


def tar(path, members: dict[str, bytes | tarfile.TarInfo]):
    with tarfile.open(path, "w:gz") as file:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                file.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))


def test_plain_gzipped_and_deeper(places):
    folder, scratch = places
    (folder / "x").write_bytes(b"one")
    (folder / "x.gz").write_bytes(gzip.compress(b"two"))
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "x").write_bytes(b"three")
    (folder / "a" / "b" / "c" / "d").mkdir(parents=True)
    (folder / "a" / "b" / "c" / "d" / "x").write_bytes(b"too deep")
    (folder / "not-x").write_bytes(b"other")
    assert [content for _, content in Raw(folder, scratch).find("x")] == [b"one", b"two", b"three"]


def test_archives_are_read_flat(places):
    folder, scratch = places
    tar(folder / "set.tgz", {"package/data/x": b"one", "package/x.gz": gzip.compress(b"two")})
    tar(folder / "other.tgz", {"x": b"not asked for"})
    raw = Raw(folder, scratch, ("set.tgz",))
    assert {content for _, content in raw.find("x")} == {b"two"} | {b"one"}


def test_nothing_is_written_outside(places, tmp_path):
    folder, scratch = places
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "target")
    device = tarfile.TarInfo("device")
    device.type = tarfile.FIFOTYPE
    tar(
        folder / "set.tgz",
        {
            "../../evil": b"1",
            str(tmp_path / "absolute"): b"2",
            "link": link,
            "link/inside": b"3",
            "device": device,
        },
    )
    raw = Raw(folder, scratch, ("set.tgz",))
    assert [content for _, content in raw.find("evil")] == [b"1"]
    assert list(raw.find("link")) == list(raw.find("device")) == []
    written = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")}
    assert written == {"given", "scratch"}


def test_archives_and_files_have_a_limit(places, monkeypatch):
    folder, scratch = places
    monkeypatch.setattr("maar.core.limits.RAW_BYTES", 1000)
    tar(folder / "set.tgz", {"x": bytes(600), "y": bytes(600)})
    with pytest.raises(RunError, match=r"set\.tgz is too large"):
        list(Raw(folder, scratch, ("set.tgz",)).find("x"))
    (folder / "z.gz").write_bytes(gzip.compress(bytes(1001)))
    with pytest.raises(RunError, match=r"z\.gz: .* up to 1000\): too large"):
        list(Raw(folder, scratch).find("z"))


@pytest.mark.parametrize("keep", [0, 30, -40])
def test_damaged_archives_and_gzip_files(places, keep):
    folder, scratch = places
    tar(folder / "set.tgz", {"x": bytes(range(256)) * 50})
    whole = (folder / "set.tgz").read_bytes()
    (folder / "set.tgz").write_bytes(whole[:keep])
    with pytest.raises(RunError, match=r"set\.tgz is damaged"):
        list(Raw(folder, scratch, ("set.tgz",)).find("x"))
    (folder / "z.gz").write_bytes(gzip.compress(bytes(range(256)))[: keep or 1])
    with pytest.raises(RunError, match=r"z\.gz is not a gzip file, or is damaged"):
        list(Raw(folder, scratch).find("z"))
