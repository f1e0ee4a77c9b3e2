"""Read a certificate: an .npz file of plain arrays, never more than it may be.

The archive is read by the zip directory's sizes, each array by its header, and nothing is unpacked
that is larger than allowed, compressed in an unknown way, pickled, named twice or not expected.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import zipfile
import zlib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from maar_check.arithmetic import Array
from maar_check.refusal import Refused, require

FORMAT = 1
LARGEST_FILE, LARGEST_CONTENT, MOST_ARRAYS = 1 << 26, 1 << 29, 4096
KINDS = ("verified", "falsified", "misclassified")
LEMMAS = ("interval", "crown", "slopes")
FIELDS = {"format", "kind", "network", "index", "label", "eps", "low", "high", "lemmas"}
TYPES = {"<f4", "|u1", "<u2", "<i4"}


@dataclass
class Certificate:
    """What one file claims, and the numbers that are to show it."""

    kind: str
    network: str
    index: int
    label: int
    eps: Fraction
    low: Fraction
    high: Fraction
    lemmas: list[str]
    image: Array
    arrays: dict[str, Array]
    """What the claim rests on, by name; every one must be used."""


def read_bytes(path: Path, most: int) -> bytes:
    """The content of an ordinary file of at most so many bytes."""
    try:
        require(path.is_file(), f"{path.name} is missing")
        with open(path, "rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise Refused(f"{path.name} cannot be read: {error.strerror}") from None
    require(len(content) <= most, f"{path.name} has more than {most} bytes")
    return content


def strict_json(content: bytes) -> Any:
    """JSON without NaN and without a name that is there twice."""

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        require(len(made) == len(pairs), "a name is there twice")
        return made

    def refuse(word: str) -> None:
        raise Refused(f"{word} is no number")

    try:
        return json.loads(content.decode(), object_pairs_hook=table, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Refused(f"damaged JSON: {str(error)[:80]}") from None


def read_certificate(content: bytes) -> Certificate:
    """Parse the bytes of a certificate."""
    arrays = read_arrays(content)
    about = arrays.pop("about", None)
    require(about is not None and about.dtype == np.uint8, "there is no array 'about'")
    assert about is not None
    fields = strict_json(about.tobytes())
    require(isinstance(fields, dict) and fields.keys() == FIELDS, "'about' has other fields")
    require(fields["format"] == FORMAT, f"format {fields['format']} (accepted: {FORMAT})")
    require(fields["kind"] in KINDS, f"kind {fields['kind']!r} (accepted: {', '.join(KINDS)})")
    for name in ("index", "label"):
        require(type(fields[name]) is int and fields[name] >= 0, f"{name} is {fields[name]!r}")
    lemmas = fields["lemmas"]
    is_list = isinstance(lemmas, list) and all(lemma in LEMMAS for lemma in lemmas)
    require(is_list, f"lemmas are {lemmas!r} (accepted: a list of {', '.join(LEMMAS)})")
    require(isinstance(fields["network"], str), "the network's hash is no text")
    eps, low, high = (number(fields[name], name) for name in ("eps", "low", "high"))
    require(eps >= 0 and low <= high, f"eps {eps} within [{low}, {high}] is no ball")
    image = arrays.pop("image", None)
    require(image is not None and image.dtype == np.float32, "there is no image of type float32")
    assert image is not None
    require(np.isfinite(image).all(), "the image is not finite")
    return Certificate(fields["kind"], fields["network"], fields["index"], fields["label"],
                       eps, low, high, lemmas, image, arrays)  # fmt: skip


def number(text: Any, name: str) -> Fraction:
    """A rational number written as a decimal or a quotient."""
    pattern = r"-?\d{1,30}(\.\d{1,60})?(e-?\d{1,2})?(/\d{1,30})?"
    fits = isinstance(text, str) and re.fullmatch(pattern, text, re.ASCII)
    require(fits, f"{name} is {text!r} (accepted: such as 0.1 or 2/255)")
    top, _, below = text.partition("/")
    require(not below or int(below) > 0, f"{name} is {text!r}")
    return Fraction(top) / int(below or 1)


def read_arrays(content: bytes) -> dict[str, Array]:
    """Every array of an .npz file, by name."""
    arrays: dict[str, Array] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            require(len(members) <= MOST_ARRAYS, f"there are {len(members)} arrays")
            total = sum(member.file_size for member in members)
            require(total <= LARGEST_CONTENT, f"it would unpack to {total} bytes")
            for member in members:
                name = member.filename.removesuffix(".npy")
                require(name != member.filename and name not in arrays, f"array {name!r}: twice")
                plain = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
                require(plain and not member.flag_bits & 1, f"array {name!r} is packed otherwise")
                with archive.open(member) as file:
                    data = file.read(member.file_size + 1)
                require(len(data) == member.file_size, f"array {name!r} is not of its size")
                arrays[name] = _array(name, data)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError,
            ValueError, OverflowError) as error:  # fmt: skip
        raise Refused(f"damaged archive: {str(error)[:80]}") from None
    return arrays


def _array(name: str, data: bytes) -> Array:
    """One .npy file: its header says type and shape, its size must be just that."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    require(version == (1, 0), f"array {name!r} has .npy version {version}")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    require(dtype.str in TYPES and not is_fortran, f"array {name!r} is of type {dtype}")
    require(all(side >= 0 for side in shape), f"array {name!r} has shape {shape}")
    size = math.prod(shape) * dtype.itemsize
    require(len(data) - file.tell() == size, f"array {name!r} is not of its shape")
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape)


def sha256(content: bytes) -> str:
    """The hash that manifests and certificates name."""
    return hashlib.sha256(content).hexdigest()
