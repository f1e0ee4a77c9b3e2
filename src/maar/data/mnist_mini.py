"""The first 500 train and 100 test images of each digit of MNIST, inside the package.

For demonstrations and tests without a network. Made by `scripts/make_mnist_mini.py`; mean and
std are those of MNIST, so that a network fits both.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from maar.data.address import Address
from maar.data.dataset import Arrays
from maar.data.mnist import MNIST
from maar.data.npz import Npz
from maar.data.published import File, Published

_FILE = "mnist_mini.npz"


def decode(folder: Path) -> Arrays:
    """Read the embedded file."""
    return Npz(Address("npz", folder / _FILE)).arrays()


MNIST_MINI = Published(
    info=replace(MNIST.info, name="mnist_mini", n_train=5_000, n_test=1_000),
    files=(
        File(_FILE, 994_210, "a04d71d44381d77f5e2c07899ed4ed91e28d5e32b59030359dc058af058083b7"),
    ),
    sha256="cea0d803104e64e565dfbb2c3354b7cd7fdc417067b92a3abd30cab3b9529e44",
    decode=decode,
    packaged=Path(__file__).parent / "embedded",
)
