"""The question put to every image: is it robust, or how far? Everything that depends on which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from rich.console import RenderableType

from maar.certification.cascade import Settled
from maar.records.stores import Form
from maar.records.verdicts import Record

if TYPE_CHECKING:
    from maar.certification.run import Plan


class Count(Protocol):
    """A tally: how far the work is, and what it says."""

    images: int
    of: int

    @property
    def done(self) -> int: ...

    def add(self, record: Record) -> None: ...

    def summary(self) -> dict[str, Any]: ...


C = TypeVar("C", bound=Count)


@dataclass(frozen=True)
class Inquiry(Generic[C]):
    """The lines of a folder, how they are counted, and what is shown of the count."""

    form: Form
    record: Callable[[int, int, Settled, float], Record]
    """(index, label, settled, seconds that it had) -> the line."""
    tally: Callable[[Plan], C]
    """An empty count."""
    subject: Callable[[Plan], str]
    """The question in a few words."""
    result: Callable[[C], RenderableType]
    """The table, while it moves and at the end."""
    counts: Callable[[C], str]
    """The count in one line."""
    each: str
    """The unit of work that the time limit is for."""
