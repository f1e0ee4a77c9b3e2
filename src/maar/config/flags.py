"""Command-line flags, made by tyro from the same dataclasses as the TOML.

Two passes, because the flags depend on the method: the first look finds CONFIG and the names of
the method and of the methods inside it (`--method maar --base colt`), which fixes the classes; the
second parses every flag. `[method]` and `[train]` need no prefix (`--lam 6 --epochs 3`), groups
further in do (`--attack.steps 4`). Where two methods have a knob of the same name, the flag is the
outer one's, and the inner one's has its whole name (`--lam 6 --base.lam 0.4`).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from maar.config.config import Config
from maar.config.dump import config_hash
from maar.config.idle import refuse_flags
from maar.config.load import KeyPath, Origin, build, load, method_class, read, recipes
from maar.core.errors import UsageError, nearest
from maar.core.help import folded
from maar.core.own import reading, run_of
from maar.core.settings import docs, group_class, hints, is_group, metavar, parse
from maar.methods import METHODS
from maar.methods.base import Method


@dataclass(frozen=True)
class Extra:
    """A flag of one command that is not part of the configuration."""

    name: str
    help: str
    default: str | bool = False  # a switch, unless it has a text
    metavar: str = ""

    @property
    def switch(self) -> bool:
        """Whether it stands alone, without a value."""
        return isinstance(self.default, bool)


@dataclass(frozen=True)
class Flag:
    """One setting on the command line."""

    name: str
    """Without the dashes in front, words joined by hyphens: `attack.step-size`."""
    path: KeyPath
    hint: Any
    default: Any
    help: str
    group: str


def parse_command(
    argv: Sequence[str], *, prog: str, description: str, extras: Sequence[Extra] = ()
) -> tuple[Config, dict[str, Any]]:
    """The configuration that `CONFIG [flags]` means, and the values of the command's own flags.

    `--help` prints the flags of the chosen method with their effective values and leaves.
    """
    switches = {f"--{extra.name}" for extra in extras if extra.switch} | {"-h", "--help"}
    where, words = _first_look(argv, switches)
    helping = "-h" in argv or "--help" in argv
    if not where and not helping:
        raise UsageError(
            f"CONFIG is missing: {prog} CONFIG [flags] "
            "(accepted: a recipe of `maar config recipes`, such as demo, FILE.toml, or the folder "
            "of a run)"
        )
    table, origin = read(where) if where else ({}, Origin())
    with reading(run_of(origin.file)):
        table = _with_methods(table, Config, words)
    # A method that the command line names may not go with another that it names.
    named = {("method", "base"): "base"} if "--base" in words else {}
    flags = list(flags_of(build(table, dataclasses.replace(origin, flags=named))))
    argv = [_plain(word, flags) for word in argv]
    given, own = _tyro(argv, flags, extras, prog, description, helping)
    for flag in flags:
        if flag.name in given:
            put(table, flag.path, given[flag.name])
    paths = {flag.path: flag.name for flag in flags if flag.name in given}
    config = build(table, dataclasses.replace(origin, flags=paths))
    refuse_flags(config, paths, {flag.path: flag.name for flag in flags})
    own["config"] = where
    return _named(config, where, changed=config_hash(config) != _hash_of(where)), own


def _plain(word: str, flags: Sequence[Flag]) -> str:
    """`--base.natural` as `--natural`: a knob of the inner method, named with it or not."""
    name, equals, value = word[2:].partition("=")
    name = name.replace("_", "-")
    if not word.startswith("--") or "." not in name or any(flag.name == name for flag in flags):
        return word
    # (which method it is has its own flag: to exchange it changes all of its knobs)
    knobs = [flag for flag in flags if flag.path[-1] != "name"]
    same = [flag for flag in knobs if ".".join(flag.path[1:]).replace("_", "-") == name]
    return f"--{same[0].name}{equals}{value}" if same else word


def flags_of(
    settings: Any, path: KeyPath = (), prefix: str = "", group: str = ""
) -> Iterator[Flag]:
    """Every setting in reach of `settings`, outermost first, each flag name once."""
    seen: set[str] = set()
    for flag in _walk(settings, path, prefix, group):
        if flag.name in seen:
            whole = ".".join(flag.path[1:]).replace("_", "-")
            flag = dataclasses.replace(flag, name=whole)
        if flag.name not in seen:
            seen.add(flag.name)
            yield flag


def _walk(settings: Any, path: KeyPath, prefix: str, group: str) -> Iterator[Flag]:
    groups = []
    for name, hint in hints(type(settings)).items():
        value, text = getattr(settings, name), docs(type(settings)).get(name, "")
        here, word = (*path, name), name.replace("_", "-")
        if isinstance(value, Method):
            names = tuple(dict.fromkeys((*METHODS, value.name)))
            choice = Literal[names]  # pyright: ignore[reportInvalidTypeForm]
            yield Flag(prefix + word, (*here, "name"), choice, value.name, text, group)
            groups.append((value, here, prefix, f"{name} {value.name}"))
        elif is_group(hint):
            inner = prefix if not path else f"{prefix}{word}."
            groups.append((value, here, inner, name if not path else group))
        else:
            yield Flag(prefix + word, here, hint, value, text, group)
    for each in groups:
        yield from _walk(*each)


def _first_look(argv: Sequence[str], switches: set[str]) -> tuple[str, dict[str, str]]:
    """CONFIG, and flag -> value as text. Every flag but the switches takes one value."""
    where, words, rest = "", {}, list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            where = where or ("" if word in switches else word)
        elif "=" in word:
            name, _, words[name] = word.partition("=")
        elif word not in switches and rest:
            words[word] = rest.pop(0)
    return where, words


def _with_methods(table: dict[str, Any], cls: type, words: dict[str, str]) -> dict[str, Any]:
    """The table with the methods that the command line names put in.

    A method other than the file's takes its place with all its knobs: those of one method mean
    nothing to another. Unless it goes around the file's: `--method maar --base ibp` keeps an ibp.
    """
    table = copy.deepcopy(table)
    for name, hint in hints(cls).items():
        if not (is_group(hint) and issubclass(group_class(hint), Method)):
            continue
        inner, chosen = table.get(name), words.get(f"--{name.replace('_', '-')}")
        if chosen is not None and not (isinstance(inner, dict) and inner.get("name") == chosen):
            inner = {"name": chosen, **_around(inner, chosen, words)}
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            try:
                kind = method_class(inner["name"])
            except UsageError as error:
                if chosen is None:
                    continue  # the file's mistake: told with its line when the table is built
                raise UsageError(f"--{name}: {error}") from None
            if kind is cls and chosen is not None:
                raise UsageError(
                    f"--{name} {chosen}: it cannot be its own {name} (accepted: another method)"
                )
            table[name] = _with_methods(inner, kind, words)
    return table


def _around(inner: Any, chosen: str, words: dict[str, str]) -> dict[str, Any]:
    """The file's method where the chosen one takes it, by name, as the method that it wraps."""
    if not isinstance(inner, dict) or not METHODS.accepts(chosen):
        return {}
    wrapped = [
        name
        for name, hint in hints(method_class(chosen)).items()
        if is_group(hint) and issubclass(group_class(hint), Method)
    ]
    own = inner.get("name")
    return {name: inner for name in wrapped if words.get(f"--{name.replace('_', '-')}") == own}


