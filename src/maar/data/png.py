"""Read PNG images with zlib and numpy alone, many at a time.

Enough of the format for data sets: 8 bits a sample, not interlaced, grey, RGB, palette, or with an
alpha channel that hides nothing. Anything else is refused by name.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from maar.core import limits
from maar.core.errors import RunError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # colour type -> samples a pixel
_PALETTE, _WITH_ALPHA = 3, (4, 6)
_OTHER_FORMATS = {
    b"\xff\xd8\xff": "JPEG",
    b"GIF8": "GIF",
    b"BM": "BMP",
    b"RIFF": "WebP",
    b"II*\x00": "TIFF",
    b"MM\x00*": "TIFF",
}


@dataclass(frozen=True, eq=False)
class _Filtered:
    """One image as the file stores it: each row as differences from its neighbours."""

    name: str
    colour: int
    kinds: np.ndarray  # (h,) filter type of each row
    rows: np.ndarray  # (h, w, samples)
    palette: np.ndarray | None  # (k, 3)


def decode(files: Sequence[tuple[str, bytes]]) -> np.ndarray:
    """Decode (name, content) pairs into uint8 (n, h, w, c): c = 1 if all are grey, else 3.

    The images must agree in size. The name is for error messages only.
    """
    images = [_unpack(name, content) for name, content in files]
    height, width = images[0].rows.shape[:2]
    for image in images:
        if image.rows.shape[:2] != (height, width):
            h, w = image.rows.shape[:2]
            raise RunError(
                f"{image.name} is {w}x{h} pixels, but {images[0].name} is {width}x{height}: "
                "all images of a data set must have one size"
            )
    channels = 1 if all(image.colour in (0, 4) for image in images) else 3
    out = np.empty((len(images), height, width, channels), np.uint8)
    # The filters are undone for all images of one kind together: the loop over pixels is then
    # paid once, not once an image.
    for samples in {image.rows.shape[2] for image in images}:
        places = [i for i, image in enumerate(images) if image.rows.shape[2] == samples]
        rows = np.stack([images[i].rows for i in places])
        pixels = unfilter(np.stack([images[i].kinds for i in places]), rows)
        for i, pixel in zip(places, pixels, strict=True):
            out[i] = _colours(images[i], pixel)
    return out


def unpacked_bytes(content: bytes) -> int:
    """How large the image says that it is; 0 where it does not say it."""
    width, height = (int.from_bytes(content[i : i + 4], "big") for i in (16, 20))
    return height * (1 + width * _SAMPLES.get(content[25] if len(content) > 25 else 0, 1))


def unfilter(kinds: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Undo the row filters: kinds (n, h), rows (n, h, w, samples) to pixels of the same shape."""
    pixels = rows.copy()
    # Rows that look only to the left (None, Sub) in every image need no other row: all at once.
    free = (kinds <= 1).all(axis=0)
    left = (kinds == 1) & free
    pixels[left] = np.cumsum(rows[left], axis=1, dtype=np.uint8)
    bound = np.flatnonzero(~free)
    for run in np.split(bound, np.flatnonzero(np.diff(bound) != 1) + 1):
        if run.size:
            span = slice(run[0], run[-1] + 1)
            above = pixels[:, run[0] - 1] if run[0] else np.zeros_like(pixels[:, 0])
            pixels[:, span] = _unfilter_run(kinds[:, span], rows[:, span], above)
    return pixels


