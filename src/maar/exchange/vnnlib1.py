"""VNNLIB 1.0: a parser of the part of SMT-LIB that properties of networks are written in.

    (declare-const X_0 Real)
    (assert (<= X_0 0.5))
    (assert (or (and (<= Y_0 Y_1)) (and (<= Y_0 (+ Y_2 1.5)))))

Every mistake is one line with its place: FILE:LINE:COLUMN.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

import numpy as np

from maar.core import limits
from maar.core.errors import UsageError, nearest, printable
from maar.core.spec import Property
from maar.exchange.formula import (
    NUMBER,
    And,
    Bounds,
    Exact,
    Formula,
    Linear,
    Or,
    Variable,
    compare,
    number,
    output,
    spell,
)
from maar.exchange.normal_form import LARGEST, property_of

T = TypeVar("T")

COMMENT = re.compile(r'"[^"]*"|;[^\n]*')  # or a string, in which ';' begins no comment
TOKEN = re.compile(r'\s*([()]|"[^"]*"|[^\s()"]+|")')
CLOSE = re.compile(r"\s*\)")
END = re.compile(r"\s*\Z")
NAME = re.compile(r"([XY])_(\d{1,9})", re.ASCII)
COMPARISONS = ("<=", ">=", "<", ">", "=")
CONNECTIVES = ("and", "or")
ARITHMETIC = ("+", "-", "*", "/")
COMMANDS = ("assert", "declare-const", "declare-fun")
# Of SMT-LIB, without a meaning for the property.
IGNORED = ("set-logic", "set-info", "set-option")
# The question: what comes behind it is no part of it.
LAST = ("check-sat", "get-model", "exit")

# Most of a large file is bounds of inputs, one after the other: these are read many at a time.
_BOUND = r'\((?:<=|>=)\s+X_\d+\s+[^\s()"]+\s*\)\s*'
BOUNDS = re.compile(rf"\s*(?:{_BOUND}){{1,4096}}")
ASSERTED_BOUNDS = re.compile(rf"\s*(?:\(assert\s+{_BOUND}\)\s*){{1,4096}}")
SPACES = str.maketrans("()", "  ")


def parse(text: str, path: str) -> Property:
    """The property in a file's text; `path` is for errors."""
    return _Parser(text, path).run()