def _tyro(
    argv: Sequence[str],
    flags: Sequence[Flag],
    extras: Sequence[Extra],
    prog: str,
    description: str,
    helping: bool,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse by tyro. Returns flag name -> value for those given, and the extras' values."""
    import tyro

    given: dict[str, Any] = {}
    where = Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="CONFIG", help="a recipe, a TOML file, or the folder of a run"),
    ]
    fields: list[Any] = [("config_", where)]
    for extra in extras:
        kind = tyro.conf.FlagCreatePairsOff[bool] if extra.switch else str
        about = tyro.conf.arg(
            name=extra.name,
            help=extra.help,
            metavar=extra.metavar or None,
            help_behavior_hint="" if extra.switch else None,
        )
        fields.append((f"{extra.name}_", Annotated[kind, about], extra.default))
    groups: dict[str, list[Any]] = {}
    for number, flag in enumerate(flags):
        row = (f"flag_{number}", _leaf(flag, given), flag.default)
        (groups.setdefault(flag.group, []) if flag.group else fields).append(row)
    for name, rows in groups.items():
        inner = dataclasses.make_dataclass(_identifier(name), rows, frozen=True)
        inner.__doc__ = ""
        prefixless = tyro.conf.OmitArgPrefixes[Annotated[inner, tyro.conf.arg(name=name)]]
        fields.append((_identifier(name), prefixless, dataclasses.field(default_factory=inner)))
    everything = dataclasses.make_dataclass("Flags", fields, frozen=True)
    quiet = folded() if helping else contextlib.redirect_stderr(io.StringIO())
    try:
        with quiet:
            parsed, rest = tyro.cli(
                everything,
                args=["--help"] if helping else list(argv),  # alone: it hides what was given
                prog=prog,
                description=description,
                return_unknown_args=True,
            )
    except SystemExit as leave:
        if leave.code in (0, None):
            raise  # --help
        # All that is left to tyro to complain about: unknown flags and bad values are told by us.
        followed = zip(argv, [*argv[1:], "--"], strict=True)
        bare = [word for word, after in followed if word[:2] == after[:2] == "--"]
        raise UsageError(f"{bare[0] if bare else ' '.join(argv)} needs a value") from None
    if rest:
        _refuse(rest[0], flags, extras)
    own = {extra.name: getattr(parsed, f"{extra.name}_") for extra in extras}
    return given, own


