"""A finding of an audit against a folder."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Disagreement:
    """One line; `index` is the image that it is about, None where it is about the folder."""

    index: int | None
    what: str

    def __str__(self) -> str:
        return self.what if self.index is None else f"image {self.index}: {self.what}"
