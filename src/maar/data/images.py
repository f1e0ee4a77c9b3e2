"""Read PNG, JPEG and WebP images, resize them as torchvision does, and write PNGs.

Files come from strangers: their size is checked before a pixel is unpacked, and the readers of all
other formats stay switched off.
"""

from __future__ import annotations

import base64
import io
import warnings
from typing import TYPE_CHECKING

import numpy as np

from maar.core import limits
from maar.core.errors import RunError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
"""Ending of a file -> name of the format."""
ACCEPTED = "PNG, JPEG or WebP"
# Modes with 8 bits a sample or fewer; the others would lose digits without a word.
_MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr")
_GREY = ("1", "L", "LA", "La")


def decode(name: str, content: bytes, size: int | None = None) -> np.ndarray:
    """Return an image as uint8 (c, h, w), c = 1 if it is grey, else 3.

    With `size`, its shorter side is resized to so many pixels and the centre is cut out, as
    torchvision's `Resize(size)` and `CenterCrop(size)` do. `name` is for messages.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        image = _plain(name, _opened(name, content))
    except RunError:
        raise
    except Image.DecompressionBombError:
        raise _too_large(name, "more than 178 million pixels") from None
    except UnidentifiedImageError:
        raise RunError(f"{name} is damaged, or is not a {ACCEPTED} image") from None
    except MemoryError:
        raise RunError(f"{name}: no memory for its pixels") from None
    except Exception:  # Pillow raises a dozen kinds, SyntaxError and AssertionError too
        raise RunError(f"{name} is damaged: not a whole image") from None
    if size is not None:
        image = resized(image, size)
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def resized(image: Image, size: int) -> Image:
    """Return the central square of `size` pixels after the shorter side was made as long.

    Bilinear with antialiasing: each new pixel is the mean of the old ones under a triangle as wide
    as two new pixels.
    """
    from PIL.Image import Resampling

    short = min(image.size)
    if short != size:
        # torchvision's rounding: the longer side is cut down to whole pixels.
        width, height = (int(size * side / short) for side in image.size)
        image = image.resize((max(width, size), max(height, size)), Resampling.BILINEAR)
    left, top = (round((side - size) / 2) for side in image.size)
    return image.crop((left, top, left + size, top + size))


def encode(image: np.ndarray) -> bytes:
    """Return an image (1 or 3, h, w) in [0, 1] as a PNG; values outside are cut."""
    from PIL import Image

    if len(image) not in (1, 3):
        raise ValueError(f"{len(image)} channels (accepted: 1 or 3)")
    pixels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    picture = Image.fromarray(pixels[0] if len(image) == 1 else pixels.transpose(1, 2, 0))
    out = io.BytesIO()
    picture.save(out, "PNG", optimize=True)
    return out.getvalue()


def data_uri(image: np.ndarray) -> str:
    """Return the same to be put into a page."""
    return f"data:image/png;base64,{base64.b64encode(encode(image)).decode()}"


def _opened(name: str, content: bytes) -> Image:
    """Open it, check its kind and size, and unpack its pixels."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of large images: the limit below is the one
        image = Image.open(io.BytesIO(content), formats=tuple(set(FORMATS.values())))
    width, height = image.size
    if width * height * len(image.getbands()) > limits.IMAGE_BYTES:
        raise _too_large(name, f"{width}x{height} pixels")
    _check_kind(name, content, image)
    if image.format == "PNG":
        # The checksums of all chunks, of which loading skips some.
        Image.open(io.BytesIO(content), formats=("PNG",)).verify()
    image.load()
    return image


def _check_kind(name: str, content: bytes, image: Image) -> None:
    # Pillow cuts 16-bit colours down to 8 bits; a PNG's header has its depth in byte 24.
    deep = image.format == "PNG" and content[24] == 16
    if deep or image.mode not in _MODES:
        raise RunError(f"{name} has more than 8 bits a sample: convert it to 8 bits first")
    if getattr(image, "n_frames", 1) > 1:
        raise RunError(f"{name} is an animation: save one picture of it")


def _plain(name: str, image: Image) -> Image:
    """Return it as grey or RGB; transparent pixels are refused."""
    if image.has_transparency_data:
        image = image.convert("LA" if image.mode in _GREY else "RGBA")
        if image.getchannel("A").getextrema() != (255, 255):
            raise RunError(f"{name} has transparent pixels, whose colour is undefined: flatten it")
    return image.convert("L" if image.mode in _GREY else "RGB")


def _too_large(name: str, what: str) -> RunError:
    return RunError(f"{name} has {what} (accepted: up to {limits.IMAGE_BYTES} bytes unpacked)")