def _leaf(flag: Flag, given: dict[str, Any]) -> Any:
    """The tyro type of one flag: our own conversion, so that its errors are our own too."""
    import tyro
    from tyro.constructors import PrimitiveConstructorSpec

    def take(words: list[str]) -> Any:
        (text,) = words
        try:
            given[flag.name] = parse(flag.hint, text)
        except UsageError as error:
            raise UsageError(f"--{flag.name}: {error}") from None
        except ValueError as error:
            raise UsageError(f"--{flag.name} {text}: {error}") from None
        return given[flag.name]

    def show(value: Any) -> list[str]:
        if value is None:
            return ["none"]
        if isinstance(value, tuple):
            return [",".join(map(str, value)) or "none"]
        return [str(value).lower() if isinstance(value, bool) else str(value)]

    spec = PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar(flag.hint),
        instance_from_str=take,
        is_instance=lambda value: True,
        str_from_instance=show,
    )
    return Annotated[Any, spec, tyro.conf.arg(name=flag.name, help=flag.help)]


def _refuse(word: str, flags: Sequence[Flag], extras: Sequence[Extra]) -> NoReturn:
    if not word.startswith("-"):
        hint = " (a list is one word, such as 4,2,1)" if word[:1].isdigit() else ""
        raise UsageError(
            f"unexpected argument {word!r}: there is one CONFIG, the rest are flags{hint}"
        )
    name = word.partition("=")[0]
    known = [f"--{each.name}" for each in (*flags, *extras)]
    raise UsageError(
        f"unknown flag {name!r}{nearest(name.replace('_', '-'), known)} "
        f"(accepted: {', '.join(known)})"
    )


def _identifier(text: str) -> str:
    return re.sub(r"\W", "_", text) + "_"


def put(table: dict[str, Any], path: KeyPath, value: Any) -> None:
    """Set a value of a nested table."""
    *tables, key = path
    for name in tables:
        table = table.setdefault(name, {})
    table[key] = value


def _hash_of(where: str) -> str:
    return config_hash(load(where))


def _named(config: Config, where: str, *, changed: bool) -> Config:
    """Give a run without a name that of its file; with the hash where flags made it another."""
    if config.name:
        return config
    stem = where if where in recipes() else Path(where).stem  # a recipe's name may have a dot
    name = f"{stem}-{config_hash(config)[:6]}" if changed else stem
    return dataclasses.replace(config, name=name)
