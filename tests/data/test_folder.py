"""Folders of PNG files."""

import struct
import zlib

import numpy as np
import pytest

from maar import data
from maar.core.errors import RunError, UsageError


def write_png(path, image):
    """An image (h, w) or (h, w, 3), without filters."""
    image = np.atleast_3d(image).astype(np.uint8)
    height, width, samples = image.shape
    raw = b"".join(b"\0" + row.tobytes() for row in image)
    body = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if samples == 1 else 2, 0, 0, 0)
    for kind, part in ((b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")):
        body += struct.pack(">I", len(part)) + kind + part
        body += struct.pack(">I", zlib.crc32(kind + part))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


@pytest.fixture
def pets(tmp_path):
    """Three cats and two dogs to train on, one of each to test."""
    train = ("train/cat/1", "train/cat/2", "train/cat/3", "train/dog/1", "train/dog/2")
    for number, place in enumerate((*train, "test/cat/9", "test/dog/9")):
        write_png(tmp_path / f"{place}.png", np.full((4, 5), 10 * number))
    return tmp_path


def test_train_and_test(pets):
    (pets / "train" / "cat" / "notes.txt").write_text("not an image")
    (pets / "train" / "cat" / ".hidden.jpg").write_text("")
    (pets / "train" / ".git").mkdir()
    found = data.load(f"folder:{pets}", valid=1)
    assert found.shape == (1, 4, 5)
    assert found.classes == ("cat", "dog")
    whole = data.load(f"folder:{pets}")
    assert whole.x_train[:, 0, 0, 0].tolist() == [0, 10, 20, 30, 40]
    assert whole.y_train.tolist() == [0, 0, 0, 1, 1]
    assert whole.x_test[:, 0, 0, 0].tolist() == [50, 60]
    assert whole.y_test.tolist() == [0, 1]
    assert found.size("train") == 4


def test_class_folders_alone_are_test_images(pets):
    found = data.load(f"folder:{pets / 'train'}")
    assert (found.size("train"), found.size("test")) == (0, 5)


def test_one_coloured_image_makes_all_coloured(pets):
    write_png(pets / "test" / "dog" / "a.png", np.tile([1, 2, 3], (4, 5, 1)))
    found = data.load(f"folder:{pets}")
    assert found.shape == (3, 4, 5)
    assert found.x_train[1, :, 0, 0].tolist() == [10, 10, 10]
    assert found.x_test[2, :, 0, 0].tolist() == [1, 2, 3]


def test_numbers_sort_as_numbers(tmp_path):
    for label in (0, 1, 2, 10):
        write_png(tmp_path / str(label) / "x.png", np.full((2, 2), label))
    found = data.load(f"folder:{tmp_path}")
    assert found.classes == ("0", "1", "2", "10")
    assert found.x_test[:, 0, 0, 0].tolist() == [0, 1, 2, 10]


def test_many_images_of_another_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr("maar.data.folder._CHUNK", 2)
    for number in range(7):
        write_png(tmp_path / "ab"[number % 2] / f"{number}.png", np.full((2, 2), number))
    assert data.load(f"folder:{tmp_path}").x_test[:, 0, 0, 0].tolist() == [0, 2, 4, 6, 1, 3, 5]
    write_png(tmp_path / "b" / "9.png", np.zeros((3, 2)))
    write_png(tmp_path / "b" / "8.png", np.zeros((3, 2)))
    with pytest.raises(RunError, match="is 2x3 pixels, but"):
        data.load(f"folder:{tmp_path}")


def test_bad_folders(pets, tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        data.load("folder:nowhere")
    (pets / "train" / "cat" / "4.jpg").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(RunError, match=r"4\.jpg is not a PNG: convert it to PNG, or use npz:PATH"):
        data.load(f"folder:{pets}")
    (pets / "train" / "cat" / "4.jpg").rename(pets / "train" / "cat" / "4.png")
    with pytest.raises(RunError, match=r"4\.png is a JPEG image"):
        data.load(f"folder:{pets}")
    (pets / "train" / "cat" / "4.png").unlink()
    (pets / "test" / "dgo").mkdir()
    with pytest.raises(RunError, match=r"class folder .*dgo holds no PNG"):
        data.load(f"folder:{pets}")
    write_png(pets / "test" / "dgo" / "1.png", np.zeros((4, 5)))
    with pytest.raises(RunError, match="has the class 'dgo', train/ has not"):
        data.load(f"folder:{pets}")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(RunError, match="two or more class folders"):
        data.load(f"folder:{empty}")
