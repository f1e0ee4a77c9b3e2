"""From what a file asserts to a `Property`: a disjunction of boxes with their unsafe outputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from maar.core import limits
from maar.core.errors import UsageError
from maar.core.spec import Case, Condition, Property
from maar.exchange.formula import And, Atom, Bounds, Exact, Formula, Leaf, Linear, Or, spell

LARGEST = 10**300

Where = Callable[[int], str]
"""The place of a comparison in the file, for errors, from its `Atom.at`."""


def property_of(
    assertions: Iterable[Formula], inputs: int, outputs: int, path: str, where: Where
) -> Property:
    """The unsafe set of which all assertions are true.

    Errors name `path`, or the place of a comparison in it: `where(atom.at)`.
    """
    for count, what in ((inputs, "inputs"), (outputs, "outputs")):
        limits.require(count, limits.VARIABLES, path, f"number of {what}")
    common, choices = _flatten(assertions)
    terms = [_disjuncts(choice, path) for choice in choices]
    count = _require_disjuncts(math.prod(map(len, terms)), path)
    cuts = _Cuts()
    sides = [[_Side.of(leaves, outputs, cuts, where) for leaves in term] for term in terms]
    start = _Side.of(common, outputs, cuts, where)
    rows = _size_of_product([[len(side.rows) for side in term] for term in sides])
    rows += count * len(start.rows)
    limits.require(rows * outputs, limits.CONDITION_NUMBERS, path, "coefficients of all conditions")
    line = cuts.line()
    whole = _Box.all_of(inputs).narrowed([start], line)
    boxes: dict[bytes, tuple[_Box, list[Condition]]] = {}
    for combination in itertools.product(*sides):
        chosen = [start, *combination]
        if not all(side.is_possible for side in chosen):
            continue
        narrower = [side for side in combination if len(side.inputs)]
        box = whole.narrowed(narrower, line) if narrower else whole
        key = box.key() if narrower else b""
        if key not in boxes:
            boxes[key] = (box, [])
            numbers = inputs * len(boxes)
            limits.require(numbers, limits.BOX_NUMBERS, path, "inputs of all boxes")
        boxes[key][1].append(_joined([side.condition for side in chosen if side.rows], outputs))
    for box, _ in boxes.values():
        box.require_bounds(path)
    cases = [box.case(conditions, line) for box, conditions in boxes.values() if box.has_points()]
    return Property(inputs, outputs, tuple(cases))


def _flatten(formulas: Iterable[Formula]) -> tuple[list[Leaf], list[Or]]:
    """The comparisons that always hold, and the choices."""
    leaves: list[Leaf] = []
    choices: list[Or] = []
    for formula in formulas:
        if isinstance(formula, And):
            inner = _flatten(formula.parts)
            leaves += inner[0]
            choices += inner[1]
        elif isinstance(formula, Or):
            choices.append(formula)
        else:
            leaves.append(formula)
    return leaves, choices


def _disjuncts(choice: Or, path: str) -> list[list[Leaf]]:
    disjuncts: list[list[Leaf]] = []
    comparisons = 0
    for part in choice.parts:
        leaves, choices = _flatten([part])
        inner = [_disjuncts(each, path) for each in choices]
        count = math.prod(map(len, inner))
        _require_disjuncts(len(disjuncts) + count, path)
        comparisons += count * len(leaves)
        comparisons += _size_of_product([[len(each) for each in term] for term in inner])
        limits.require(comparisons, limits.COMPARISONS, path, "comparisons of all disjuncts")
        disjuncts += [
            list(itertools.chain(leaves, *combination)) for combination in itertools.product(*inner)
        ]
    return disjuncts


def _size_of_product(terms: Sequence[Sequence[int]]) -> int:
    """The sum over all combinations of one size from each term."""
    count = math.prod(map(len, terms))
    return sum(sum(term) * (count // len(term)) for term in terms if term)


def _require_disjuncts(count: int, path: str) -> int:
    if count > limits.DISJUNCTS:
        raise UsageError(f"{path}: has {count} disjuncts (accepted: up to {limits.DISJUNCTS})")
    return count


class _Cuts:
    """The places on the line of numbers where boxes begin and end.

    A cut lies at a number (side 0), directly below it (-1), or directly above it (1): x < 2 ends
    below 2. A place stands for a cut until all of them are there and can be put in order.
    """

    def __init__(self) -> None:
        self.places: dict[tuple[int, int, int], int] = {}
        self.cuts: list[tuple[Exact, int]] = []
        self.of_table: dict[int, np.ndarray] = {}

    def place(self, value: Exact, side: int) -> int:
        # (Integers: a Fraction takes long to hash.)
        key = (value.numerator, value.denominator, side)
        place = self.places.setdefault(key, len(self.cuts))
        if place == len(self.cuts):
            self.cuts.append((value, side))
        return place

    def of(self, bounds: Bounds) -> np.ndarray:
        """The places of many bounds at once."""
        table = self.of_table.get(id(bounds.numbers))
        if table is None:
            table = np.array([self.place(value, 0) for value in bounds.numbers], np.int32)
            self.of_table[id(bounds.numbers)] = table
        return table[bounds.place]

    def line(self) -> _Line:
        """All cuts in order."""
        floats = [down(value) for value, _ in self.cuts]
        order: list[int] = []
        # By float first: `down` keeps the order, and exact numbers take long to compare.
        in_floats = sorted(range(len(floats)), key=floats.__getitem__)
        for _, group in itertools.groupby(in_floats, key=floats.__getitem__):
            order += sorted(group, key=self._exactly)
        ranks = np.empty(len(order), np.int32)
        ranks[order] = np.arange(len(order), dtype=np.int32)
        lb = np.array([floats[place] for place in order])
        ub = np.empty(len(order))
        exact = np.empty(len(order), object)
        for rank, place in enumerate(order):
            value, side = self.cuts[place]
            ub[rank] = up(value)
            if side:
                value = math.nextafter(lb[rank] if side > 0 else ub[rank], side * math.inf)
            exact[rank] = Fraction(value)
        return _Line(ranks, lb, ub, exact)

    def _exactly(self, place: int) -> tuple[Fraction, int]:
        value, side = self.cuts[place]
        return Fraction(value), side


@dataclass(frozen=True, eq=False)
class _Line:
    """The cuts in order: the rank of each place, and by rank what a box needs."""

    ranks: np.ndarray
    lb: np.ndarray
    ub: np.ndarray
    exact: np.ndarray
    """The first number inside, of a lower or an upper bound that is excluded: a float64."""


@dataclass(frozen=True, eq=False)
class _Side:
    """A conjunction taken apart."""

    inputs: np.ndarray
    is_upper: np.ndarray
    places: np.ndarray
    """Of the cut at which each input begins or ends."""
    rows: list[Atom]
    """The comparisons of outputs."""
    is_possible: bool
    outputs: int
    where: Where

    @staticmethod
    def of(leaves: Iterable[Leaf], outputs: int, cuts: _Cuts, where: Where) -> _Side:
        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        single: list[tuple[int, bool, int]] = []
        rows: list[Atom] = []
        is_possible = True
        for leaf in leaves:
            if isinstance(leaf, Bounds):
                parts.append((leaf.inputs, leaf.is_upper, cuts.of(leaf)))
                continue
            variables = [v for v, c in leaf.left.terms.items() if c]
            if not variables:
                constant = leaf.left.constant
                is_possible &= constant < 0 if leaf.strict else constant <= 0
            elif all(v < 0 for v in variables):
                rows.append(leaf)
            elif len(variables) == 1:
                single.append(_bound(leaf, variables[0], cuts, where))
            else:
                names = " and ".join(map(spell, variables[:3]))
                kind = "inputs and outputs" if min(variables) < 0 else "several inputs"
                raise UsageError(
                    f"{where(leaf.at)}: {names} in one comparison: {kind} cannot be compared with "
                    "each other (accepted: bounds of one input, linear conditions on outputs)"
                )
        inputs = np.array([bound[0] for bound in single], np.int64)
        is_upper = np.array([bound[1] for bound in single], np.bool_)
        places = np.array([bound[2] for bound in single], np.int32)
        parts.append((inputs, is_upper, places))
        return _Side(
            np.concatenate([part[0] for part in parts]),
            np.concatenate([part[1] for part in parts]),
            np.concatenate([part[2] for part in parts]),
            rows,
            is_possible,
            outputs,
            where,
        )

    @cached_property
    def condition(self) -> Condition:
        """The rows as numbers."""
        return _condition(self.rows, self.outputs, self.where)


def _bound(atom: Atom, i: int, cuts: _Cuts, where: Where) -> tuple[int, bool, int]:
    """(input, whether it is an upper bound, place of its cut)."""
    factor, constant = atom.left.terms[i], atom.left.constant
    value = -factor * constant if factor in (1, -1) else Fraction(-constant) / factor
    if abs(value) > LARGEST:
        raise UsageError(f"{where(atom.at)}: the bound is too large for float64")
    side = (-1 if factor > 0 else 1) if atom.strict else 0
    return i, factor > 0, cuts.place(value, side)


@dataclass(frozen=True, eq=False)
class _Box:
    """The ranks of the cuts where each input begins and ends; beyond all of them where it is open.

    All that the cuts enclose is a point, if the first is not behind the last.
    """

    low: np.ndarray
    high: np.ndarray

    @staticmethod
    def all_of(inputs: int) -> _Box:
        return _Box(np.full(inputs, -1, np.int32), np.full(inputs, _BEYOND, np.int32))

    def narrowed(self, sides: Iterable[_Side], line: _Line) -> _Box:
        low, high = self.low.copy(), self.high.copy()
        for side in sides:
            ranks, lower = line.ranks[side.places], ~side.is_upper
            np.minimum.at(high, side.inputs[side.is_upper], ranks[side.is_upper])
            np.maximum.at(low, side.inputs[lower], ranks[lower])
        return _Box(low, high)

    def require_bounds(self, path: str) -> None:
        for side, is_missing in (("lower", self.low < 0), ("upper", self.high == _BEYOND)):
            if is_missing.any():
                i = int(is_missing.argmax())
                raise UsageError(f"{path}: input {spell(i)} has no {side} bound")

    def has_points(self) -> bool:
        return bool((self.low <= self.high).all())

    def key(self) -> bytes:
        """Equal for equal boxes."""
        return self.low.tobytes() + self.high.tobytes()

    def case(self, conditions: Sequence[Condition], line: _Line) -> Case:
        return Case(
            line.lb[self.low],
            line.ub[self.high],
            tuple(line.exact[self.low]),
            tuple(line.exact[self.high]),
            tuple(conditions),
        )


_BEYOND = np.iinfo(np.int32).max


def _joined(conditions: Sequence[Condition], outputs: int) -> Condition:
    """All rows of several conditions."""
    if len(conditions) == 1:
        return conditions[0]
    if not conditions:
        return Condition(np.zeros((0, outputs)), np.zeros(0), np.zeros(0))
    return Condition(
        np.concatenate([each.A for each in conditions]),
        np.concatenate([each.b for each in conditions]),
        np.concatenate([each.b_in for each in conditions]),
        np.concatenate([each.is_strict() for each in conditions]),
    )


def _condition(atoms: list[Atom], outputs: int, where: Where) -> Condition:
    A = np.zeros((len(atoms), outputs))
    b, b_in = np.zeros(len(atoms)), np.zeros(len(atoms))
    strict = np.array([atom.strict for atom in atoms], np.bool_)
    for k, atom in enumerate(atoms):
        row = _exact(atom.left)
        if row is None:
            raise UsageError(f"{where(atom.at)}: the numbers have too many digits for float64")
        for variable, coefficient in row.terms.items():
            A[k, -1 - variable] = float(coefficient)
        b[k], b_in[k] = up(-row.constant), down(-row.constant)
    return Condition(A, b, b_in, strict)


def _exact(row: Linear) -> Linear | None:
    """The row itself, or a positive multiple of it whose coefficients are float64 numbers."""
    if not all(map(_is_float, row.terms.values())):
        factor = 1
        for coefficient in row.terms.values():
            factor = math.lcm(factor, coefficient.denominator)
            if factor.bit_length() > limits.BITS:
                return None
        try:
            row = row.times(Linear({}, factor))
        except ValueError:
            return None
    if not all(map(_is_float, row.terms.values())) or abs(row.constant) > LARGEST:
        return None
    return row


def _is_float(value: Exact) -> bool:
    return abs(value) <= LARGEST and float(value) == value


def down(value: Exact) -> float:
    """The largest float64 that is not above `value`."""
    near = float(value)
    top, bottom = near.as_integer_ratio()
    # (Fraction's own comparison with a float takes ten times as long)
    below = top * value.denominator <= value.numerator * bottom
    return near if below else math.nextafter(near, -math.inf)


def up(value: Exact) -> float:
    """The smallest float64 that is not below `value`."""
    return -down(-value)
