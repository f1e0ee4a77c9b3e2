"""A tiny published data set, and a web site on this machine to fetch it from."""

import hashlib
import http.server
import threading
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest

from maar import data
from maar.data.dataset import Arrays, Info
from maar.data.idx import read_four
from maar.data.mnist import rebuild
from maar.data.published import File, Published


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("MAAR_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tiny(cache, monkeypatch):
    """A data set of 6 + 4 images with the files of MNIST, known to maar as `tiny`.

    `tiny.raw` are its files; `tiny.use(origin, ...)` says where they can be had.
    """
    rng = np.random.default_rng(0)
    images = {"train": rng.integers(0, 256, (6, 5, 4)), "t10k": rng.integers(0, 256, (4, 5, 4))}
    raw = {}
    for prefix, x in images.items():
        raw[f"{prefix}-images-idx3-ubyte"] = idx_bytes(x)
        raw[f"{prefix}-labels-idx1-ubyte"] = idx_bytes(np.arange(len(x)) % 3)
    train, test = (images[key].astype(np.uint8)[:, None] for key in ("train", "t10k"))
    arrays = Arrays(train, np.arange(6) % 3, test, np.arange(4) % 3)
    published = Published(
        info=Info("tiny", (1, 5, 4), ("a", "b", "c"), 6, 4, (0.5,), (0.25,)),
        files=tuple(
            File(name, len(content), hashlib.sha256(content).hexdigest())
            for name, content in raw.items()
        ),
        sha256=arrays.sha256,
        decode=read_four,
        rebuild=rebuild,
        archives=("tiny-1.0.tgz",),
    )
    found = SimpleNamespace(raw=raw, arrays=arrays, folder=cache / "tiny", published=published)

    def use(*origins):
        found.published = replace(published, origins=origins)

    found.use = use
    original = type(data.DATASETS).__getitem__
    monkeypatch.setitem(data.DATASETS._entries, "tiny", "none:none")
    monkeypatch.setattr(
        type(data.DATASETS),
        "__getitem__",
        lambda self, name: found.published if name == "tiny" else original(self, name),
    )
    return found


@dataclass
class Site:
    """A web site: path -> content. `cut` stops every answer after so many bytes."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)  # "GET /x" or "GET /x from 10"
    cut: int | None = None
    ranges: bool = True


@pytest.fixture
def make_site():
    """A function that starts another web site."""
    servers = []

    def start() -> Site:
        site = Site()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.answer(body=False)

            def do_GET(self):
                self.answer(body=True)

            def answer(self, body):
                start = 0
                if site.ranges and (wanted := self.headers.get("Range")):
                    start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                site.asked.append(f"{self.command} {self.path}" + (f" from {start}" * bool(start)))
                content = site.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                if start >= len(content) > 0:
                    self.send_error(416)
                    return
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                if body:
                    self.wfile.write(content[start:][: site.cut])

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        site.url = f"http://127.0.0.1:{server.server_port}/"
        return site

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def site(make_site):
    return make_site()
