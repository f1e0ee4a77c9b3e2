"""Downloads from web sites on this machine: mirrors, resuming, dead hosts."""

import gzip
import io
import socket
import tarfile
import time

import pytest

from maar import data
from maar.core.errors import RunError
from maar.data import web
from maar.data.web import Web


def publish(site, tiny):
    """Put the gzipped files of the tiny set on a site."""
    site.files = {f"/{name}.gz": gzip.compress(raw) for name, raw in tiny.raw.items()}


def below(folder):
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_fetch(site, tiny):
    publish(site, tiny)
    tiny.use(Web((site.url,)))
    assert data.fetch("tiny").startswith("127.0.0.1")
    assert below(tiny.folder) == {*tiny.raw, ".lock"}
    assert data.load("tiny").sha256 == tiny.arrays.sha256
    asked = len(site.asked)
    assert data.fetch("tiny") == ""
    assert len(site.asked) == asked  # what is there and right is not asked for again


def test_only_what_is_lacking_or_damaged_is_fetched(site, tiny):
    publish(site, tiny)
    tiny.use(Web((site.url,)))
    data.fetch("tiny")
    images = tiny.folder / "t10k-images-idx3-ubyte"
    content = bytearray(images.read_bytes())
    content[-1] ^= 1
    images.write_bytes(content)
    site.asked.clear()
    data.fetch("tiny")
    assert {line.split()[1] for line in site.asked} == {"/t10k-images-idx3-ubyte.gz"}
    assert not tiny.published.faults()


def test_the_first_good_mirror_is_used(make_site, tiny):
    lacking, wrong, good, spare = (make_site() for _ in range(4))
    for site in (wrong, good, spare):
        publish(site, tiny)
    wrong.files["/t10k-labels-idx1-ubyte.gz"] = gzip.compress(b"something else")
    tiny.use(Web(tuple(site.url for site in (lacking, wrong, good, spare))))
    data.fetch("tiny")
    assert not tiny.published.faults()
    assert not any(line.startswith("GET") for line in (*lacking.asked, *spare.asked))
    # No host is asked more than once for anything.
    for site in (lacking, wrong, good, spare):
        assert len(site.asked) == len(set(site.asked))


def test_a_cut_download_is_continued(site, tiny):
    publish(site, tiny)
    tiny.use(Web((site.url,)))
    site.cut = 40
    with pytest.raises(RunError, match="tiny cannot be fetched"):
        data.fetch("tiny")
    assert below(tiny.folder) == {".lock", "train-images-idx3-ubyte.gz.part"}
    site.cut = None
    site.asked.clear()
    data.fetch("tiny")
    assert "GET /train-images-idx3-ubyte.gz from 40" in site.asked
    assert below(tiny.folder) == {*tiny.raw, ".lock"}


@pytest.mark.parametrize("ranges", [True, False])
def test_a_part_that_does_not_fit_does_no_harm(site, tiny, ranges):
    publish(site, tiny)
    tiny.use(Web((site.url,)))
    site.ranges = ranges
    host = site.url.split("/")[2].replace(":", "_")
    for length in (50, 10_000):  # a wrong beginning; longer than the file itself
        part = tiny.folder / ".fetch" / "web" / host / "train-images-idx3-ubyte.gz.part"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(bytes(length))
        if ranges and length == 50:
            with pytest.raises(RunError, match="cannot be fetched"):
                data.fetch("tiny")  # the whole is wrong, and is thrown away ...
        data.fetch("tiny")  # ... so that the next try starts anew
        assert not tiny.published.faults()
        (tiny.folder / "train-images-idx3-ubyte").unlink()


def test_a_host_that_never_answers_costs_seconds(site, tiny, monkeypatch):
    monkeypatch.setattr(web, "ANSWER_SECONDS", 0.5)
    publish(site, tiny)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("", 0)) as closed:
        port = closed.getsockname()[1]
        closed.close()
        dead = [f"http://127.0.0.1:{silent.getsockname()[1]}/{i}/" for i in range(5)]
        tiny.use(Web((*dead, f"http://127.0.0.1:{port}/", "http://no-such-host.invalid/")))
        start = time.monotonic()
        with pytest.raises(RunError) as error:
            data.fetch("tiny")
        assert time.monotonic() - start < 3  # not 5 hosts times 0.5 s times 4 files
    said = str(error.value)
    assert "no answer" in said
    for needed in (*(f"{name}.gz" for name in tiny.raw), "maar data fetch tiny --from DIR"):
        assert needed in said
    assert "\n" not in said
    assert below(tiny.folder) == {".lock"}


def test_an_archive_is_asked_for_once(site, tiny):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, raw in tiny.raw.items():
            info = tarfile.TarInfo(f"inside/{name}")
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    site.files = {"/tiny-1.0.tgz": buffer.getvalue()}
    tiny.use(Web((site.url,), file="tiny-1.0.tgz"))
    data.fetch("tiny")
    assert site.asked == ["HEAD /tiny-1.0.tgz", "GET /tiny-1.0.tgz"]
    assert not tiny.published.faults()
