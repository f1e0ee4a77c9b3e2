"""Published numbers, by system and setting, each with its source and what to keep in mind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from maar.core.errors import UsageError, unknown
from maar.core.settings import Count, Range
from maar.experiments.tables import HERE, make, read_toml, settings

FILE = HERE / "published.toml"
Percent = Annotated[float, Range(low=0, high=100)]


@dataclass(frozen=True)
class Source:
    """Where numbers were published, and how they were got."""

    title: str
    network: str
    verifier: str
    comparable: bool
    """Whether network and verifier are the paper's."""
    caveat: str = ""


@dataclass(frozen=True)
class Numbers:
    """What is known of one cell, in percent."""

    accuracy: Percent | None = None
    certified: Percent | None = None
    latent_robustness: Percent | None = None


@dataclass(frozen=True)
class Published:
    """One system in one setting, by one source."""

    system: str
    label: str
    setting: str
    numbers: Numbers
    source: Source
    stage: int = 0
    """Whose checkpoint it is of; 0: the end of the training."""
    caveat: str = ""

    @property
    def shares(self) -> dict[str, float]:
        """The known numbers, as parts of one."""
        known = {name: value for name, value in vars(self.numbers).items() if value is not None}
        return {name: round(value / 100, 6) for name, value in known.items()}

    @property
    def warning(self) -> str:
        """What to keep in mind: of this number, and of its source."""
        return "; ".join(filter(None, (self.caveat, self.source.caveat)))


@dataclass(frozen=True)
class _Entry:
    """A [[numbers]] table without its settings."""

    system: str
    source: str
    label: str = ""
    stage: Count = 0
    caveat: str = ""


def published(system: str, setting: str, stage: int = 0) -> list[Published]:
    """All numbers for one cell; the first is to be compared with."""
    return [
        entry
        for entry in everything()
        if (entry.system, entry.setting, entry.stage) == (system, setting, stage)
    ]


@cache
def everything() -> tuple[Published, ...]:
    """The shipped file."""
    return read(FILE)


def read(path: Path) -> tuple[Published, ...]:
    """Every number of a file, in its order; what is wrong with it is a `UsageError`."""
    table = read_toml(path)
    sources = {
        name: make(Source, source, f"{path}: sources.{name}")
        for name, source in table.get("sources", {}).items()
    }
    found: list[Published] = []
    for number, entry in enumerate(table.get("numbers", []), 1):
        found += _entries(entry, sources, f"{path}: numbers {number}")
    if not found:
        raise UsageError(f"{path} has no [[numbers]]")
    return tuple(found)


def _entries(table: dict[str, Any], sources: dict[str, Source], where: str) -> list[Published]:
    cells = {name: table[name] for name in settings() if name in table}
    entry = make(_Entry, {k: v for k, v in table.items() if k not in cells}, where)
    if entry.source not in sources:
        raise UsageError(f"{where}: {unknown('source', entry.source, sources)}")
    if not cells:
        raise UsageError(f"{where}: no setting (accepted: {', '.join(settings())})")
    return [
        Published(
            entry.system,
            entry.label or entry.system,
            setting,
            make(Numbers, numbers, f"{where}: {setting}"),
            sources[entry.source],
            entry.stage,
            entry.caveat,
        )
        for setting, numbers in cells.items()
    ]
