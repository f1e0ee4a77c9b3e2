"""From what a file asserts to a `Property`: a disjunction of boxes with their unsafe outputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from maar.errors import UsageError
from maar.exchange.formula import And, Atom, Exact, Formula, Linear, Or, spell
from maar.spec import Case, Condition, Property

MOST = 100_000  # disjuncts; a file can ask for more in a few lines
LARGEST = 10**300


def property_of(
    assertions: Iterable[Formula],
    inputs: int,
    outputs: int,
    path: str,
    where: Callable[[int], str],
) -> Property:
    """The unsafe set of which all assertions are true.

    Errors name `path`, or the place of a comparison in it: `where(atom.at)`.
    """
    common, choices = _flatten(assertions)
    terms = [_disjuncts(choice, path) for choice in choices]
    _limit(math.prod(map(len, terms)), path)
    sides = [[_Side.of(atoms, where) for atoms in term] for term in terms]
    start = _Side.of(common, where)
    whole = _Box([None] * inputs, [None] * inputs).narrowed(start.inputs, where)
    found: dict[object, tuple[_Box, list[Condition]]] = {}
    for combination in itertools.product(*sides):
        chosen = [start, *combination]
        if not all(side.possible for side in chosen):
            continue
        narrower = [atom for side in combination for atom in side.inputs]
        box = whole.narrowed(narrower, where) if narrower else whole
        rows = [atom for side in chosen for atom in side.outputs]
        key = None if box is whole else box.key()
        found.setdefault(key, (box, []))[1].append(_condition(rows, outputs, where))
    for box, _ in found.values():
        box.require_bounds(path)
    cases = [box.case(conditions) for box, conditions in found.values() if not box.is_empty()]
    return Property(inputs, outputs, tuple(cases))


def _flatten(formulas: Iterable[Formula]) -> tuple[list[Atom], list[Or]]:
    """The comparisons that always hold, and the choices."""
    atoms: list[Atom] = []
    choices: list[Or] = []
    for formula in formulas:
        if isinstance(formula, And):
            inner = _flatten(formula.parts)
            atoms += inner[0]
            choices += inner[1]
        elif isinstance(formula, Or):
            choices.append(formula)
        else:
            atoms.append(formula)
    return atoms, choices


def _disjuncts(choice: Or, path: str) -> list[list[Atom]]:
    found: list[list[Atom]] = []
    for part in choice.parts:
        atoms, choices = _flatten([part])
        inner = [_disjuncts(each, path) for each in choices]
        _limit(len(found) + math.prod(map(len, inner)), path)
        found += [sum(combination, atoms) for combination in itertools.product(*inner)]
    return found


def _limit(count: int, path: str) -> None:
    if count > MOST:
        raise UsageError(f"{path}: has {count} disjuncts (accepted: up to {MOST})")


@dataclass(frozen=True)
class _Side:
    """A conjunction taken apart."""

    inputs: list[Atom]
    outputs: list[Atom]
    possible: bool

    @staticmethod
    def of(atoms: Iterable[Atom], where: Callable[[int], str]) -> _Side:
        inputs, outputs, possible = [], [], True
        for atom in atoms:
            variables = [v for v, c in atom.left.terms.items() if c]
            if not variables:
                constant = atom.left.constant
                possible &= constant < 0 if atom.strict else constant <= 0
            elif all(v < 0 for v in variables):
                outputs.append(atom)
            elif len(variables) == 1:
                inputs.append(atom)
            else:
                names = " and ".join(map(spell, variables[:3]))
                kind = "inputs and outputs" if min(variables) < 0 else "several inputs"
                raise UsageError(
                    f"{where(atom.at)}: {names} in one comparison: {kind} cannot be compared with "
                    "each other (accepted: bounds of one input, linear conditions on outputs)"
                )
        return _Side(inputs, outputs, possible)


Bound = tuple[Exact, bool]
"""A number, and whether it is itself excluded."""


@dataclass(frozen=True)
class _Box:
    """Exact bounds of each input, None where there is none yet."""

    low: list[Bound | None]
    high: list[Bound | None]

    def narrowed(self, atoms: Iterable[Atom], where: Callable[[int], str]) -> _Box:
        low, high = list(self.low), list(self.high)
        for atom in atoms:
            i, factor = next((v, c) for v, c in atom.left.terms.items() if c)
            constant = atom.left.constant
            value = -factor * constant if factor in (1, -1) else Fraction(-constant) / factor
            if abs(value) > LARGEST:
                raise UsageError(f"{where(atom.at)}: the bound is too large for float64")
            new, old = (value, atom.strict), low[i] if factor < 0 else high[i]
            if factor < 0:
                low[i] = new if old is None else max(old, new)
            else:
                high[i] = new if old is None else min(old, new, key=lambda b: (b[0], not b[1]))
        return _Box(low, high)

    def require_bounds(self, path: str) -> None:
        for side, bounds in (("lower", self.low), ("upper", self.high)):
            for i, bound in enumerate(bounds):
                if bound is None:
                    raise UsageError(f"{path}: input {spell(i)} has no {side} bound")

    def is_empty(self) -> bool:
        pairs = zip(self._sure(self.low), self._sure(self.high), strict=True)
        return any(a[0] > b[0] or (a[0] == b[0] and (a[1] or b[1])) for a, b in pairs)

    def key(self) -> object:
        """Equal for equal boxes. (Pairs of integers: a Fraction takes long to hash.)"""
        bounds = (*self.low, *self.high)
        return tuple(bound and (bound[0].as_integer_ratio(), bound[1]) for bound in bounds)

    def case(self, conditions: Sequence[Condition]) -> Case:
        lows, highs = self._sure(self.low), self._sure(self.high)
        lb = [down(value) for value, _ in lows]
        ub = [up(value) for value, _ in highs]
        return Case(
            np.array(lb),
            np.array(ub),
            tuple(
                Fraction(math.nextafter(f, math.inf)) if strict else Fraction(value)
                for f, (value, strict) in zip(lb, lows, strict=True)
            ),
            tuple(
                Fraction(math.nextafter(f, -math.inf)) if strict else Fraction(value)
                for f, (value, strict) in zip(ub, highs, strict=True)
            ),
            tuple(conditions),
        )

    @staticmethod
    def _sure(bounds: list[Bound | None]) -> list[Bound]:
        return [bound for bound in bounds if bound is not None]


def _condition(atoms: list[Atom], outputs: int, where: Callable[[int], str]) -> Condition:
    A = np.zeros((len(atoms), outputs))
    b, b_in = np.zeros(len(atoms)), np.zeros(len(atoms))
    for k, atom in enumerate(atoms):
        row = _exact(atom.left)
        if row is None:
            raise UsageError(f"{where(atom.at)}: the numbers have too many digits for float64")
        for variable, coefficient in row.terms.items():
            A[k, -1 - variable] = float(coefficient)
        b[k], b_in[k] = up(-row.constant), down(-row.constant)
    return Condition(A, b, b_in)


def _exact(row: Linear) -> Linear | None:
    """The row itself, or a positive multiple of it whose coefficients are float64 numbers."""
    if not all(map(_is_float, row.terms.values())):
        denominators = (Fraction(c).denominator for c in row.terms.values())
        row = row.times(Linear({}, math.lcm(*denominators)))
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
