"""Experiments, settings and profiles, read from their TOML files and checked."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from maar.core.errors import UsageError, nearest, unknown
from maar.core.settings import Positive, convert, hints
from maar.methods import METHODS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
NOT_EXPERIMENTS = ("published", "profiles", "settings", "times")
NOTHING_PUBLISHED = "none"

T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """What is trained for: a data set and a radius."""

    name: str
    title: str
    eps: str
    eps_range: tuple[str, ...]
    """The radii of an experiment over several."""
    networks: tuple[str, ...] = ()
    """The paper's; a number of another network is not compared with the paper's."""


@dataclass(frozen=True)
class Profile:
    """How much is spent."""

    name: str
    about: str
    preset: str
    """Of `maar certify`."""
    recipe: str = "{setting}-{method}-{profile}"
    reduced: bool = False
    """Whether numbers are of less than the paper's training."""
    settings: tuple[str, ...] = ()
    """The only settings that it knows; none: all."""
    seeds: tuple[int, ...] = ()
    """Instead of those of the rows."""
    limit: Positive | None = None
    timeout: Positive | None = None
    latent_steps: Positive = 150
    """Of the attack that measures latent robustness."""
    latent_bounds: str = "crown"
    """Bounds behind which latent robustness is measured."""
    threads: Positive = 1
    """Of a training."""
    device: str = ""
    """Of a training; empty for the recipe's own."""
    flags: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    """Method -> flags that make the recipe one of that method, where one recipe serves all."""


@dataclass(frozen=True)
class Row:
    """A system: a method's recipe, perhaps changed by flags."""

    label: str
    method: str
    flags: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Flags of `maar train`, without the dashes."""
    published: str = ""
    """The system of published.toml; default: the method's. "none": nothing is published."""
    seeds: tuple[int, ...] = (0,)
    recipes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Profile -> recipe instead of the profile's, with {setting} in it."""

    @property
    def system(self) -> str:
        """In published.toml; empty if it is not there."""
        return "" if self.published == NOTHING_PUBLISHED else self.published or self.method


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    table      accuracy and CR of each row
    lam        the same, over the rows' `lam`
    eps        CR of each row at several radii
    stages     CR and latent robustness of each row with the weights after each stage
    training   verified error and accuracy of each row by epoch; nothing is certified
    """

    name: str
    title: str
    of: str
    """Which one of the paper."""
    about: str
    kind: Literal["table", "lam", "eps", "stages", "training"]
    settings: tuple[str, ...]
    rows: tuple[Row, ...]
    beside: tuple[str, ...] = ()
    """Systems of published.toml to show apart, without rows of ours."""


def experiments() -> list[str]:
    """Names of the shipped ones."""
    return sorted(p.stem for p in HERE.glob("*.toml") if p.stem not in NOT_EXPERIMENTS)


def experiment(name: str) -> Experiment:
    """A shipped experiment, or the one in a TOML file."""
    path = Path(name)
    if name in experiments():
        path = HERE / f"{name}.toml"
    elif path.suffix != ".toml":
        raise unknown("experiment", name, [*experiments(), "FILE.toml"])
    elif path.stem in experiments():
        raise UsageError(
            f"{path}: {path.stem} is the name of a shipped experiment (give it another)"
        )
    table = read_toml(path)
    rows = table.pop("rows", [])
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{path}: an experiment needs [[rows]]")
    made = [make(Row, row, f"{path}: row {number}") for number, row in enumerate(rows, 1)]
    found = make(Experiment, {**table, "name": path.stem, "rows": made}, str(path))
    for setting in found.settings:
        if setting not in settings():
            raise UsageError(f"{path}: {unknown('setting', setting, settings())}")
    for row in found.rows:
        if row.method not in METHODS:
            raise UsageError(f"{path}: row {row.label!r}: {unknown('method', row.method, METHODS)}")
        if not row.seeds:
            raise UsageError(f"{path}: row {row.label!r}: seeds = [] (accepted: one or more)")
    _require_published(found, path)
    return found


def _require_published(found: Experiment, path: Path) -> None:
    """Systems whose numbers are asked for by name must have some."""
    from maar.experiments.published import everything

    known = {entry.system for entry in everything()}
    asked = [row.published for row in found.rows if row.published not in ("", NOTHING_PUBLISHED)]
    for name in (*asked, *found.beside):
        if name not in known:
            raise UsageError(f"{path}: {unknown('published system', name, known)}")


def settings() -> dict[str, Setting]:
    """Every setting by name."""
    path = HERE / "settings.toml"
    return {k: make(Setting, {**v, "name": k}, f"{path}: {k}") for k, v in read_toml(path).items()}


def profiles() -> dict[str, Profile]:
    """Every profile by name."""
    path = HERE / "profiles.toml"
    return {k: make(Profile, {**v, "name": k}, f"{path}: {k}") for k, v in read_toml(path).items()}


def read_toml(path: Path) -> dict[str, Any]:
    """The file as a table; what is wrong with it is a `UsageError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None


def make(cls: type[T], table: object, where: str) -> T:
    """An instance of a dataclass from a table, its values checked by their types."""
    if not isinstance(table, dict):
        raise UsageError(f"{where} is not a table")
    fields = hints(cls)
    for key in table:
        if key not in fields:
            raise UsageError(f"{where}: unknown key {key!r}{nearest(key, fields)}")
    defaults = {
        f.name
        for f in dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
        if f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
    }
    values = {}
    for key, hint in fields.items():
        if key not in table and key not in defaults:
            raise UsageError(f"{where}: {key} is missing")
        if key in table:
            values[key] = _value(hint, table[key], f"{where}: {key}")
    return cls(**values)


def _value(hint: Any, value: Any, where: str) -> Any:
    if hint == tuple[Row, ...]:
        return tuple(value)  # made one by one before
    if getattr(hint, "__origin__", None) is Mapping:
        if not isinstance(value, dict):
            raise UsageError(f"{where} = {value!r} is not a table")
        return value
    try:
        return convert(hint, value)
    except ValueError as error:
        raise UsageError(f"{where} = {value!r} {error}") from None
