"""The image reader: kinds of files, damage, and torchvision's resizing from its formula."""

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from maar.core import limits
from maar.core.errors import RunError
from maar.data.images import decode, resized
from maar.data.images import encode as to_png

COLOURS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def paeth(a: int, b: int, c: int) -> int:
    p = a + b - c
    return min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]


def encode(samples, colour, kinds, *, depth=8, interlaced=0, extra=b"", split=1) -> bytes:
    """Written from the specification, byte by byte, to be unlike the code under test."""
    height, width, count = samples.shape
    rows = samples.reshape(height, -1).astype(int).tolist()
    out = bytearray()
    for r, kind in zip(range(height), kinds, strict=True):
        out.append(kind)
        for i, value in enumerate(rows[r]):
            a = rows[r][i - count] if i >= count else 0
            b = rows[r - 1][i] if r else 0
            c = rows[r - 1][i - count] if r and i >= count else 0
            out.append((value - [0, a, b, (a + b) // 2, paeth(a, b, c)][kind]) % 256)
    packed = zlib.compress(bytes(out))
    size = -(-len(packed) // split)
    pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + extra
        + b"".join(chunk(b"IDAT", piece) for piece in pieces)
        + chunk(b"IEND", b"")
    )


def random_samples(rng, height, width, colour):
    samples = rng.integers(0, 256, (height, width, COLOURS[colour]))
    if colour in (4, 6):
        samples[..., -1] = 255
    return samples


@pytest.mark.parametrize("colour", [0, 2, 4, 6])
def test_every_colour_and_filter(colour):
    image = random_samples(np.random.default_rng(colour), 9, 7, colour)
    content = encode(image, colour, [0, 1, 2, 3, 4, 3, 2, 1, 4], split=3)
    expected = image[..., : 1 if colour in (0, 4) else 3].transpose(2, 0, 1)
    assert np.array_equal(decode("x", content), expected)


def test_palette():
    palette = np.arange(30).reshape(10, 3)
    samples = np.random.default_rng(0).integers(0, 10, (4, 5, 1))
    file = encode(samples, 3, [0, 1, 2, 4], extra=chunk(b"PLTE", palette.astype("u1").tobytes()))
    assert np.array_equal(decode("x", file), palette[samples[..., 0]].transpose(2, 0, 1))


def saved(kind: str, pixels: np.ndarray, **options) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(out, kind, **options)
    return out.getvalue()


def test_jpeg_and_webp():
    smooth = np.add.outer(np.arange(40), 2 * np.arange(30)).astype(np.uint8)
    colour = np.stack([smooth, 255 - smooth, smooth // 2], axis=2)
    assert np.abs(decode("x", saved("JPEG", smooth, quality=95)) - 1.0 * smooth[None]).max() < 4
    lossless = decode("x", saved("WEBP", colour, lossless=True))
    assert np.array_equal(lossless, colour.transpose(2, 0, 1))


GREY = np.arange(12).reshape(3, 4, 1)
GOOD = encode(GREY, 0, [0, 1, 4])
CLEAR = np.stack([GREY[..., 0], np.full((3, 4), 254)], axis=2)
HUGE = struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 0, 0, 0, 0)
JPEG = saved("JPEG", np.random.default_rng(0).integers(0, 256, (40, 40)))
MOVES = io.BytesIO()
FRAMES = [Image.new("RGB", (4, 4), (shade, 0, 0)) for shade in (0, 255)]
FRAMES[0].save(MOVES, "WEBP", save_all=True, append_images=FRAMES[1:])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "damaged, or is not a PNG, JPEG or WebP image"),
        (b"hello", "damaged, or is not a PNG"),
        (saved("GIF", GREY[..., 0]), "is not a PNG, JPEG or WebP image"),
        (saved("TIFF", GREY[..., 0]), "is not a PNG, JPEG or WebP image"),
        (GOOD[:-20], "damaged"),
        (GOOD[:40], "damaged"),
        (GOOD[:8], "damaged"),
        (GOOD[:45] + bytes([GOOD[45] ^ 1]) + GOOD[46:], "damaged"),
        (JPEG[: len(JPEG) // 2], "damaged"),
        (MOVES.getvalue(), "is an animation"),
        (saved("PNG", np.zeros((2, 2))).replace(b"x", b"y"), "damaged"),
        (encode(np.repeat(GREY, 2, 2), 0, [0, 1, 4], depth=16), "more than 8 bits a sample"),
        (encode(np.repeat(GREY, 6, 2), 2, [0, 1, 4], depth=16), "more than 8 bits a sample"),
        (encode(CLEAR, 4, [0, 0, 0]), "transparent"),
        (encode(GREY, 0, [0, 0, 0], extra=chunk(b"tRNS", b"\0\7")), "transparent"),
        (GOOD[:8] + chunk(b"IHDR", HUGE) + GOOD[33:], "accepted: up to 268435456 bytes"),
    ],
)
def test_bad_files(content, said):
    with pytest.raises(RunError, match=said) as error:
        decode("cat/1.png", content)
    assert "cat/1.png" in str(error.value)


def test_a_large_image_is_refused_before_it_is_unpacked(monkeypatch):
    monkeypatch.setattr(limits, "IMAGE_BYTES", 11)
    monkeypatch.setattr("PIL.Image.Image.load", lambda _: pytest.fail("unpacked"))
    with pytest.raises(RunError, match=r"has 4x3 pixels .accepted: up to 11 bytes unpacked"):
        decode("x.png", GOOD)


@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_written_can_be_read(channels):
    image = np.random.default_rng(0).random((channels, 5, 7))
    np.testing.assert_array_equal(decode("it", to_png(image)), np.rint(image * 255))


# Resizing


def triangle_weights(old: int, new: int) -> np.ndarray:
    """[new, old]: Pillow's documented formula for bilinear resizing with antialiasing.

    Pixel i of the new image lies at (i + 1/2) s in the old one, s = old / new; old pixel j, at
    j + 1/2, counts max(0, 1 - |distance| / max(s, 1)), divided by the sum.
    """
    scale = old / new
    distance = (np.arange(new)[:, None] + 0.5) * scale - (np.arange(old) + 0.5)
    weights = np.clip(1 - np.abs(distance) / max(scale, 1), 0, None)
    return weights / weights.sum(1, keepdims=True)


def reference(pixels: np.ndarray, size: int) -> np.ndarray:
    """torchvision's Resize(size), CenterCrop(size) of an (h, w) image, without rounding."""
    height, width = pixels.shape
    short = min(height, width)
    # torchvision: the shorter side is `size`, the longer int(size * long / short).
    h, w = (size if side == short else int(size * side / short) for side in (height, width))
    both = triangle_weights(height, h) @ pixels @ triangle_weights(width, w).T
    top, left = round((h - size) / 2), round((w - size) / 2)
    return both[top : top + size, left : left + size]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 60), st.integers(1, 40))
def test_resizing_is_that_of_torchvision(seed, height, width, size):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width)).astype(np.uint8)
    made = np.asarray(resized(Image.fromarray(pixels), size)).astype(float)
    assert made.shape == (size, size)
    # Pillow rounds to whole numbers after each of the two passes.
    assert np.abs(made - reference(pixels, size)).max() <= 1 + 1e-4


def test_resizing_agrees_with_torchs_own():
    pixels = np.random.default_rng(1).integers(0, 256, (90, 60)).astype(np.uint8)
    whole = torch.from_numpy(pixels)[None, None].float()
    small = torch.nn.functional.interpolate(
        whole, (30, 20), mode="bilinear", antialias=True, align_corners=False
    )[0, 0, 5:25]
    made = np.asarray(resized(Image.fromarray(pixels), 20)).astype(float)
    assert np.abs(made - small.numpy()).max() < 1.01


def test_resizing_without_antialiasing_would_be_seen():
    stripes = np.tile([0, 255], 20)[None].repeat(40, 0).astype(np.uint8)
    made = np.asarray(resized(Image.fromarray(stripes), 10))
    assert abs(made.astype(int) - 127).max() <= 35
    plain = Image.fromarray(stripes).resize((10, 10), Image.Resampling.NEAREST)
    assert np.abs(np.asarray(plain) - reference(stripes, 10)).max() > 100
