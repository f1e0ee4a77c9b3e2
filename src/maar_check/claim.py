"""Decide whether one certificate's claim holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from maar_check.arithmetic import Array, Numbers, Rationals
from maar_check.bounds import TOGETHER, Boxes, Choice, Choices
from maar_check.certificate import Certificate
from maar_check.layers import Relu
from maar_check.network import Network
from maar_check.refusal import require
from maar_check.rows import Rows, unit_rows

WINDOWS = 1024  # rows of a convolution that are bounded at once
MOST_LEAVES = 1 << 22


@dataclass
class Outcome:
    """A claim that holds."""

    certificate: Certificate
    margin: float
    """The least lower bound of z_y - z_k; of a counterexample the largest z_k - z_y."""
    leaves: int = 1
    lost: float = field(default=0.0)
    """What a forward pass in float32 can take from a margin."""


def check(net: Network, claimed: Certificate, num: Numbers, deployed: bool = False) -> Outcome:
    """Return what holds; raise `Refused` with the reason if the claim does not.

    `deployed`: the claim is about the network as it is computed in float32.
    """
    require(claimed.network == net.sha256, "it is about another network")
    require(claimed.image.shape == net.shape, f"the image has shape {claimed.image.shape}")
    require(claimed.label < net.classes, f"label {claimed.label} of {net.classes} classes")
    low, high = ball(num, claimed)
    if claimed.kind == "verified":
        return _Verified(net, claimed, num, deployed).outcome(low, high)
    point = claimed.image
    if claimed.kind == "falsified":
        require(set(claimed.arrays) == {"point"}, "a counterexample has one array, 'point'")
        point = claimed.arrays["point"]
        require(
            point.dtype == np.float32 and point.shape == net.shape, "the point has no such form"
        )
        require(_inside(claimed, point), "the counterexample lies outside the ball")
    else:
        require(not claimed.arrays, "a misclassified image has no further arrays")
    require(not claimed.lemmas, "a counterexample needs no lemmas")
    return _broken(net, claimed, num, point, deployed)


def ball(num: Numbers, claimed: Certificate) -> tuple[Array, Array]:
    """The box of all points within eps of the image and within the range, rounded outwards [7]."""
    image, eps = claimed.image.astype(np.float64), claimed.eps
    inside = all(claimed.low <= Fraction(float(end)) <= claimed.high
                 for end in (image.min(), image.max()))  # fmt: skip
    require(inside, f"the image leaves [{claimed.low}, {claimed.high}]")
    exact = Rationals.array(image)
    if num.exact:
        scale = 2**100
        floor, top = (np.array(end, object) for end in (claimed.low, claimed.high))
        lo, hi = np.maximum(exact - eps, floor), np.minimum(exact + eps, top)
        ends = [[Fraction(sign * (sign * each * scale // 1), scale) for each in side.ravel()]
                for side, sign in ((lo, 1), (hi, -1))]  # fmt: skip
        lo, hi = (np.array([*side, None], object)[:-1].reshape(image.shape) for side in ends)
        return lo, hi
    wide = np.nextafter(float(eps), np.inf)
    low, high = np.nextafter(float(claimed.low), -np.inf), np.nextafter(float(claimed.high), np.inf)
    lo, hi = np.nextafter(image - wide, -np.inf), np.nextafter(image + wide, np.inf)
    if Fraction(float(claimed.low)) == claimed.low:
        low = float(claimed.low)
    if Fraction(float(claimed.high)) == claimed.high:
        high = float(claimed.high)
    return np.maximum(lo, low), np.minimum(hi, high)


def _inside(claimed: Certificate, point: Array) -> bool:
    """Whether a point is one of the ball, in rational numbers."""
    if not np.isfinite(point).all():
        return False
    image, x = (Rationals.array(each).ravel() for each in (claimed.image, point))
    return all(abs(a - b) <= claimed.eps and claimed.low <= b <= claimed.high
               for a, b in zip(image, x, strict=True))  # fmt: skip


def _broken(
    net: Network, claimed: Certificate, num: Numbers, point: Array, deployed: bool
) -> Outcome:
    """Another class is ahead at a point: its box is the point itself."""
    boxes = Boxes(net, num)
    x = num.array(point)
    boxes.enter(x, x)
    for _ in net.layers:
        boxes.advance()
    others = [k for k in range(net.classes) if k != claimed.label]
    ahead = -boxes.lower(len(net.layers), _margins(num, net, claimed.label, others, -1), {}, True)
    margin = -float(ahead.min())
    lost = _lost(boxes, claimed.label, others) if deployed else np.zeros(len(others))
    k = int(np.argmin(ahead))
    why = "no class is certainly ahead of the label at the point"
    require(margin > float(lost[k]), why + (" in float32" if deployed and margin > 0 else ""))
    return Outcome(claimed, margin, lost=float(lost[k]))


def _margins(num: Numbers, net: Network, label: int, classes: list[int], sign: int = 1) -> Rows:
    """The rows z_y - z_k, or their negatives."""
    A = np.zeros((len(classes), net.classes))
    A[:, label] = sign
    A[np.arange(len(classes)), classes] = -sign
    return Rows(num.array(A))


def _lost(boxes: Boxes, label: int, classes: list[int]) -> Array:
    """What float32 can take from z_y - z_k, for each class k."""
    lost = boxes.losses()
    return (lost[label] + lost[classes]) * (1 + 2.0**-20)


@dataclass
class _Verified:
    """A claim that no point of the ball is classified otherwise."""

    net: Network
    claimed: Certificate
    num: Numbers
    deployed: bool

    def outcome(self, low: Array, high: Array) -> Outcome:
        """Prove every lemma in order, then every class."""
        net, claimed = self.net, self.claimed
        count = len(net.relus)
        require(len(claimed.lemmas) == count, f"there are not {count} lemmas, one for each ReLU")
        self.boxes, self.used = Boxes(net, self.num), set[str]()
        self.columns = {k: self._indices(f"columns.{k}", net.relus[k])
                        for k in range(count) if f"columns.{k}" in claimed.arrays}  # fmt: skip
        self.boxes.enter(low, high)
        for i, layer in enumerate(net.layers):
            if isinstance(layer, Relu):
                k = net.relus.index(i)
                self._lemma(k, claimed.lemmas[k], layer.sources[0])
            self.boxes.advance()
        for k, i in enumerate(net.relus):
            if claimed.lemmas[k] == "slopes":
                self._tighten(k, net.layers[i].sources[0])
        least, leaves = self._classes()
        unused = sorted(claimed.arrays.keys() - self.used)
        require(not unused, f"array {unused[0] if unused else ''!r} has no meaning here")
        return Outcome(claimed, least, leaves, self.most_lost)

    def _take(self, name: str, dtypes: tuple[str, ...], shape: tuple[int | None, ...]) -> Array:
        """An array of the certificate, of such types and such a shape."""
        require(name in self.claimed.arrays, f"array {name!r} is missing")
        array = self.claimed.arrays[name]
        self.used.add(name)
        fits = array.ndim == len(shape) and all(
            want is None or side == want for side, want in zip(array.shape, shape, strict=True)
        )
        require(fits and array.dtype.str in dtypes,
                f"array {name!r} is {array.dtype} of shape {array.shape}")  # fmt: skip
        return array

    def _indices(self, name: str, relu: int) -> Array:
        """Different neurons of a ReLU layer."""
        index = self._take(name, ("<i4",), (None,)).astype(np.int64)
        fits = ((index >= 0) & (index < np.prod(self.net.layers[relu].shape))).all()
        require(fits and len(np.unique(index)) == len(index), f"array {name!r} names no neurons")
        return index

    def _slopes(self, prefix: str, count: int | None, before: int) -> dict[int, Array]:
        """Slopes over the columns of the first ReLU layers: k of 255, or of 65535."""
        made: dict[int, Array] = {}
        for k, column in self.columns.items():
            if k < before and f"{prefix}.{k}" in self.claimed.arrays:
                array = self._take(f"{prefix}.{k}", ("|u1", "<u2"), (count, len(column)))
                made[k] = self.num.array(array / float(np.iinfo(array.dtype).max))
        return made

    def _lemma(self, k: int, how: str, value: int) -> None:
        """Bounds of one ReLU's inputs."""
        boxes, shape = self.boxes, self.net.shape_of(value)
        if how == "interval":
            return
        for flat in (True, False):
            self._bound(value, shape, boxes.unstable(value), {}, {}, flat=flat)

    def _tighten(self, k: int, value: int) -> None:
        """Better bounds of one ReLU's inputs, with slopes that are given for each neuron."""
        index = self._indices(f"lemma.{k}", self.net.relus[k])
        sides = [self._slopes(f"lemma.{k}.{side}", len(index), k) for side in ("lower", "upper")]
        self._bound(value, self.net.shape_of(value), index, sides[0], sides[1])

    def _bound(
        self, value: int, shape: tuple[int, ...], index: Array,
        lower: dict[int, Array], upper: dict[int, Array], flat: bool = False,
    ) -> None:  # fmt: skip
        is_full = len(shape) != 3 or lower or upper
        widest = max(int(np.prod(self.net.shape_of(v))) for v in range(value + 1))
        step = max(1, TOGETHER // widest) if is_full else WINDOWS
        ends: list[list[Array]] = [[], []]
        for start in range(0, len(index), step):
            here = slice(start, start + step)
            for side, sign, slopes in ((0, 1, lower), (1, -1, upper)):
                rows = unit_rows(self.num, index[here], np.full(len(index[here]), sign), shape)
                choices = {k: Choice(self.columns[k], s[here]) for k, s in slopes.items()}
                ends[side].append(self.boxes.lower(value, rows, choices, flat=flat) * sign)
        if len(index):
            lo, hi = np.concatenate(ends[0]), np.concatenate(ends[1])
            keep = (lo >= 0) | (hi <= 0) if flat else np.full(len(index), True)
            self.boxes.refine(value, index[keep], lo[keep], hi[keep])

    def _classes(self) -> tuple[float, int]:
        """The least margin, and how many leaves there are."""
        label, net = self.claimed.label, self.net
        others = [k for k in range(net.classes) if k != label]
        split = [k for k in others if f"class.{k}.tree" in self.claimed.arrays]
        plain = [k for k in others if k not in split]
        bounds: dict[int, float] = {}
        if plain:
            rows = _margins(self.num, net, label, plain)
            low = self.boxes.lower(len(net.layers), rows, {}, True)
            bounds = dict(zip(plain, map(_under, low.tolist()), strict=True))
        leaves = bool(plain) + 0
        for k in split:
            bounds[k], count = self._tree(k)
            leaves += count
        lost = dict(zip(others, _lost(self.boxes, label, others) if self.deployed
                        else np.zeros(len(others)), strict=True))  # fmt: skip
        for k in others:
            require(bounds[k] > 0, f"class {k} is not proved: its bound is {bounds[k]:.3g}")
            require(bounds[k] > lost[k], f"class {k} is proved for real numbers only: its bound "
                    f"{bounds[k]:.3g} is within what float32 may lose, {lost[k]:.3g}")  # fmt: skip
        self.most_lost = float(max(lost.values(), default=0.0))
        return min(bounds.values(), default=float("inf")), leaves

    def _tree(self, k: int) -> tuple[float, int]:
        """The least bound of a class over the leaves of its tree, which cover the ball [6]."""
        name, net, num = f"class.{k}", self.net, self.num
        nodes = self._take(f"{name}.tree", ("<i4",), (None, 2))
        starts = dict(zip(self.columns, np.cumsum([0, *map(len, self.columns.values())]),
                          strict=False))  # fmt: skip
        total = sum(map(len, self.columns.values()))
        places = {(layer, int(neuron)): starts[layer] + i for layer, column in self.columns.items()
                  for i, neuron in enumerate(column)}  # fmt: skip
        paths = _leaves(nodes, places)
        which = self._take(f"{name}.which", ("<i4",), (len(paths),))
        slopes = self._slopes(f"{name}.slopes", None, len(net.relus))
        sets = {len(each) for each in slopes.values()}
        require(len(sets) <= 1, f"class {k} has slopes of different numbers")
        most = sets.pop() if sets else 1
        require(((which >= 0) & (which < most)).all(), f"class {k} names slopes that are not there")
        depth = sum(map(len, paths))
        prices = self._take(f"{name}.prices", ("<f4",), (depth,)).astype(np.float64)
        require((np.isfinite(prices) & (prices >= 0)).all(), "a price is no number >= 0")
        step = max(1, TOGETHER // max(int(np.prod(net.shape_of(v)))
                                      for v in range(len(net.layers) + 1)))  # fmt: skip
        least, at = np.inf, 0
        for start in range(0, len(paths), step):
            part = paths[start : start + step]
            sign, price = np.zeros((2, len(part), total))
            for row, path in enumerate(part):
                for place, side in path:
                    sign[row, place], price[row, place] = side, prices[at]
                    at += 1
            choices: Choices = {}
            for layer, column in self.columns.items():
                here = slice(starts[layer], starts[layer] + len(column))
                slope = np.tile(self._standard(layer, column), (len(part), 1))
                if layer in slopes:
                    slope = slopes[layer][which[start : start + step]]
                choices[layer] = Choice(column, slope, sign[:, here], num.array(price[:, here]))
            rows = Rows(np.repeat(_margins(num, net, self.claimed.label, [k]).A, len(part), 0))
            low = self.boxes.lower(len(net.layers), rows, choices)
            least = min(least, _under(low.min()))
        return least, len(paths)

    def _standard(self, k: int, index: Array) -> Array:
        """The standard slopes of some neurons: the smaller triangle."""
        value = self.net.layers[self.net.relus[k]].sources[0]
        lo, hi = self.boxes.lo[value].ravel()[index], self.boxes.hi[value].ravel()[index]
        return self.num.array((hi >= -lo).astype(np.float64))


def _leaves(nodes: Array, places: dict[tuple[int, int], int]) -> list[list[tuple[int, int]]]:
    """The paths to the leaves of a tree in preorder: place and sign of each split.

    A split is followed by its part with v >= 0, then by that with v <= 0; (-1, -1) is a leaf.
    """
    leaves: list[list[tuple[int, int]]] = []
    open_: list[list[tuple[int, int]]] = [[]]
    for layer, neuron in nodes.tolist():
        require(open_, "the tree goes on after its last leaf")
        path = open_.pop()
        if (layer, neuron) == (-1, -1):
            leaves.append(path)
            require(len(leaves) <= MOST_LEAVES, "the tree has too many leaves")
            continue
        require((layer, neuron) in places, f"the tree splits neuron {neuron} of ReLU {layer},"
                " which is not among the columns")  # fmt: skip
        place = places[layer, neuron]
        require(all(place != other for other, _ in path), "a neuron is split twice")
        open_ += [[*path, (place, -1)], [*path, (place, 1)]]
    require(not open_, "the tree lacks a leaf")
    return leaves


def _under(value: float | Fraction) -> float:
    """A float that is not above the number."""
    return value if isinstance(value, float) else float(np.nextafter(float(value), -np.inf))
