"""A `Config` as TOML text, and the hash that tells whether two are the same experiment."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from typing import Any

from maar.config.config import Config
from maar.core.eps import Eps
from maar.core.neutral import NEUTRAL
from maar.methods.base import Method

HASH = "# hash "
"""How a file with a whole configuration begins."""
NOT_HASHED = tuple(tuple(key.split(".")) for key in NEUTRAL)


def to_table(settings: Any) -> dict[str, Any]:
    """Nested dictionaries of TOML values, defaults included; a method brings its name."""
    table: dict[str, Any] = {"name": settings.name} if isinstance(settings, Method) else {}
    for field in dataclasses.fields(settings):
        if not field.init:
            continue
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            table[field.name] = to_table(value)
        elif isinstance(value, tuple):
            table[field.name] = list(value)
        else:
            table[field.name] = "none" if value is None else value
    return table


def config_hash(config: Config) -> str:
    """SHA-256 of the canonical JSON of all values but `NOT_HASHED`; eps counts as a number."""
    table = to_table(config)
    for *tables, key in NOT_HASHED:
        inner = table
        for name in tables:
            inner = inner[name]
        del inner[key]
    text = json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def to_toml(config: Config) -> str:
    """The whole configuration; read back, it gives the same hash."""
    return f"{HASH}{config_hash(config)}\n" + _emit(to_table(config), ())


def differing(one: Config, other: Config) -> list[str]:
    """Keys whose values differ, as `train.lr: 0.001 -> 0.01`, those outside the hash left out."""
    left, right = flat(to_table(one)), flat(to_table(other))
    return [
        f"{'.'.join(path)}: {_shown(left.get(path))} -> {_shown(right.get(path))}"
        for path in dict.fromkeys([*left, *right])
        if left.get(path) != right.get(path) and path not in NOT_HASHED
    ]


def flat(table: dict[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """A nested table with the whole path as key."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in table.items():
        here = (*path, key)
        found.update(flat(value, here) if isinstance(value, dict) else {here: value})
    return found


def _shown(value: Any) -> str:
    return "absent" if value is None else toml_value(value)


def _emit(table: dict[str, Any], path: tuple[str, ...]) -> str:
    # Plain values first: after a [table] line they would belong to that table.
    lines = [
        f"{_key(key)} = {toml_value(value)}\n"
        for key, value in table.items()
        if not isinstance(value, dict)
    ]
    for key, value in table.items():
        if isinstance(value, dict):
            here = (*path, key)
            lines.append(f"\n[{'.'.join(map(_key, here))}]\n{_emit(value, here)}")
    return "".join(lines)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_value(key)


def toml_value(value: Any) -> str:
    """One value in TOML's spelling."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Eps):
        return toml_value(value.text) if "/" in value.text else toml_value(float(value))
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    escaped = "".join(_escape(char) for char in value)
    return f'"{escaped}"'


def _escape(char: str) -> str:
    named = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    if char in named:
        return named[char]
    if ord(char) < 0x20 or ord(char) == 0x7F:
        return f"\\u{ord(char):04x}"
    return char
