"""Pictures: counterexamples, and the images that are proved for the smallest radius."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import zip_longest

import numpy as np

from maar.core import limits
from maar.core.errors import MaarError
from maar.core.unpacking import read_npz
from maar.data import DATASETS, info
from maar.data.images import data_uri
from maar.records.reading import Object, count, number
from maar.records.stores import MODEL
from maar.reporting.collect import Collected, Run, Store
from maar.reporting.model import Gallery, GalleryItem, Picture
from maar.reporting.systems import eps_text, evidence_of

SHOWN = 48
"""Images of a gallery; those of many runs share them."""
OF_ONE = 12
"""Images of one certification."""
LARGEST = 1 << 20
"""Numbers in an image: more is none that a page can show."""


def counterexamples(found: Collected, problems: list[str]) -> Gallery | None:
    """The images whose classes are changed most clearly, of every certification."""
    stores = [(run, store) for run in found.runs for store in run.certifications]
    chosen = _choose(
        stores,
        lambda line: line.get("verdict") == "falsified",
        lambda line: number(line, "margin") or 0.0,
    )
    items = [item for of in chosen if (item := _counterexample(*of, problems))]
    if not items:
        return None
    return Gallery(
        "counterexamples",
        "Counterexamples",
        tuple(items),
        "The largest margins by which another class is ahead. The difference is enlarged ten times:"
        " in grey images red is brighter and blue darker; in colour images grey is no change.",
    )


def least_robust(found: Collected, problems: list[str]) -> Gallery | None:
    """The images with the smallest certified radius, of every search of radii."""
    stores = [(run, store) for run in found.runs for store in run.radii]
    chosen = _choose(
        stores,
        # What was never broken has no picture in the store, and is not among the least robust.
        lambda line: 0 < (number(line, "lower") or 0.0) <= (number(line, "upper") or -1.0) <= 1,
        lambda line: number(line, "lower") or 0.0,
    )
    items = [item for of in chosen if (item := _with_radius(*of, problems))]
    if not items:
        return None
    return Gallery(
        "least-robust",
        "Least robust certified images",
        tuple(items),
        "The smallest radii up to which an image is proved; at the upper end it is broken by the "
        "image beside it.",
    )


def _choose(
    stores: list[tuple[Run, Store]],
    is_wanted: Callable[[Object], bool],
    order: Callable[[Object], float],
) -> list[tuple[Run, Store, Object]]:
    wanted = []
    # The final weights are of more interest than those of stages.
    for run, store in sorted(stores, key=lambda pair: pair[1].weights != MODEL):
        lines = sorted(filter(is_wanted, store.lines.values()), key=order)
        if lines:
            wanted.append((run, store, lines))
    # The first of every run, then the second: whoever looks at a few has seen all runs.
    turns = zip_longest(
        *([(run, store, x) for x in lines[:OF_ONE]] for run, store, lines in wanted)
    )
    return [one for turn in turns for one in turn if one is not None][:SHOWN]


def _counterexample(
    run: Run, store: Store, line: Object, problems: list[str]
) -> GalleryItem | None:
    pictures = _pictures(store, line["index"], problems)
    if pictures is None:
        return None
    facts = {
        "answer": class_name(store, line.get("target")),
        "margin": _signed(number(line, "margin")),
        "eps": eps_text(store.eps),
        "found by": str(line.get("by") or ""),
    }
    return _item(run, store, line, pictures, facts)


def _with_radius(run: Run, store: Store, line: Object, problems: list[str]) -> GalleryItem | None:
    pictures = _pictures(store, line["index"], problems)
    if pictures is None:
        return None
    lower, upper = number(line, "lower") or 0.0, number(line, "upper") or 0.0
    facts = {
        # Towards the safe side, each.
        "proved up to": f"{math.floor(lower * 1e4) / 1e4:.4f} by {line.get('lower_by')}",
        "broken at": f"{math.ceil(upper * 1e4) / 1e4:.4f} by {line.get('upper_by')}",
        "answer there": class_name(store, line.get("target")),
        "margin": _signed(number(line, "margin")),
    }
    return _item(run, store, line, pictures, facts)


def _item(
    run: Run, store: Store, line: Object, pictures: tuple[Picture, ...], facts: dict[str, str]
) -> GalleryItem:
    if store.weights != MODEL:
        facts["weights"] = store.weights
    return GalleryItem(
        run.name,
        line["index"],
        class_name(store, count(line, "label")),
        pictures,
        tuple((name, text) for name, text in facts.items() if text),
        evidence_of(store, run),
    )


def _pictures(store: Store, index: int, problems: list[str]) -> tuple[Picture, ...] | None:
    """Clean, adversarial and ten times their difference, from what the store keeps."""
    path = store.counterexample(index)
    try:
        # Never a pickle: a store may come from a stranger.
        arrays = read_npz(path, limits.COUNTEREXAMPLE_BYTES)
        x, x_adv = (_image(arrays[name]) for name in ("x", "x_adv"))
        if x.shape != x_adv.shape:
            raise ValueError("its two images differ in size")
    except FileNotFoundError:
        problems.append(f"{path} is gone: the counterexample cannot be shown")
        return None
    except (OSError, ValueError, KeyError, MaarError) as error:
        problems.append(f"{path} cannot be shown: {error}")
        return None
    images = {"clean": x, "adversarial": x_adv, "difference x10": difference(x, x_adv)}
    height, width = x.shape[1:]
    return tuple(Picture(name, data_uri(image), width, height) for name, image in images.items())


def _image(array: np.ndarray) -> np.ndarray:
    is_image = array.ndim == 3 and array.shape[0] in (1, 3) and 0 < array.size <= LARGEST
    if not is_image or array.dtype.kind != "f" or not np.isfinite(array).all():
        raise ValueError(f"{array.dtype} of shape {array.shape} is no image of 1 or 3 channels")
    return array


def difference(x: np.ndarray, x_adv: np.ndarray, factor: float = 10.0) -> np.ndarray:
    """The change, enlarged. Grey images: from white to red and blue; colours: around grey."""
    change = np.clip(factor * (x_adv - x), -1, 1)
    if len(x) == 3:
        return 0.5 + change / 2
    up, down = np.maximum(change[0], 0), np.maximum(-change[0], 0)
    return np.stack([1 - down, 1 - up - down, 1 - up])


def class_name(store: Store, label: object) -> str:
    """A class as the manifest calls it, or the data set if it is one of maar's; else its number."""
    if not isinstance(label, int) or isinstance(label, bool):
        return ""
    known = info(store.data).classes if store.data in DATASETS else ()
    classes = store.classes or known
    name = classes[label] if 0 <= label < len(classes) else ""
    return str(label) if name in ("", str(label)) else f"{name} ({label})"


def _signed(margin: float | None) -> str:
    return "" if margin is None else f"{margin:+.4g}"
