"""Several radii of one network side by side; the larger ball holds the smaller one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from maar.core.errors import RunError
from maar.records.verdicts import BROKEN, Record


def require_agreement(stores: Mapping[float, Iterable[Record]]) -> None:
    """Raise if an image is proved in a ball in which, or in a smaller one, it is broken.

    `stores`: eps -> the lines of its store, all of the same network and images.
    """
    proved: dict[int, float] = {}
    for eps, records in stores.items():
        for record in records:
            if record["verdict"] == "verified":
                proved[record["index"]] = max(eps, proved.get(record["index"], eps))
    for eps, records in stores.items():
        for record in records:
            index = record["index"]
            if record["verdict"] in BROKEN and eps <= proved.get(index, -1.0):
                raise RunError(
                    f"image {index} is verified at eps {proved[index]:g} and "
                    f"{record['verdict']} at eps {eps:g}: one of them is wrong, please report it"
                )
