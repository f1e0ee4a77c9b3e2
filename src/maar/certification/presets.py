"""Named cascades: which verifiers to ask, in which order and with which settings.

    fast       no solver and no branching: a first answer, and most of the last one
    complete   cheap to dear, until every image is settled (the default)
    paper      Algorithm 2 of the MAAR paper, for figures to be compared with its own

Importing this costs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maar.certification import CASCADE, VERIFIERS
from maar.core.errors import UsageError, unknown

if TYPE_CHECKING:
    from maar.certification.cascade import Cascade

DEFAULT = "complete"

# Verifier -> its settings, where they are not the verifier's own.
Preset = Mapping[str, Mapping[str, Any]]

PRESETS: dict[str, Preset] = {
    "fast": {name: {} for name in CASCADE if name != "bab"},
    "complete": {name: {} for name in CASCADE},
    # The paper's "DiffAI-v3" is read as COLT's zonotope with learned slopes: 500 iterations, of
    # which each hundred has a tenth of the learning rate before. The 50 binaries are chosen at
    # learned slopes. COLT refines the second convolution's neurons by an LP each before its MILPs.
    "paper": {
        "misclassified": {},
        "pgd_paper": {},
        "zonotope": {"iterations": 500, "lr": 0.1, "period": 100},
        "milp_last": {"refinement": "lp"},
        "milp_conv": {"refinement": "lp", "max_binary": 50, "slope_iterations": 500},
    },
}


def cascade(preset: str) -> Cascade:
    """The verifiers of a preset; an unknown name is a `UsageError`."""
    from maar.certification.cascade import Cascade

    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    chosen = PRESETS[preset].items()
    return Cascade(tuple(VERIFIERS[name](**settings) for name, settings in chosen))


def choose(verifiers: Sequence[str] | None, preset: str | None) -> tuple[str, Cascade]:
    """The preset's name ("" for verifiers of the caller's own choice) and its cascade."""
    from maar.certification.cascade import Cascade

    if verifiers is None:
        preset = DEFAULT if preset is None else preset
        return preset, cascade(preset)
    if preset is not None:
        raise UsageError(
            f"preset {preset!r} and a list of verifiers exclude each other: give one of them"
        )
    return "", Cascade.named(verifiers)
