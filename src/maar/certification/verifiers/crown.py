"""CROWN. What it finds stays in the query for the verifiers after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from maar.certification.crown import crown
from maar.certification.query import Query
from maar.certification.verdict import Verdict
from maar.certification.verifiers.bound import climb


@dataclass(frozen=True)
class CrownVerifier:
    """CROWN, with the ReLUs' inputs bounded by CROWN too."""

    name: ClassVar[str] = "crown"

    def __call__(self, query: Query) -> Verdict:
        """VERIFIED or UNKNOWN, with the margins."""
        return climb(query, lambda query, dtype: crown(query, dtype).lb)
