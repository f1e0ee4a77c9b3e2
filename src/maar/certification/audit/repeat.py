"""Ask again the bounds that a line names: for these the same question has the same answer.

This is maar's own code and no second opinion. It shows a line that the verifier did not write: a
bound that was raised, or a proof by a bound that does not prove it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from maar.certification import VERIFIERS
from maar.certification.audit.lines import BOUNDS
from maar.certification.cascade import Cascade
from maar.certification.network import Network
from maar.certification.presets import PRESETS
from maar.certification.query import Query
from maar.certification.verdict import Status
from maar.certification.verifier import Verifier
from maar.regions.perturbation import Perturbation

SECONDS = 120.0
"""For all bounds of an image; certification gives as many by default."""
# What two machines may differ by: a share of the bound, and a share of the margin. alpha-CROWN
# follows roundings a little. The zonotope's learned slopes are chaotic: on a small network, a
# change of eps by 1e-13 moves its bound by up to 1 % of the margin.
TOLERANCES = {
    "interval": (1e-5, 1e-5),
    "crown": (1e-5, 1e-5),
    "alpha_crown": (0.02, 1e-4),
    "zonotope": (0.0, 0.05),
}


@dataclass(frozen=True)
class Repeated:
    """The lower bounds that were found again, by class."""

    lb: Mapping[int, float]
    names: tuple[str, ...]
    """The bounds that gave them."""

    def slack(self, lb: float, margin: float) -> float:
        """Return by how much an honest bound may differ from those found again."""
        relative, absolute = (max(TOLERANCES[name][n] for name in self.names) for n in (0, 1))
        return relative * abs(lb) + absolute * max(1.0, abs(margin))


def rebuild(settings: Mapping[str, str]) -> dict[str, Verifier]:
    """Return the bounds of a manifest by name; without those whose settings are not known here."""
    made = {}
    for name, spelled in settings.items():
        if name not in BOUNDS:
            continue
        own = [preset[name] for preset in PRESETS.values() if name in preset]
        for options in ({}, *own):
            verifier = VERIFIERS[name](**options)
            if repr(verifier) == spelled:
                made[name] = verifier
    return made


def repeat(
    bounds: Mapping[str, Verifier],
    names: Sequence[str],
    network: Network,
    x: Tensor,
    y: int,
    eps: float,
    moves: Perturbation | None = None,
) -> Repeated | None:
    """Ask the bounds among `names` in turn; None if one is not known here, or time was up."""
    asked = [name for name in names if name in BOUNDS]
    if not asked or any(name not in bounds for name in asked):
        return None
    cascade = Cascade(tuple(bounds[name] for name in asked), timeout=SECONDS)
    query, start = Query.of(network, x, y, eps, moves=moves), time.monotonic()
    (begun,) = cascade.begin([query])
    settled = begun if begun.is_final else cascade.settle(query, begun)
    if settled.status is Status.ERROR or time.monotonic() - start > SECONDS:
        return None
    return Repeated(dict(settled.lb), tuple(asked))
