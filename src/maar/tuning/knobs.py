"""Knobs to search: `lr=1e-4:1e-2:log`, `steps=1:4`, `weight=soft|uniform`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maar.config import Config
from maar.config.dump import config_hash, to_table, toml_value
from maar.config.flags import Flag, flags_of, put
from maar.config.load import KeyPath, build
from maar.core.errors import UsageError, unknown
from maar.core.neutral import NEUTRAL
from maar.core.settings import parse

FORM = "NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=A|B|C"
FIXED = {"data", "valid", "eps", *NEUTRAL}
"""Keys that say what is learned or where: trials that differ in them cannot be compared."""


@dataclass(frozen=True)
class Knob:
    """One setting and the values that trials may give it."""

    name: str
    """The flag's, without dashes in front."""
    path: KeyPath
    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    is_whole: bool = False
    choices: tuple[str, ...] = ()
    """Values as text; empty for a range."""
    hint: Any = None

    def __str__(self) -> str:
        if self.choices:
            return f"{self.name}={'|'.join(self.choices)}"
        return f"{self.name}={self.low:g}:{self.high:g}{':log' if self.is_log else ''}"

    def suggest(self, trial: Any) -> Any:
        """Let an Optuna trial choose a value: a number, or one of the choices as text."""
        if self.choices:
            return trial.suggest_categorical(self.name, list(self.choices))
        if self.is_whole:
            return trial.suggest_int(self.name, int(self.low), int(self.high), log=self.is_log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.is_log)

    def value(self, chosen: Any) -> Any:
        """Return the setting that a chosen value means."""
        return parse(self.hint, chosen) if self.choices else chosen

    def of(self, config: Config) -> Any:
        """Return the value that a configuration has, if trials may choose it; else None."""
        value: Any = config
        for name in self.path:
            value = getattr(value, name)
        if self.choices:
            same = [text for text in self.choices if parse(self.hint, text) == value]
            return same[0] if same else None
        return value if self.low <= value <= self.high else None


def parse_knobs(texts: Sequence[str], config: Config) -> list[Knob]:
    """Read knobs; a name that the recipe does not have, or a bad value, is a `UsageError`."""
    if not texts:
        raise UsageError(f"--knob is missing (accepted: {FORM}, once for each knob)")
    flags = {flag.name: flag for flag in flags_of(config) if ".".join(flag.path) not in FIXED}
    flags = {name: flag for name, flag in flags.items() if flag.path[-1] != "name"}
    knobs = [_knob(text, flags) for text in texts]
    names = [knob.name for knob in knobs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--knob {name} is given {names.count(name)} times (accepted: once)")
    return knobs


def _knob(text: str, flags: Mapping[str, Flag]) -> Knob:
    name, equals, values = text.partition("=")
    name = name.strip().lstrip("-").replace("_", "-")
    if not equals or not values:
        raise UsageError(f"--knob {text!r} is no range (accepted: {FORM})")
    if name not in flags:
        raise unknown("--knob", name, flags)
    flag = flags[name]
    if "|" in values:
        choices = tuple(dict.fromkeys(map(str.strip, values.split("|"))))
        for choice in choices:
            _parsed(flag, choice, text)
        return Knob(name, flag.path, choices=choices, hint=flag.hint)
    parts = values.split(":")
    if len(parts) not in (2, 3) or parts[2:] not in ([], ["log"]):
        raise UsageError(f"--knob {text!r} is no range (accepted: {FORM})")
    low, high = (_parsed(flag, part, text) for part in parts[:2])
    if isinstance(low, bool) or not isinstance(low, int | float):
        raise UsageError(f"--knob {text!r}: {name} is not a number (accepted: {name}=A|B|C)")
    if not low < high:
        raise UsageError(f"--knob {text!r}: {high:g} is not above {low:g}")
    if len(parts) == 3 and low <= 0:
        raise UsageError(f"--knob {text!r}: a logarithm needs LOW > 0")
    whole = isinstance(low, int) and isinstance(high, int)
    return Knob(name, flag.path, low, high, len(parts) == 3, whole, hint=flag.hint)


def _parsed(flag: Flag, text: str, whole: str) -> Any:
    try:
        return parse(flag.hint, text)
    except (UsageError, ValueError) as error:
        raise UsageError(f"--knob {whole!r}: {text}: {error}") from None


def turned(config: Config, knobs: Sequence[Knob], chosen: Mapping[str, Any]) -> Config:
    """Return the configuration with the knobs at these values."""
    table = to_table(config)
    for knob in knobs:
        value = knob.value(chosen[knob.name])
        put(table, knob.path, list(value) if isinstance(value, tuple) else value)
    return dataclasses.replace(build(table), name=config.name)


def recipe(config: Config) -> str:
    """Write a configuration as a recipe: what differs from the defaults, and the methods' names."""
    table = to_table(dataclasses.replace(config, name=""))
    short = _without(table, to_table(build({"method": _names(table["method"])})))
    if config_hash(build(short)) != config_hash(config):
        short = table  # a default that depends on another value
    return _toml(short, ())


def _names(method: Mapping[str, Any]) -> dict[str, Any]:
    inner = {key: _names(value) for key, value in method.items() if _is_method(value)}
    return {"name": method["name"], **inner}


def _is_method(value: Any) -> bool:
    return isinstance(value, dict) and "name" in value


def _without(table: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        default = defaults.get(key)
        if isinstance(value, dict):
            inner = _without(value, default if isinstance(default, dict) else {})
            found.update({key: inner} if inner else {})
        elif value != default or (key == "name" and value):
            found[key] = value
    return found


def _toml(table: Mapping[str, Any], path: tuple[str, ...]) -> str:
    plain = [f"{k} = {toml_value(v)}\n" for k, v in table.items() if not isinstance(v, dict)]
    for key, value in table.items():
        if isinstance(value, dict):
            here = (*path, key)
            inner = _toml(value, here)
            plain.append(f"\n[{'.'.join(here)}]\n{inner}")
    return "".join(plain)
