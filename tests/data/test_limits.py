"""Images that ask for too much memory, and files that are damaged in any way."""

import io
import random
import struct
import subprocess
import sys
import time
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from maar import data
from maar.core import limits
from maar.core.errors import MaarError, RunError, UsageError
from maar.core.unpacking import gunzip, read_npz
from maar.data import idx
from maar.data.images import decode


def npy(array) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def archive(path, **members: bytes):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def header(shape, kind="|u1") -> bytes:
    text = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def claiming(path, size: int):
    """The archive, whose list of members now has another size for the only one."""
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<I", size)
    path.write_bytes(content)
    return path


def image(width: int, height: int, body: bytes, colour: int = 0) -> bytes:
    def chunk(kind, content):
        crc = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc)

    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(body))
        + chunk(b"IEND", b"")
    )


def test_an_archive_that_unpacks_to_too_much(tmp_path, monkeypatch):
    path = archive(tmp_path / "x.npz", x_test=npy(np.zeros((100, 28, 28), np.uint8)))
    assert path.stat().st_size < 1000
    monkeypatch.setattr(limits, "DATA_BYTES", 10_000)
    with pytest.raises(UsageError, match=r"after decompression: 78528 \(accepted: up to 10000\)"):
        data.load(f"npz:{path}")


def test_an_archive_that_says_that_it_is_too_large(tmp_path):
    path = archive(tmp_path / "x.npz", x_test=npy(np.zeros(1 << 20, np.uint8)))
    claiming(path, 0xFFFFFFF0)
    with pytest.raises(UsageError, match="after decompression: 4294967280"):
        read_npz(path, 1 << 31)


@pytest.mark.parametrize(
    "shape", [(10**12,), (10**6, 10**6, 10**6), (1 << 62, 4), (-1,), (-4, -4), (5,)]
)
def test_a_header_that_says_more_than_there_is(tmp_path, shape):
    path = archive(tmp_path / "x.npz", x_test=header(shape) + bytes(4))
    with pytest.raises(RunError, match="damaged"):
        data.load(f"npz:{path}")


def test_a_member_that_is_longer_than_it_says(tmp_path):
    path = archive(tmp_path / "x.npz", x_test=npy(np.zeros((400, 50, 50), np.uint8)))
    with pytest.raises(RunError, match="damaged"):
        read_npz(claiming(path, 5000), limits.DATA_BYTES)


def test_names_of_classes_are_few(tmp_path):
    names = npy(np.array(["a" * 1000] * 5000))
    path = archive(tmp_path / "x.npz", classes=names)
    with pytest.raises(UsageError, match="bytes of a text: 20000000"):
        data.load(f"npz:{path}")


def test_no_memory_is_an_error_of_one_line(tmp_path):
    path = archive(tmp_path / "x.npz", x_test=npy(np.zeros(1 << 29, np.uint8)))
    code = (
        "import resource, sys, numpy\n"
        "from pathlib import Path\n"
        "from maar.core.unpacking import read_npz\n"
        "from maar.core.errors import RunError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))\n"
        "try:\n    read_npz(Path(sys.argv[1]), 1 << 40)\n"
        "except RunError as error:\n    print(error)\n"
    )
    environment = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ":".join(filter(None, sys.path))}
    child = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, env=environment
    )
    assert "no memory for its arrays" in child.stdout, child.stderr


def test_a_gzip_file_that_unpacks_to_too_much(tmp_path):
    import gzip

    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(1 << 20)) * 10)
    assert len(gunzip(path, 10 << 20)) == 10 << 20
    with pytest.raises(UsageError, match=r"after decompression: more \(accepted: up to 5242880\)"):
        gunzip(path, 5 << 20)


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (1 << 31, 1), (20_000, 20_000)])
def test_an_image_of_an_unusable_size(size):
    with pytest.raises(RunError, match=r"damaged|up to 268435456 bytes"):
        decode("x.png", image(*size, bytes(100)))


def test_images_that_are_too_large_together(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        body = bytes([0, 7, 7, 7]) * 3
        (tmp_path / name / "x.png").write_bytes(image(3, 3, body))
    assert data.load(f"folder:{tmp_path}").images("test").shape == (2, 1, 3, 3)
    monkeypatch.setattr(limits, "DATA_BYTES", 17)
    with pytest.raises(UsageError, match="bytes of all images: 18"):
        data.load(f"folder:{tmp_path}")


def test_an_idx_file_of_another_size_is_not_read(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(struct.pack(">I3I", 0x00000803, 10**6, 1000, 1000))
    with open(path, "ab") as file:
        file.truncate(1 << 40)  # (takes no room on the disk)
    with pytest.raises(RunError, match="holds 1099511627760 bytes, its header says 1000000000000"):
        idx.read(path, 3)


# Damaged in any way


def damaged(content: bytes, chance: random.Random) -> bytes:
    out = bytearray(content)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(out) + 1)
        if chance.random() < 0.6 and at < len(out):
            out[at] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        elif chance.random() < 0.5:
            del out[at : at + chance.choice((1, 4, 100))]
        else:
            out[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice((1, 4, 20))))
    return bytes(out)


def some_npz(path, chance):
    x = npy(np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4))
    x = damaged(x, chance) if chance.random() < 0.5 else x
    y = npy(np.array(chance.choice(([0, 1], [0.0, 1.0], ["a", "b"], [[0], [1]]))))
    more = {"classes": npy(np.array(["a", "b"]))} if chance.random() < 0.3 else {}
    archive(path, x_test=x, y_test=y, **more)
    if chance.random() < 0.5:
        path.write_bytes(damaged(path.read_bytes(), chance))
    data.load(f"npz:{path}")


def some_png(path, chance):
    colour = chance.choice((0, 2, 3, 4, 6))
    width, height = chance.choice(((1, 1), (3, 2), (0, 3), (3, 0), (2**31, 2)))
    body = bytes(chance.randrange(6) for _ in range(chance.choice((0, 2, 8, 20, 26, 40))))
    content = image(width, height, body, colour)
    decode("x.png", damaged(content, chance) if chance.random() < 0.7 else content)


def some_picture(path, chance):
    out = io.BytesIO()
    picture = Image.new("RGB", (chance.randint(1, 40), 30), (chance.randrange(256), 9, 9))
    picture.save(out, chance.choice(("JPEG", "WEBP")))
    decode("x.jpg", damaged(out.getvalue(), chance), chance.choice((None, 5)))


def fuzz(read, folder, seconds: float, start: int) -> int:
    end, number = time.monotonic() + seconds, start
    while time.monotonic() < end:
        begin = time.monotonic()
        try:
            read(folder / "file.npz", random.Random(number))
        except MaarError:
            pass
        except Exception as error:
            raise AssertionError(f"number {number}: {error!r}") from error
        assert time.monotonic() - begin < 20, f"number {number}"
        number += 1
    return number - start


@pytest.mark.parametrize("read", [some_npz, some_png, some_picture])
def test_a_few_damaged_files(tmp_path, read):
    assert fuzz(read, tmp_path, 1, start=0) > 20


@pytest.mark.slow
@pytest.mark.parametrize("read", [some_npz, some_png, some_picture])
def test_many_damaged_files(tmp_path, read):
    assert fuzz(read, tmp_path, 60, start=random.randrange(10**9)) > 500
