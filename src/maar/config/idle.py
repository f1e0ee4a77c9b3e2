"""Settings without effect, because of another setting: refused where somebody asks for them.

Which ones these are stands with each setting (`OnlyWith`, `Unless`). A flag is refused whatever its
value. In a file only a value other than the default is, and a file that maar wrote, with every
setting of a run in it, is taken as it is.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from maar.config.config import Config
from maar.config.dump import HASH, flat, to_table, toml_value
from maar.config.load import KeyPath, Origin, build
from maar.core.errors import MaarError, UsageError
from maar.core.settings import OnlyWith, hints, is_group
from maar.methods.base import Method

OF_METHOD = "method."
ANY = ""
"""Any value."""


@dataclass(frozen=True)
class Reason:
    """Why a setting has no effect."""

    mark: OnlyWith
    other: KeyPath
    value: Any
    """Of the other setting."""


def refuse_flags(
    config: Config, flags: Mapping[KeyPath, str], names: Mapping[KeyPath, str]
) -> None:
    """Refuse flags (path -> name) without effect; `names` has the flag of every setting."""
    values = flat(to_table(config))

    def flag(path: KeyPath, value: Any) -> str:
        return f"--{names[path]} {_word(value)}".rstrip()

    for path, reason in idle(config):
        is_off = values[path] is False or values[path] == []  # contradicts nothing
        if path in flags and not is_off:
            raise UsageError(_message(path, values[path], reason, flag))


def refuse_written(config: Config, table: dict[str, Any], origin: Origin) -> None:
    """Refuse settings without effect in a file that a person wrote."""
    if origin.text.startswith(HASH):
        return
    written, values = flat(table), flat(to_table(config))

    def line(path: KeyPath, value: Any) -> str:
        shown = "..." if value == ANY else toml_value([] if value is None else value)
        return f"{'.'.join(path)} = {shown}"

    for path, reason in idle(config):
        if path in written and values[path] != flat(to_table(build(_without(table, path))))[path]:
            message = _message(path, values[path], reason, line)
            raise UsageError(origin.place(path) + message)


def idle(config: Config) -> Iterator[tuple[KeyPath, Reason]]:
    """Every setting that has no effect in this configuration."""
    return _walk(config, (), config, None)


def effective(table: dict[str, Any]) -> dict[str, Any]:
    """Return a run's configuration without the settings that have no effect in it.

    One that this version cannot build stays as it is.
    """
    try:
        without = [path for path, _ in idle(build(table))]
    except MaarError:
        return table
    for path in without:
        with contextlib.suppress(KeyError, TypeError):  # an earlier version did not write it
            table = _without(table, path)
    return table


def _walk(
    settings: Any, path: KeyPath, config: Config, outer: Reason | None
) -> Iterator[tuple[KeyPath, Reason]]:
    for name, hint in hints(type(settings)).items():
        reason = outer
        for mark in get_args(hint)[1:]:
            if reason is None and isinstance(mark, OnlyWith):
                reason = _reason(mark, settings, path, config)
        if is_group(hint):
            yield from _walk(getattr(settings, name), (*path, name), config, reason)
        elif reason is not None:
            yield (*path, name), reason


def _reason(mark: OnlyWith, settings: Any, path: KeyPath, config: Config) -> Reason | None:
    name = mark.name.removeprefix(OF_METHOD)
    tables = _methods(config) if mark.name.startswith(OF_METHOD) else [(path, settings)]
    for where, table in tables:
        if name in hints(type(table)) and not mark.allows(getattr(table, name)):
            return Reason(mark, (*where, name), getattr(table, name))
    return None


def _methods(config: Config) -> Iterator[tuple[KeyPath, Method]]:
    """The method, and those within it."""
    waiting: list[tuple[KeyPath, Method]] = [(("method",), config.method)]
    while waiting:
        path, method = waiting.pop()
        yield path, method
        for name in hints(type(method)):
            if isinstance(inner := getattr(method, name), Method):
                waiting.append(((*path, name), inner))


def _message(
    path: KeyPath, value: Any, reason: Reason, write: Callable[[KeyPath, Any], str]
) -> str:
    """One line; `write(path, value)` is how the user writes a setting."""
    other, values = reason.other, reason.mark.way_out()
    if values == (None,):
        # the other stands in its place
        instead = [value] if isinstance(reason.value, tuple) else value
        way_out = f"give {write(other, instead)} instead, or {write(other, None)} too"
    elif values:
        way_out = f"give {' or '.join(write(other, each) for each in values)} too"
    else:
        way_out = f"give another {write(other, ANY)}"
    why = f"has no effect with {other[-1]} = {_word(reason.value)}"
    return f"{write(path, value)} {why} ({way_out})"


def _word(value: Any) -> str:
    """As a flag has it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def _without(table: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    table = copy.deepcopy(table)
    inner = table
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return table
