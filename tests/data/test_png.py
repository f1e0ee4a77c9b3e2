"""The PNG reader against an encoder that uses every filter and colour type."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maar.core.errors import RunError
from maar.data import png

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


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from([0, 2, 4, 6]),
    st.lists(st.lists(st.integers(0, 4), min_size=9, max_size=9), min_size=1, max_size=4),
)
def test_every_filter_and_colour(seed, height, width, colour, kinds):
    rng = np.random.default_rng(seed)
    images = [random_samples(rng, height, width, colour) for _ in kinds]
    files = [
        (f"{i}.png", encode(image, colour, kind[:height], split=i + 1))
        for i, (image, kind) in enumerate(zip(images, kinds, strict=True))
    ]
    expected = np.stack(images)[..., : 1 if colour in (0, 4) else 3]
    assert np.array_equal(png.decode(files), expected)


@pytest.mark.parametrize("kind", range(5))
def test_one_filter_on_a_tall_image(kind):
    rng = np.random.default_rng(kind)
    image = random_samples(rng, 200, 7, 2)
    # Rows that look only to the left in between: runs of dependent rows start anew.
    kinds = [0 if row % 17 == 3 else kind for row in range(200)]
    assert np.array_equal(png.decode([("x", encode(image, 2, kinds))])[0], image)


def test_palette():
    palette = np.arange(30).reshape(10, 3)
    samples = np.random.default_rng(0).integers(0, 10, (4, 5, 1))
    file = encode(samples, 3, [0, 1, 2, 4], extra=chunk(b"PLTE", palette.astype("u1").tobytes()))
    assert np.array_equal(png.decode([("x", file)])[0], palette[samples[..., 0]])


def test_grey_and_colour_together_become_colour():
    grey, colour = np.full((2, 2, 1), 7), np.full((2, 2, 3), 9)
    both = [("a", encode(grey, 0, [0, 0])), ("b", encode(colour, 2, [0, 0]))]
    assert png.decode(both)[..., 0].tolist() == [[[7, 7], [7, 7]], [[9, 9], [9, 9]]]
    assert png.decode(both).shape == (2, 2, 2, 3)


GREY = np.arange(12).reshape(3, 4, 1)
GOOD = encode(GREY, 0, [0, 1, 4])
CLEAR = np.stack([GREY[..., 0], np.full((3, 4), 254)], axis=2)
HUGE = struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a PNG"),
        (b"hello", "not a PNG"),
        (b"\xff\xd8\xff\xe0", "is a JPEG image: convert it to PNG, or use npz:PATH"),
        (b"GIF89a", "is a GIF image"),
        (GOOD[:-20], "damaged"),
        (GOOD[:40], "damaged"),
        (GOOD[:8], "damaged"),
        (GOOD[:45] + bytes([GOOD[45] ^ 1]) + GOOD[46:], "damaged"),
        (encode(GREY, 0, [0, 1, 4], depth=16), "16 bits a sample: only 8-bit"),
        (encode(GREY, 0, [0, 1, 4], interlaced=1), "is interlaced"),
        (encode(GREY, 3, [0, 0, 0]), "damaged"),  # no palette
        (encode(GREY, 3, [0, 0, 0], extra=chunk(b"PLTE", bytes(9))), "not in its palette"),
        (encode(CLEAR, 4, [0, 0, 0]), "transparent"),
        (encode(GREY, 0, [0, 0, 0], extra=chunk(b"tRNS", b"\0\7")), "transparent"),
        (GOOD[:8] + chunk(b"IHDR", HUGE) + GOOD[33:], "unusable size, 2147483647x2147483647"),
    ],
)
def test_bad_files(content, said):
    with pytest.raises(RunError, match=said) as error:
        png.decode([("cat/1.png", content)])
    assert "cat/1.png" in str(error.value)


def test_an_unknown_filter_is_damage():
    raw = zlib.compress(bytes([5, 1, 2, 3, 4]))
    header = struct.pack(">IIBBBBB", 4, 1, 8, 0, 0, 0, 0)
    file = GOOD[:8] + chunk(b"IHDR", header) + chunk(b"IDAT", raw) + chunk(b"IEND", b"")
    with pytest.raises(RunError, match="damaged"):
        png.decode([("x", file)])


def test_sizes_must_agree():
    other = encode(GREY[:2], 0, [0, 0])
    with pytest.raises(RunError, match=r"b\.png is 4x2 pixels, but a\.png is 4x3"):
        png.decode([("a.png", GOOD), ("b.png", other)])
