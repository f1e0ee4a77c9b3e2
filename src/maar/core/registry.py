"""Names to things, one line each, imported only when asked for.

A registry maps the name that a user writes to `"module:attribute"`. Listing the
names costs no import, so `maar --help` never loads torch. A user's own things come
in as `FILE.py:NAME`, or from an installed package by an entry point.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from maar.core.errors import UsageError, unknown
from maar.core.own import is_own, own


class Registry:
    """An ordered table of name -> "module:attribute".

    `group` names the entry points of other packages that belong to it. `named`: a class that comes
    from outside takes the name that it was asked for by, as its `name`.
    """

    def __init__(
        self, what: str, entries: dict[str, str], group: str = "", *, named: bool = False
    ) -> None:
        self.what = what
        self.group = group
        self.named = named
        self._own = dict(entries)

    @cached_property
    def _entries(self) -> dict[str, str]:
        """Ours first: a package that is installed cannot take one of our names."""
        if not self.group:
            return self._own
        return {point.name: point.value for point in entry_points(group=self.group)} | self._own

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._entries if name not in self._own)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, name: str, target: str) -> None:
        """Register a plug-in: `target` is "module:attribute"."""
        self._own[name] = target
        self.__dict__.pop("_entries", None)

    def has_built_in(self, name: str) -> bool:
        """Whether this is one of maar's own names."""
        return name in self._own

    def accepts(self, name: str) -> bool:
        """Whether this is a registered name, or written as `FILE.py:NAME`."""
        return is_own(name) or name in self

    def __getitem__(self, name: str) -> Any:
        """Import and return the thing; an unknown name is a `UsageError` with the nearest match."""
        if is_own(name):
            return self._called(own(self.what, name), name)
        if name not in self:
            message = str(unknown(self.what, name, self))
            raise UsageError(f"{message}, or your own: FILE.py:NAME" if self.group else message)
        target = self._own.get(name) or self._entries[name]
        module, _, attribute = target.partition(":")
        try:
            thing = getattr(import_module(module), attribute)
            return thing if name in self._own else self._called(thing, name)
        except (ImportError, AttributeError) as error:
            if name in self._own and module.startswith("maar."):
                raise
            raise UsageError(
                f"{self.what} {name!r} of the entry point {target!r} cannot be imported: {error}"
            ) from error

    def _called(self, thing: Any, name: str) -> Any:
        if self.named and isinstance(thing, type):
            thing.name = name  # pyright: ignore[reportAttributeAccessIssue]
        return thing
