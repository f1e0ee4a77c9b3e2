"""Settings: values checked and converted by the type of their field.

One table of types serves TOML values, command-line words and constructor arguments, so the three
accept the same things and complain in the same words. A bad value is a `ValueError` with the
reason only; the caller knows the name and the place and makes the one-line error of them.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import textwrap
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal

from maar.core.eps import Eps
from maar.core.errors import UsageError, nearest


@dataclasses.dataclass(frozen=True)
class Range:
    """A limit on a number: `Annotated[int, Range(low=1)]`."""

    low: float | None = None
    above: float | None = None
    high: float | None = None

    def holds(self, value: float) -> bool:
        """Whether the number is within the limits."""
        return (
            (self.low is None or value >= self.low)
            and (self.above is None or value > self.above)
            and (self.high is None or value <= self.high)
        )

    def __str__(self) -> str:
        limits = []
        if self.low is not None:
            limits.append(f"at least {self.low:g}")
        if self.above is not None:
            limits.append(f"above {self.above:g}")
        if self.high is not None:
            limits.append(f"at most {self.high:g}")
        return " and ".join(limits)


@dataclasses.dataclass(frozen=True)
class Check:
    """A test that knows its own words: `Annotated[str, Check(f)]`, f raises `UsageError`."""

    test: Callable[[Any], object]


@dataclasses.dataclass(frozen=True)
class OnlyWith:
    """A setting that counts only with one of these values of another, or with any but 0 and none.

    `Annotated[float, OnlyWith("optimizer", "sgd")]`. The other is of the same table, or, as
    `method.NAME`, of the method or a method within it.
    """

    name: str
    values: tuple[Any, ...]

    def __init__(self, name: str, *values: Any) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "values", values)

    def allows(self, other: Any) -> bool:
        """Whether the setting counts with this value of the other."""
        return other in self.values if self.values else bool(other)

    def way_out(self) -> tuple[Any, ...]:
        """Values of the other with which the setting counts; empty: any but 0 and none."""
        return self.values


class Unless(OnlyWith):
    """A setting that does not count with one of these values of another, or with any but none."""

    def allows(self, other: Any) -> bool:
        return other not in self.values if self.values else not other

    def way_out(self) -> tuple[Any, ...]:
        return () if self.values else (None,)


Count = Annotated[int, Range(low=0)]
Positive = Annotated[int, Range(low=1)]
NonNegative = Annotated[float, Range(low=0)]
AboveZero = Annotated[float, Range(above=0)]
Share = Annotated[float, Range(low=0, high=1)]


def convert(hint: Any, value: Any) -> Any:
    """Check a typed value (from TOML or Python) against a field's type and return it in that type.

    Raises `ValueError(reason)`, or the `UsageError` of a `Check`, which names the value itself.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        value = convert(args[0], value)
        for mark in args[1:]:
            if isinstance(mark, Check):
                mark.test(value)
            elif isinstance(mark, Range):
                numbers = value if isinstance(value, tuple) else (value,)
                if not all(map(mark.holds, numbers)):
                    raise ValueError(f"must be {mark}")
        return value
    if origin in (typing.Union, types.UnionType):
        return _convert_optional(hint, value)
    if origin is Literal:
        if value not in args:
            raise ValueError(
                f"is not accepted{nearest(str(value), map(str, args))} (accepted: {words(hint)})"
            )
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"is not {words(hint)}")
        return tuple(convert(args[0], item) for item in value)
    if hint is Eps:
        return value if isinstance(value, Eps) else Eps(value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError("is not a finite number")
        return float(value)
    if hint in (int, bool, str) and type(value) is hint:
        return value
    raise ValueError(f"is not {words(hint)}")


def parse(hint: Any, text: str) -> Any:
    """Convert a word of the command line to a field's type; the same errors as `convert`."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return convert(hint, parse(args[0], text))
    if origin in (typing.Union, types.UnionType):
        return None if text == "none" else parse(_without_none(hint), text)
    if origin is tuple:
        items = [] if text == "none" else text.split(",")
        return tuple(parse(args[0], word.strip()) for word in items if word.strip())
    if origin is Literal:
        return convert(hint, {str(arg): arg for arg in args}.get(text, text))
    if hint is bool:
        return convert(hint, {"true": True, "false": False}.get(text.lower(), text))
    if hint in (int, float):
        try:
            return convert(hint, hint(text))
        except (ValueError, OverflowError):
            raise ValueError(f"is not {words(hint)}") from None
    return convert(hint, text)


def words(hint: Any) -> str:
    """Describe the values that a type accepts, for an error message."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        limits = [str(mark) for mark in args[1:] if isinstance(mark, Range)]
        return " ".join([words(args[0]), *limits])
    if origin in (typing.Union, types.UnionType):
        return f'{words(_without_none(hint))}, or "none"'
    if origin is Literal:
        return ", ".join(map(str, args))
    if origin is tuple:
        return f"a list, each {words(args[0])}"
    plain = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text in quotes",
        Eps: "a radius",
    }
    return plain[hint]


def metavar(hint: Any) -> str:
    """The placeholder after a flag in a help text."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return metavar(args[0])
    if origin in (typing.Union, types.UnionType):
        return f"{metavar(_without_none(hint))}|none"
    if origin is Literal:
        return "{" + ",".join(map(str, args)) + "}"
    if origin is tuple:
        return f"{metavar(args[0])},..."
    return {int: "INT", float: "NUMBER", bool: "{true,false}", str: "TEXT", Eps: "EPS"}[hint]


def _convert_optional(hint: Any, value: Any) -> Any:
    # TOML has no null, so "none" stands for it.
    return None if value is None or value == "none" else convert(_without_none(hint), value)


def _without_none(hint: Any) -> Any:
    kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    if len(kinds) != 1:
        raise TypeError(f"{hint} cannot be a setting: only X or X | None can")
    return kinds[0]


@cache
def hints(cls: type) -> dict[str, Any]:
    """Name -> type of each field of a settings class, `Annotated` kept."""
    resolved = typing.get_type_hints(cls, include_extras=True)
    return {field.name: resolved[field.name] for field in dataclasses.fields(cls) if field.init}


@cache
def docs(cls: type) -> dict[str, str]:
    """Name -> the string under the field in the source, for help texts and tables."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError, SyntaxError):
            continue  # no source at hand: the help is shorter, nothing else
        if not isinstance(body, ast.ClassDef):
            continue
        for field, below in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                found[field.target.id] = " ".join(below.value.value.split())
    return found


class Settings:
    """Base of the frozen dataclasses that make a configuration: fields are checked when made."""

    def __post_init__(self) -> None:
        for name, hint in hints(type(self)).items():
            value = getattr(self, name)
            if is_group(hint):
                if not isinstance(value, group_class(hint)):
                    raise UsageError(f"{name} = {value!r} is not a {group_class(hint).__name__}")
                continue
            try:
                object.__setattr__(self, name, convert(hint, value))
            except ValueError as error:
                raise UsageError(f"{name} = {value!r} {error}") from None


def group_class(hint: Any) -> Any:
    """The type itself, without the `Annotated` around it."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def is_group(hint: Any) -> bool:
    """Whether a field holds further settings, a table in TOML, rather than a value."""
    return dataclasses.is_dataclass(group_class(hint))
