"""Make src/maar/data/embedded/mnist_mini.npz from MNIST: `python scripts/make_mnist_mini.py`.

The first images of each digit, in MNIST's own order: no random choice, so anyone gets the same.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from maar import data
from maar.core.files import atomic_path, sha256_file
from maar.data.mnist_mini import MNIST_MINI

PER_CLASS = {"train": 500, "test": 100}


def first_of_each(y: np.ndarray, count: int) -> np.ndarray:
    """Sorted indices of the first `count` images of each label."""
    return np.sort(np.concatenate([np.flatnonzero(y == label)[:count] for label in range(10)]))


def main() -> None:
    """Write the file and print what belongs into maar/data/mnist_mini.py."""
    data.fetch("mnist")
    mnist = data.source("mnist").arrays()
    parts = {}
    for split, count in PER_CLASS.items():
        x, y = getattr(mnist, f"x_{split}"), getattr(mnist, f"y_{split}")
        chosen = first_of_each(y, count)
        parts[f"x_{split}"], parts[f"y_{split}"] = x[chosen], y[chosen].astype(np.uint8)
    path = MNIST_MINI.folder / MNIST_MINI.files[0].name
    with atomic_path(Path(path)) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **parts)
    print(path, path.stat().st_size, sha256_file(path))
    print("arrays", MNIST_MINI.decode(MNIST_MINI.folder).sha256)


if __name__ == "__main__":
    main()
