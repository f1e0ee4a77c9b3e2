"""Names to things, one line each, imported only when asked for.

A registry maps the name that a user writes to `"module:attribute"`. Listing the
names costs no import, so `maar --help` never loads torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from maar.core.errors import unknown


class Registry:
    """An ordered table of name -> "module:attribute"."""

    def __init__(self, what: str, entries: dict[str, str]) -> None:
        self.what = what
        self._entries = dict(entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, name: str, target: str) -> None:
        """Register a plug-in: `target` is "module:attribute"."""
        self._entries[name] = target

    def __getitem__(self, name: str) -> Any:
        """Import and return the thing; an unknown name is a `UsageError` with the nearest match."""
        if name not in self._entries:
            raise unknown(self.what, name, self._entries)
        module, _, attribute = self._entries[name].partition(":")
        return getattr(import_module(module), attribute)
