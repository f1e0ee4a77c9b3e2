"""Folders of image files."""

import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

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


def write_image(path, height, width, value, kind=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((height, width), value, np.uint8)).save(path, kind)


def test_images_of_several_sizes_and_kinds(tmp_path):
    write_image(tmp_path / "a" / "1.jpg", 40, 60, 10)
    write_image(tmp_path / "a" / "2.WEBP", 30, 20, 20, "WEBP")
    write_image(tmp_path / "b" / "3.png", 50, 50, 30)
    with pytest.raises(RunError, match=r"2\.WEBP is 20x30 pixels, but .*1\.jpg is 60x40") as error:
        data.load(f"folder:{tmp_path}")
    name = f"folder:{tmp_path}?size=20"
    assert repr(name) in str(error.value)
    found = data.load(name)
    assert found.name == name
    assert found.shape == (3, 20, 20)  # WebP has colours only
    assert (found.x_test.float().mean((1, 2, 3)) - torch.tensor([10, 20, 30])).abs().max() <= 1
    assert "shorter side has 20 pixels (bilinear, antialiased)" in found.info.note
    assert data.load(f"folder:{tmp_path}?size=30").sha256 != found.sha256


def test_the_order_of_the_classes(pets):
    found = data.load(f"folder:{pets}?classes=dog,cat,cow")
    assert found.classes == ("dog", "cat", "cow")
    assert found.x_train[:, 0, 0, 0].tolist() == [30, 40, 0, 10, 20]
    assert found.y_train.tolist() == [0, 0, 1, 1, 1]
    with pytest.raises(UsageError, match=r"has the class folder 'cat', .*did you mean 'cart'"):
        data.load(f"folder:{pets}?classes=dog,cart")


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ("size=0", "size is '0' .accepted: a whole number above 0"),
        ("size=a", "size is 'a'"),
        ("size=99999", "size: 99999 .accepted: up to 4096"),
        ("sise=3", "unknown option of folder: 'sise'; did you mean 'size'"),
        ("size=3&size=4", "option 'size' twice"),
        ("size=", "option 'size' without a value"),
        ("classes=cat", "classes is 'cat' .accepted: two or more different names"),
        ("classes=cat,cat", "two or more different names"),
    ],
)
def test_bad_options(pets, tail, said):
    with pytest.raises(UsageError, match=said):
        data.load(f"folder:{pets}?{tail}")


def test_a_question_mark_in_a_path(tmp_path):
    for name in "ab":
        write_image(tmp_path / "why?" / name / "1.png", 2, 2, 7)
    assert data.load(f"folder:{tmp_path}/why?").size("test") == 2
    assert data.load(f"folder:{tmp_path}/why??size=1").shape == (1, 1, 1)


def test_bad_folders(pets, tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        data.load("folder:nowhere")
    (pets / "train" / "cat" / "4.gif").write_bytes(b"GIF89a")
    with pytest.raises(RunError, match=r"4\.gif is not a PNG, JPEG or WebP image: convert it"):
        data.load(f"folder:{pets}")
    (pets / "train" / "cat" / "4.gif").rename(pets / "train" / "cat" / "4.png")
    with pytest.raises(RunError, match=r"4\.png is damaged, or is not a PNG"):
        data.load(f"folder:{pets}")
    (pets / "train" / "cat" / "4.png").unlink()
    (pets / "test" / "dgo").mkdir()
    with pytest.raises(RunError, match=r"class folder .*dgo holds no PNG, JPEG or WebP file"):
        data.load(f"folder:{pets}")
    write_png(pets / "test" / "dgo" / "1.png", np.zeros((4, 5)))
    with pytest.raises(RunError, match="has the class 'dgo', train/ has not"):
        data.load(f"folder:{pets}")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(RunError, match="two or more class folders"):
        data.load(f"folder:{empty}")
