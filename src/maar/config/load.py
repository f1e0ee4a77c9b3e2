"""From tables (TOML, flags) to a `Config`, with errors that name the key and the place."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from maar.config.config import Config
from maar.core import limits
from maar.core.errors import UsageError, nearest
from maar.core.own import reading, run_of
from maar.core.settings import convert, group_class, hints, is_group
from maar.core.unpacking import parse_toml, read_limited
from maar.methods import METHODS
from maar.methods.base import Method

KeyPath = tuple[str, ...]
T = TypeVar("T")

_RECIPES = Path(__file__).parent.parent / "recipes"


@dataclass(frozen=True)
class Origin:
    """Where each value was written, to say so when it is wrong."""

    file: str = ""
    text: str = ""
    flags: dict[KeyPath, str] = field(default_factory=dict)

    def error(self, path: KeyPath, value: object, reason: str) -> UsageError:
        """The error for one value."""
        if path in self.flags:
            return UsageError(f"--{self.flags[path]} {value}: {reason}")
        return UsageError(f"{self.place(path)}{'.'.join(path)} = {_shown(value)}: {reason}")

    def place(self, path: KeyPath) -> str:
        """`file:line: ` of the innermost table or key that was written down."""
        if not self.file:
            return ""
        line = line_of(self.text, path)
        return f"{self.file}:{line}: " if line else f"{self.file}: "

    def prefixed(self, path: KeyPath, message: str) -> UsageError:
        """An error that already names its value."""
        flag = self.flags.get(path)
        return UsageError(f"--{flag}: {message}" if flag else self.place(path) + message)

    def group(self, path: KeyPath, message: str) -> UsageError:
        """An error about several values of one table, such as two that exclude each other."""
        flags = [f"--{flag}" for key, flag in self.flags.items() if key[:-1] == path]
        table = f"{'.'.join(path)}: " if path else ""
        return UsageError(
            f"{', '.join(flags)}: {message}" if flags else f"{self.place(path)}{table}{message}"
        )


def recipes() -> list[str]:
    """Names of the shipped configurations."""
    return sorted(path.stem for path in _RECIPES.glob("*.toml"))


def load(where: str | Path, *, with_method: bool = True) -> Config:
    """The configuration in a shipped recipe, a TOML file or the folder of a run.

    Without its method, a method from outside maar is neither looked for nor run.
    """
    from maar.config.idle import refuse_written

    table, origin = read(where)
    if not with_method and _is_from_outside(table.get("method")):
        return build({key: value for key, value in table.items() if key != "method"}, origin)
    config = build(table, origin)
    refuse_written(config, table, origin)
    return config


def read(where: str | Path) -> tuple[dict[str, Any], Origin]:
    """The table as written, and where it is from."""
    path = find(str(where))
    try:
        text = read_limited(path, limits.TOML_BYTES).decode()
        return parse_toml(text), Origin(str(path), text)
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file in UTF-8") from None
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def find(where: str) -> Path:
    """The file behind a recipe's name, a path to a TOML file or to a run's folder."""
    if where in recipes():
        return _RECIPES / f"{where}.toml"
    path = Path(where)
    if path.is_dir():
        if not (path / "config.toml").is_file():
            raise UsageError(f"{where} is not a run: it has no config.toml")
        return path / "config.toml"
    if path.exists():
        return path
    if path.suffix == ".toml" or len(path.parts) > 1:
        raise UsageError(f"no such file: {where}")
    raise UsageError(  # without the list of all recipes: it is longer than a screen
        f"unknown recipe {where!r}{nearest(where, recipes())} (accepted: a recipe of "
        "`maar config recipes`, FILE.toml, or the folder of a run)"
    )


def build(table: dict[str, Any], origin: Origin | None = None) -> Config:
    """A whole configuration from a table; what is absent keeps its default.

    A run's own files are those that it keeps.
    """
    origin = origin or Origin()
    with reading(run_of(origin.file)):
        return _settings(Config, table, (), origin, None)


def _settings(
    cls: type[T], table: dict[str, Any], path: KeyPath, origin: Origin, default: T | None
) -> T:
    """An instance of a settings class: `default` (or the class's own) with the table's values."""
    fields = hints(cls)
    for key in table:
        if key not in fields:
            name = ".".join((*path, key))
            raise UsageError(
                f"{origin.place((*path, key))}unknown key {name!r}{nearest(key, fields)} "
                f"(accepted: {', '.join(fields)})"
            )
    known = _defaults(cls) if default is None else vars(default)
    values: dict[str, Any] = {}
    for key, value in table.items():
        hint, here = fields[key], (*path, key)
        if is_group(hint):
            values[key] = _group(group_class(hint), value, here, origin, known.get(key))
        else:
            values[key] = _value(hint, value, here, origin)
    missing = [key for key in fields if key not in values and key not in known]
    if missing:
        raise origin.prefixed(path, f"{'.'.join((*path, missing[0]))} is missing")
    try:
        return cls(**{**{key: known[key] for key in fields if key in known}, **values})
    except (UsageError, ValueError) as error:
        raise origin.group(path, str(error)) from None


def _group(cls: type, value: Any, path: KeyPath, origin: Origin, default: Any) -> Any:
    if not isinstance(value, dict):
        hint = f' (write [{".".join(path)}] name = "{value}")' if issubclass(cls, Method) else ""
        raise origin.error(path, value, f"is a table, not a value{hint}")
    if not issubclass(cls, Method):
        return _settings(cls, value, path, origin, default)
    name = value.get("name", default.name if default is not None else None)
    here = (*path, "name")
    if name is not None and not isinstance(name, str):
        raise origin.error(here, name, f"is not text (accepted: {', '.join(METHODS)})")
    if name is None:
        raise origin.prefixed(path, f"{'.'.join(here)} is missing (accepted: {', '.join(METHODS)})")
    try:
        chosen = method_class(name)
    except UsageError as error:
        raise origin.prefixed(here, str(error)) from None
    knobs = {key: knob for key, knob in value.items() if key != "name"}
    return _settings(chosen, knobs, path, origin, default if type(default) is chosen else None)


def _is_from_outside(table: Any) -> bool:
    """Whether a method, or one that it is built around, does not come with maar."""
    if not isinstance(table, dict):
        return False
    name = table.get("name")
    inner = any(_is_from_outside(value) for value in table.values())
    return inner or (isinstance(name, str) and not METHODS.has_built_in(name))


def method_class(name: str) -> type[Method]:
    """Return a method by its name, also a user's own."""
    chosen = METHODS[name]
    if not isinstance(chosen, type) or not issubclass(chosen, Method):
        raise UsageError(f"method {name!r} is no class of methods (accepted: a subclass of Method)")
    return chosen


def _value(hint: Any, value: Any, path: KeyPath, origin: Origin) -> Any:
    try:
        return convert(hint, value)
    except UsageError as error:
        raise origin.prefixed(path, str(error)) from None
    except ValueError as error:
        raise origin.error(path, value, str(error)) from None


def _defaults(cls: type) -> dict[str, Any]:
    known = {}
    for item in dataclasses.fields(cls):  # pyright: ignore[reportArgumentType]
        if item.default is not dataclasses.MISSING:
            known[item.name] = item.default
        elif item.default_factory is not dataclasses.MISSING:
            known[item.name] = item.default_factory()
    return known


def _shown(value: object) -> str:
    """A value as TOML would have it, near enough for a message."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)


def line_of(text: str, path: KeyPath) -> int | None:
    """The line of a key in a TOML text, or of the innermost table around it that has one."""
    best, length, table = None, 0, ()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            here = table = _keys(stripped.partition("]")[0].strip("[ "))
        elif "=" in stripped and not stripped.startswith("#"):
            here = (*table, *_keys(stripped.partition("=")[0]))
        else:
            continue
        if here == path[: len(here)] and len(here) > length:
            best, length = number, len(here)
    return best


def _keys(dotted: str) -> KeyPath:
    return tuple(key.strip().strip("\"'") for key in dotted.split("."))
