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

from maar.errors import UsageError, nearest
from maar.exchange.formula import (
    NUMBER,
    And,
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
from maar.exchange.normal_form import property_of
from maar.spec import Property

TOKEN = re.compile(r'[()]|;[^\n]*|"[^"]*"|[^\s();"]+|"')
NAME = re.compile(r"([XY])_(\d{1,9})", re.ASCII)
COMPARISONS = ("<=", ">=", "<", ">", "=")
CONNECTIVES = ("and", "or")
ARITHMETIC = ("+", "-", "*", "/")
COMMANDS = ("assert", "declare-const", "declare-fun")
# Of SMT-LIB, without a meaning for the property.
IGNORED = ("set-logic", "set-info", "set-option", "check-sat", "get-model", "exit")
DEEPEST = 100  # parentheses inside each other; Python's own stack ends at a thousand calls


def parse(text: str, path: str) -> Property:
    """The property in a file's text; `path` is for errors."""
    return _Parser(text, path).run()


class _Parser:
    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path
        found = [m for m in TOKEN.finditer(text) if m[0][0] != ";"]
        self.tokens = [m[0] for m in found]
        self.starts = [m.start() for m in found]
        self.at = 0
        self.declared: dict[str, Variable] = {}
        self.assertions: list[Formula] = []
        self.numbers: dict[str, Exact] = {}  # the same pixel values come again and again

    def run(self) -> Property:
        while self.at < len(self.tokens):
            self.open()
            word = self.take("a command")
            if word == "assert":
                self.assertions.append(self.formula(0))
                self.close()
            elif word in ("declare-const", "declare-fun"):
                self.declare(word)
            elif word in IGNORED:
                self.skip()
            else:
                raise self.error(f"unknown command {word!r}{nearest(word, COMMANDS)}")
        for letter, what in (("X", "input"), ("Y", "output")):
            self.require_all(letter, what)
        inputs = sum(variable >= 0 for variable in self.declared.values())
        return property_of(
            self.assertions, inputs, len(self.declared) - inputs, self.path, self.where
        )

    # Places and errors

    def where(self, index: int) -> str:
        """Line and column of a token, or of the end of the file."""
        start = self.starts[index] if index < len(self.starts) else len(self.text)
        line = self.text.count("\n", 0, start) + 1
        return f"{self.path}:{line}:{start - self.text.rfind(chr(10), 0, start)}"

    def error(self, message: str, index: int | None = None) -> UsageError:
        """About the token last taken, unless another is named."""
        where = self.where(max(self.at - 1, 0) if index is None else index)
        return UsageError("".join(c if c.isprintable() else "?" for c in f"{where}: {message}"))

    # Tokens

    def take(self, what: str) -> str:
        if self.at >= len(self.tokens):
            raise self.error(f"the file ends where {what} must come", self.at)
        self.at += 1
        return self.tokens[self.at - 1]

    def open(self) -> None:
        if (token := self.take("'('")) != "(":
            raise self.error(f"'(' must come here, not {token[:40]!r}")

    def close(self) -> None:
        if (token := self.take("')'")) != ")":
            raise self.error(f"')' must come here, not {token[:40]!r}")

    def is_closed(self) -> bool:
        """Whether the next token is ')', which is then taken."""
        closed = self.at < len(self.tokens) and self.tokens[self.at] == ")"
        self.at += closed
        return closed

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

    def formula(self, depth: int) -> Formula:
        self.open()
        start = self.at
        sign = self.take("a comparison, 'and' or 'or'")
        self.limit(depth)
        if sign in COMPARISONS:
            left, right = self.term(depth + 1), self.term(depth + 1)
            self.close()
            return compare(sign, left, right, start)
        if sign not in CONNECTIVES:
            known = (*COMPARISONS, *CONNECTIVES)
            raise self.error(f"{sign[:40]!r} is not supported here (accepted: {', '.join(known)})")
        parts = []
        while not self.is_closed():
            parts.append(self.formula(depth + 1))
        return And(parts) if sign == "and" else Or(parts)

    def term(self, depth: int) -> Linear:
        token = self.take("a variable or a number")
        if token == "(":
            return self.sum(depth)
        if token in self.declared:
            return Linear({self.declared[token]: 1})
        if token in self.numbers:
            return Linear({}, self.numbers[token])
        if NUMBER.fullmatch(token):
            return self.linear(lambda: Linear({}, self.numbers.setdefault(token, number(token))))
        if NAME.fullmatch(token):
            raise self.error(f"variable {token!r} is not declared")
        raise self.error(f"a variable or a number must come here, not {token[:40]!r}")

    def sum(self, depth: int) -> Linear:
        sign = self.take("'+', '-', '*' or '/'")
        at = self.at - 1
        self.limit(depth)
        if sign not in ARITHMETIC:
            raise self.error(
                f"{sign[:40]!r} is not supported here (accepted: {', '.join(ARITHMETIC)})"
            )
        terms = []
        while not self.is_closed():
            terms.append(self.term(depth + 1))
        if not terms or (sign == "/" and len(terms) != 2):
            raise self.error(f"{sign!r} with {len(terms)} terms", at)
        return self.linear(lambda: _calculate(sign, terms), at)

    def linear(self, make: Callable[[], Linear], index: int | None = None) -> Linear:
        try:
            return make()
        except ValueError as reason:
            raise self.error(str(reason), index) from None

    def limit(self, depth: int) -> None:
        if depth > DEEPEST:
            raise self.error(f"more than {DEEPEST} parentheses inside each other")


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