def _unfilter_run(kinds: np.ndarray, rows: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Undo the filters of consecutive rows below the finished row `above`.

    A pixel depends on its left, upper and upper-left neighbours, so all pixels of one
    anti-diagonal (of all images) are done at once.
    """
    n, height, width, samples = rows.shape
    # A border to the left and above stands in for neighbours outside the run. In the flat view,
    # one step down and one to the left is then always a step of `width`.
    line = width + 1
    padded = np.zeros((n, height + 1, line, samples), np.int16)
    padded[:, 0, 1:] = above
    padded[:, 1:, 1:] = rows
    flat = padded.reshape(n, -1, samples)
    sub, up, average, paeth = ((kinds == kind).astype(np.int16)[..., None] for kind in (1, 2, 3, 4))
    for diagonal in range(height + width - 1):
        top, bottom = max(0, diagonal - width + 1), min(height - 1, diagonal)
        start = (top + 1) * line + diagonal - top + 1
        stop = start + (bottom - top) * width + 1
        a, b, c = (flat[:, start - k : stop - k : width] for k in (1, line, line + 1))
        span = slice(top, bottom + 1)
        guess = sub[:, span] * a + up[:, span] * b + average[:, span] * ((a + b) >> 1)
        guess += paeth[:, span] * _paeth(a, b, c)
        here = flat[:, start:stop:width]
        here += guess
        here &= 255
    return padded[:, 1:, 1:].astype(np.uint8)


def _paeth(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Whichever neighbour is nearest to a + b - c; ties go to a, then b (PNG, section 9.4)."""
    to_a, to_b = np.abs(b - c), np.abs(a - c)
    to_c = np.abs(a + b - 2 * c)
    return np.where((to_a <= to_b) & (to_a <= to_c), a, np.where(to_b <= to_c, b, c))


def _unpack(name: str, content: bytes) -> _Filtered:
    if not content.startswith(_SIGNATURE):
        for magic, kind in _OTHER_FORMATS.items():
            if content.startswith(magic):
                raise RunError(f"{name} is a {kind} image: convert it to PNG, or use npz:PATH")
        raise RunError(f"{name} is not a PNG image")
    try:
        listed = list(_chunks(content))
        chunks = dict(listed)
        header = chunks[b"IHDR"]
        data = b"".join(body for kind, body in listed if kind == b"IDAT")
        width, height = (int.from_bytes(header[i : i + 4], "big") for i in (0, 4))
        depth, colour, _, _, interlaced = header[8:13]
        if depth != 8 or interlaced or colour not in _SAMPLES:
            what = "is interlaced" if interlaced else f"has {depth} bits a sample"
            raise RunError(f"{name} {what}: only 8-bit PNGs without interlacing are read")
        samples = _SAMPLES[colour]
        size = height * (1 + width * samples)
        if not (width and height and size <= limits.PNG_BYTES):
            raise RunError(
                f"{name} has an unusable size, {width}x{height} pixels "
                f"(accepted: up to {limits.PNG_BYTES} bytes)"
            )
        raw = zlib.decompressobj().decompress(data, size)
        lines = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * samples)
        if lines[:, 0].max() > 4:
            raise ValueError
        palette = None
        if colour == _PALETTE:
            palette = np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)
    except (zlib.error, KeyError, ValueError, IndexError):
        raise RunError(f"{name} is damaged: not a whole PNG image") from None
    if b"tRNS" in chunks and (colour != _PALETTE or min(chunks[b"tRNS"], default=255) < 255):
        raise _transparent(name)
    return _Filtered(name, colour, lines[:, 0], lines[:, 1:].reshape(height, width, -1), palette)


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    kind = b""
    while kind != b"IEND":
        length = int.from_bytes(content[at : at + 4], "big")
        kind, body = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        crc = content[at + 8 + length : at + 12 + length]
        if zlib.crc32(body, zlib.crc32(kind)).to_bytes(4, "big") != crc:
            raise ValueError
        yield kind, body
        at += 12 + length


def _colours(image: _Filtered, pixels: np.ndarray) -> np.ndarray:
    """From samples as stored to grey (h, w, 1) or RGB (h, w, 3)."""
    if image.palette is not None:
        if pixels.max() >= len(image.palette):
            raise RunError(f"{image.name} is damaged: a colour is not in its palette")
        return image.palette[pixels[..., 0]]
    if image.colour in _WITH_ALPHA:
        if pixels[..., -1].min() < 255:
            raise _transparent(image.name)
        return pixels[..., :-1]
    return pixels


def _transparent(name: str) -> RunError:
    return RunError(f"{name} has transparent pixels, whose colour is undefined: flatten it first")
