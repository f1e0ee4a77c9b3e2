"""The interface of a verifier: a function from a query to a verdict."""

from __future__ import annotations

from typing import Protocol

from maar.certification.query import Query
from maar.certification.verdict import Verdict


class Verifier(Protocol):
    """A frozen dataclass: its `repr`, settings included, is part of the key of the results."""

    @property
    def name(self) -> str:
        """As registered."""
        ...

    def __call__(self, query: Query) -> Verdict:
        """Settle the query's open classes, or some of them, or none (UNKNOWN).

        What is raised becomes an ERROR of this image only.
        """
        ...