class _Parser:
    def __init__(self, text: str, path: str) -> None:
        # Comments become spaces, so that places stay what they are.
        self.text = COMMENT.sub(_without_comment, text) if ";" in text else text
        self.path = path
        self.at = 0
        """Where the next token is looked for."""
        self.start = 0
        """Where the last token began."""
        self.declared: dict[str, Variable] = {}
        self.assertions: list[Formula] = []
        self.constants: dict[str, Exact] = {}  # the same pixel values come again and again
        self.places: dict[str, int] = {}  # of the spelling of a bound in `numbers`
        self.numbers: list[Exact] = []
        self.one_by_one = 0
        """Up to this place, bounds are not read many at a time: one of them is unusual."""

    def run(self) -> Property:
        asked = ""
        while not END.match(self.text, self.at):
            if not asked and (bounds := self.bounds(ASSERTED_BOUNDS, words=4)):
                self.assertions.append(bounds)
                continue
            self.open()
            word = self.take("a command")
            if asked and word in COMMANDS:
                raise self.error(f"{word!r} behind {asked!r} is not supported")
            if word == "assert":
                self.assertions.append(self.formula(0))
                self.close()
            elif word in ("declare-const", "declare-fun"):
                self.declare(word)
            elif word in IGNORED or word in LAST:
                asked = asked or (word if word in LAST else "")
                self.skip()
            else:
                word = word[:40]
                raise self.error(f"unknown command {word!r}{nearest(word, COMMANDS)}")
        for letter, what in (("X", "input"), ("Y", "output")):
            self.require_all(letter, what)
        inputs = sum(variable >= 0 for variable in self.declared.values())
        return property_of(
            self.assertions, inputs, len(self.declared) - inputs, self.path, self.where
        )

    # Places and errors

    def where(self, start: int) -> str:
        """Line and column of a place in the text."""
        line = self.text.count("\n", 0, start) + 1
        return f"{self.path}:{line}:{start - self.text.rfind(chr(10), 0, start)}"

    def error(self, message: str, start: int | None = None) -> UsageError:
        """About the token last taken, unless another place is named."""
        where = self.where(self.start if start is None else start)
        return UsageError(printable(f"{where}: {message}"))

    # Tokens

    def take(self, what: str) -> str:
        match = TOKEN.match(self.text, self.at)
        if not match:
            raise self.error(f"the file ends where {what} must come", len(self.text))
        self.start, self.at = match.span(1)
        if "|" in match[1] and match[1][0] != '"':
            # Of SMT-LIB: what it quotes may look like commands.
            raise self.error(f"quoted symbols are not supported: {match[1][:40]!r}")
        return match[1]

    def open(self) -> None:
        if (token := self.take("'('")) != "(":
            raise self.error(f"'(' must come here, not {token[:40]!r}")

    def close(self) -> None:
        if (token := self.take("')'")) != ")":
            raise self.error(f"')' must come here, not {token[:40]!r}")

    def is_closed(self) -> bool:
        """Whether the next token is ')', which is then taken."""
        match = CLOSE.match(self.text, self.at)
        if match:
            self.at = match.end()
            self.start = self.at - 1
        return match is not None

    def skip(self) -> None:
        """To the end of the parentheses that we are in."""
        depth = 1
        while depth:
            token = self.take("')'")
            depth += (token == "(") - (token == ")")

    # Declarations

    def declare(self, command: str) -> None:
        name = self.take("a variable")
        match = NAME.fullmatch(name)
        if not match or name in self.declared or spell(int(match[2])) != f"X_{match[2]}":
            why = "is declared twice" if name in self.declared else "is not X_<i> or Y_<j>"
            raise self.error(f"variable {name[:40]!r} {why}")
        if command == "declare-fun":
            self.open()
            self.close()
        if (kind := self.take("a type")) != "Real":
            raise self.error(f"type {kind[:40]!r} is not supported (accepted: Real)")
        self.close()
        index = int(match[2])
        self.declared[name] = index if match[1] == "X" else output(index)

    def require_all(self, letter: str, what: str) -> None:
        count = sum(name[0] == letter for name in self.declared)
        if not count:
            raise UsageError(f"{self.path}: declares no {what} ({letter}_0, {letter}_1, ...)")
        for index in range(count):
            if f"{letter}_{index}" not in self.declared:
                raise UsageError(f"{self.path}: declares {count} {what}s, but not {letter}_{index}")

    # Formulas and terms

    def bounds(self, pattern: re.Pattern[str], words: int) -> Bounds | None:
        """Bounds of inputs that follow each other here, of so many words each.

        None where there are none, or where one needs a closer look, such as for an error.
        """
        if self.at < self.one_by_one or not (match := pattern.match(self.text, self.at)):
            return None
        split = match[0].translate(SPACES).split()
        signs, names, values = (split[words - 3 + k :: words] for k in range(3))
        if not self.all_are_numbers(values):
            self.one_by_one = match.end()
            return None
        try:
            inputs = np.array([self.declared[name] for name in names])
        except KeyError:
            self.one_by_one = match.end()
            return None
        self.at = match.end()
        return Bounds(
            inputs,
            np.array([sign == "<=" for sign in signs]),
            np.array([self.places[value] for value in values]),
            self.numbers,
        )

    def all_are_numbers(self, values: list[str]) -> bool:
        """Whether all of these are numbers of use in a box, which then have a place."""
        for value in values:
            if value not in self.places:
                try:
                    exact = number(value)
                except ValueError:
                    return False
                if abs(exact) > LARGEST:
                    return False
                self.places[value] = len(self.numbers)
                self.numbers.append(exact)
        return True

    def formula(self, depth: int) -> Formula:
        self.open()
        sign = self.take("a comparison, 'and' or 'or'")
        start = self.start
        self.limit(depth)
        if sign in COMPARISONS:
            left, right = self.term(depth + 1), self.term(depth + 1)
            self.close()
            return self.checked(lambda: compare(sign, left, right, start), start)
        if sign not in CONNECTIVES:
            accepted = ", ".join((*COMPARISONS, *CONNECTIVES))
            raise self.error(f"{sign[:40]!r} is not supported here (accepted: {accepted})")
        parts: list[Formula] = []
        at_once = sign == "and" and depth < limits.PARENTHESES
        while not self.is_closed():
            bounds = self.bounds(BOUNDS, words=3) if at_once else None
            parts.append(bounds or self.formula(depth + 1))
        return And(parts) if sign == "and" else Or(parts)

    def term(self, depth: int) -> Linear:
        token = self.take("a variable or a number")
        if token == "(":
            return self.sum(depth)
        if token in self.declared:
            return Linear({self.declared[token]: 1})
        if token in self.constants:
            return Linear({}, self.constants[token])
        if len(token) > limits.DIGITS or NUMBER.fullmatch(token):
            self.constants[token] = self.checked(lambda: number(token))
            return Linear({}, self.constants[token])
        if NAME.fullmatch(token):
            raise self.error(f"variable {token!r} is not declared")
        raise self.error(f"a variable or a number must come here, not {token[:40]!r}")

    def sum(self, depth: int) -> Linear:
        sign = self.take("'+', '-', '*' or '/'")
        start = self.start
        self.limit(depth)
        if sign not in ARITHMETIC:
            raise self.error(
                f"{sign[:40]!r} is not supported here (accepted: {', '.join(ARITHMETIC)})"
            )
        terms = []
        while not self.is_closed():
            terms.append(self.term(depth + 1))
        if not terms or (sign == "/" and len(terms) != 2):
            raise self.error(f"{sign!r} with {len(terms)} terms", start)
        return self.checked(lambda: _calculate(sign, terms), start)

    def checked(self, make: Callable[[], T], start: int | None = None) -> T:
        """The result; a `ValueError` becomes an error with a place."""
        try:
            return make()
        except ValueError as reason:
            raise self.error(str(reason), start) from None

    def limit(self, depth: int) -> None:
        if depth > limits.PARENTHESES:
            raise self.error(f"more than {limits.PARENTHESES} parentheses inside each other")


def _without_comment(match: re.Match[str]) -> str:
    return " " * len(match[0]) if match[0][0] == ";" else match[0]


def _calculate(sign: str, terms: list[Linear]) -> Linear:
    total = Linear(dict(terms[0].terms), terms[0].constant)
    if sign == "-" and len(terms) == 1:
        return total.times(Linear({}, -1))
    for term in terms[1:]:
        if sign == "*":
            total = total.times(term)
        elif sign == "/":
            if term.terms:
                raise ValueError("division by a variable is not linear")
            if not term.constant:
                raise ValueError("division by zero")
            total = total.times(Linear({}, Fraction(1, 1) / term.constant))
        else:
            total.add(term, 1 if sign == "+" else -1)
    return total
