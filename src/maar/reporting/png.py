"""Images as PNG, and as data URIs, with zlib and numpy alone."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR = {1: 0, 3: 2}  # channels -> colour type: grey, RGB


def encode(image: np.ndarray) -> bytes:
    """An image (channels, height, width) in [0, 1], 1 or 3 channels; what lies outside is cut."""
    channels, height, width = image.shape
    if channels not in _COLOUR:
        raise ValueError(f"{channels} channels (accepted: 1 or 3)")
    pixels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
    # Each row begins with its filter: 0, none.
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, content) for kind, content in parts)


def data_uri(image: np.ndarray) -> str:
    """The same, to be put into a page."""
    return f"data:image/png;base64,{base64.b64encode(encode(image)).decode()}"


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
