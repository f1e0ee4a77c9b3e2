"""The colours of series: the same method has the same one in every figure, on page and on paper."""

from __future__ import annotations

from collections.abc import Sequence

from maar.reporting.model import Series

PALETTE: tuple[tuple[str, str], ...] = (
    ("#14699b", "#6bb3e6"),
    ("#c65538", "#ef8a70"),
    ("#2b8a66", "#67c89e"),
    ("#8659ac", "#bb98e0"),
    ("#bd8118", "#e5b34e"),
    ("#3d97a9", "#7acddb"),
    ("#ad4379", "#e284b3"),
    ("#6c7480", "#9ca5b1"),
    ("#76842a", "#b4c362"),
    ("#8a5a44", "#cb9d86"),
)
"""(on a light ground, on a dark one)"""
USUAL = {"maar(colt)": 0, "maar": 0, "colt": 1, "mat": 2, "ibp": 3, "crown_ibp": 4, "sabr": 5}
"""Methods that are in most reports, by name; others get what is left."""


def slots(series: Sequence[Series]) -> list[int]:
    """The place in `PALETTE` of each series; those of one group share it."""
    groups = list(dict.fromkeys(one.group or one.name for one in series))
    taken: dict[str, int] = {}
    for group in groups:
        usual = USUAL.get(group.lower())
        if usual is not None and usual not in taken.values():
            taken[group] = usual
    free = [slot for slot in range(len(PALETTE)) if slot not in taken.values()]
    rest = [group for group in groups if group not in taken]
    for number, group in enumerate(rest):
        slots_left = free or list(range(len(PALETTE)))
        taken[group] = slots_left[number % len(slots_left)]
    return [taken[one.group or one.name] for one in series]
