"""How a user names data of their own: `KIND:PATH`, or `KIND:PATH?option=value&option=value`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from maar.core.errors import UsageError, unknown


@dataclass(frozen=True)
class Address:
    """A file or folder, what kind of data it holds, and how to read it."""

    kind: str
    path: Path
    options: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(name: str) -> Address:
        """Parse it. A question mark belongs to the path unless `option=value` follows."""
        kind, _, rest = name.partition(":")
        path, _, tail = rest.rpartition("?")
        if not path or "=" not in tail:
            return Address(kind, Path(rest).expanduser())
        options: dict[str, str] = {}
        for part in tail.split("&"):
            key, equals, value = part.partition("=")
            if not equals or not value or key in options:
                what = "twice" if key in options else "without a value"
                raise UsageError(
                    f"data set {name!r} has the option {key!r} {what} "
                    f"(accepted: {kind}:PATH?option=value&option=value)"
                )
            options[key] = value
        return Address(kind, Path(path).expanduser(), options)

    def __str__(self) -> str:
        """Write it as it is parsed."""
        tail = "&".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.kind}:{self.path}" + (f"?{tail}" if tail else "")

    def absolute(self) -> Address:
        """Return the same, to be found from any folder."""
        return replace(self, path=self.path.resolve())

    def having(self, **options: str) -> Address:
        """Return the same with other options."""
        return replace(self, options={**self.options, **options})

    def require_options(self, accepted: Sequence[str]) -> None:
        """Refuse an option that data of this kind do not have."""
        for key in self.options:
            if key not in accepted:
                raise unknown(f"option of {self.kind}:", key, accepted)

    def number(self, key: str) -> int | None:
        """Return an option that is a whole number above 0."""
        text = self.options.get(key)
        if text is None:
            return None
        if not text.isdecimal() or not int(text):
            raise UsageError(f"{self}: {key} is {text!r} (accepted: a whole number above 0)")
        return int(text)

    def names(self, key: str) -> tuple[str, ...]:
        """Return an option that lists two or more different names; empty if it is absent."""
        text = self.options.get(key)
        if text is None:
            return ()
        names = tuple(part.strip() for part in text.split(","))
        if len(names) < 2 or len(set(names)) < len(names) or not all(names):
            raise UsageError(
                f"{self}: {key} is {text!r} (accepted: two or more different names, with commas)"
            )
        return names
