"""VNNLIB 2.0, read by the format's own package `vnnlib` and taken over with exact numbers."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from maar.core import limits
from maar.core.errors import RunError, UsageError, printable
from maar.core.spec import Property
from maar.exchange.formula import And, Formula, Linear, Or, Variable, compare, number, output
from maar.exchange.normal_form import property_of

if TYPE_CHECKING:
    import vnnlib

PARENTHESIS = re.compile(r"[()]|;[^\n\r\v\f]*")
SIGNS = {
    "LessThan": "<",
    "LessEqual": "<=",
    "GreaterThan": ">",
    "GreaterEqual": ">=",
    "Equal": "==",
    "NotEqual": "!=",
}


def parse(text: str, path: str) -> Property:
    """The property in a file's text; `path` is for errors."""
    try:
        import vnnlib
    except ImportError:
        raise RunError(
            f"{path} is of VNNLIB 2.0, which needs the vnnlib package: pip install 'maar[vnnlib]'"
        ) from None
    limits.require(len(text), limits.VNNLIB2_BYTES, path, "characters of VNNLIB 2.0")
    # The package takes the stack of the process for each, and crashes where it ends.
    limits.require(_depth(text), limits.PARENTHESES, path, "parentheses inside each other")
    try:
        query = vnnlib.parse_query_string(text)
    except Exception as error:  # of its own class, or whatever its C++ code raises
        raise UsageError(printable(_told(str(error), path))) from None
    inputs, outputs = _sizes(query, path)
    assertions = [_formula(assertion.expr, path) for assertion in query.assertions]
    # The package tells places by their line only.
    return property_of(assertions, inputs, outputs, path, lambda line: f"{path}:{line}")


def _depth(text: str) -> int:
    """How many parentheses are open at once; any line break ends a comment, to be sure."""
    depth = deepest = 0
    for match in PARENTHESIS.finditer(text):
        if match[0] == "(":
            depth += 1
            deepest = max(deepest, depth)
        elif match[0] == ")":
            depth -= 1
    return deepest


def _sizes(query: vnnlib.Query, path: str) -> tuple[int, int]:
    if len(query.networks) != 1:
        raise UsageError(f"{path}: is about {len(query.networks)} networks (accepted: one)")
    network = query.networks[0]
    given = (len(network.inputs), len(network.outputs), len(network.hidden))
    if given != (1, 1, 0):
        raise UsageError(
            f"{path}: network {network.name} has {given[0]} inputs, {given[1]} outputs and "
            f"{given[2]} hidden values (accepted: one input, one output, nothing hidden)"
        )
    return math.prod(network.inputs[0].shape), math.prod(network.outputs[0].shape)


def _formula(expression: Any, path: str) -> Formula:
    kind = type(expression).__name__
    if kind in SIGNS:
        line = _line(expression)
        try:
            left, right = _linear(expression.lhs), _linear(expression.rhs)
            return compare(SIGNS[kind], left, right, line)
        except ValueError as reason:
            raise UsageError(f"{path}:{line}: {reason}") from None
    parts = [_formula(part, path) for part in expression.args]
    return And(parts) if kind == "And" else Or(parts)


def _linear(expression: Any) -> Linear:
    kind = type(expression).__name__
    if kind == "Var":
        return Linear({_variable(expression): 1})
    if kind in ("Float", "Int", "Literal", "IntExpr"):
        return Linear({}, number(expression.lexeme))  # not `value`, which is rounded
    if kind == "Negate":
        return _linear(expression.expr).times(Linear({}, -1))
    if kind == "Multiply":
        total = Linear({}, 1)
        for part in expression.args:
            total = total.times(_linear(part))
        return total
    total, sign = Linear(), -1 if kind == "Minus" else 1
    first, *rest = (expression.head, *expression.rest) if sign < 0 else expression.args
    total.add(_linear(first))
    for part in rest:
        total.add(_linear(part), sign)
    return total


def _variable(variable: Any) -> Variable:
    """The place of an element in the tensor, line by line."""
    flat = 0
    for index, size in zip(variable.indices, variable.shape, strict=True):
        flat = flat * size + index
    return flat if variable.kind.name == "Input" else output(flat)


def _line(expression: Any) -> int:
    """The line of the first variable or number in an expression."""
    if hasattr(expression, "line"):
        return expression.line
    return next((_line(part) for part in expression.children()), 0)


def _told(message: str, path: str) -> str:
    """The package's report, which may be a whole JSON document, in one line."""
    if place := re.search(r"^Parse error: (.*) at line (\d+), column (\d+): (.*)", message):
        return f"{path}:{place[2]}:{place[3]}: {place[1]}: {place[4]}"
    try:
        first = json.loads(message)["errors"][0]
        said = f"{first['message']}: {first['offendingSymbol']} ({first['hint']})"
        return f"{path}:{first['line']}: {said}"
    except (ValueError, KeyError, IndexError, TypeError):
        return f"{path}: {(message.splitlines() or ['cannot be read'])[0]}"
