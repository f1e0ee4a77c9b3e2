"""Networks that come with the package: `zoo:NAME`, wherever a command takes a network.

index.toml says of each which file it is, what it is for, how it was trained and what was measured;
`scripts/add_to_zoo` adds one from a run. Importing this package costs no torch.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maar.core.eps import Eps
from maar.core.errors import RunError, unknown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "zoo:"
INDEX = Path(__file__).parent / "index.toml"


@dataclass(frozen=True)
class Entry:
    """One network of the zoo, as index.toml has it."""

    name: str
    file: str
    """The weights, beside index.toml."""
    sha256: str
    """Of that file."""
    data: str
    eps: Eps
    network: str
    method: str
    command: str
    """How it was trained."""
    seed: int
    commit: str
    """Of maar, when it was trained."""
    certify: str
    """How it was measured."""
    images: int
    """Test images that it was measured on."""
    accuracy: float
    certified: float
    """CR: the share of these images that is proved."""
    certified_upper: float
    note: str = ""
    """What else one has to know, such as that the command makes another network today."""

    @property
    def path(self) -> Path:
        """Path of the weights."""
        return INDEX.parent / self.file


def is_zoo(name: str) -> bool:
    """Whether this is written as a network of the zoo."""
    return name.startswith(PREFIX)


def entries() -> dict[str, Entry]:
    """All networks by name, in the order of index.toml."""
    try:
        table = tomllib.loads(INDEX.read_text(encoding="utf-8"))
        return {name: _entry(name, row) for name, row in table.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{INDEX} is damaged: {error}") from None


def entry(name: str) -> Entry:
    """The network that `zoo:NAME` names; an unknown one is refused with the nearest match."""
    known = entries()
    found = known.get(name.removeprefix(PREFIX))
    if found is None:
        raise unknown("network", name, [PREFIX + there for there in known])
    return found


def _entry(name: str, row: dict[str, Any]) -> Entry:
    fields = [
        field.name for field in dataclasses.fields(Entry) if field.name not in ("name", "note")
    ]
    known = {field: row[field] for field in fields}
    return Entry(name, **{**known, "eps": Eps(row["eps"]), "note": row.get("note", "")})
