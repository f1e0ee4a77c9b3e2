"""Bounds: enclosures of everything a network can answer on a region.

One domain a file, each a table *module type -> rule*. `certify` takes the sound ones only.
"""

from maar.core.registry import Registry

BOUNDS = Registry(
    "bound",
    {
        "interval": "maar.domains.interval:Interval",
        "zonotope": "maar.domains.zonotope:Zonotope",
        "hybrid_zonotope": "maar.domains.hybrid_zonotope:HybridZonotope",
        "learned_zonotope": "maar.domains.learned_zonotope:LearnedZonotope",
        "cauchy": "maar.domains.cauchy.estimate:Cauchy",
        "crown": "maar.domains.crown:Crown",
        "alpha_crown": "maar.domains.alpha_crown:AlphaCrown",
    },
    group="maar.bounds",
)
