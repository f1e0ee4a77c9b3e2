"""Bounds: enclosures of everything a network can answer on a region.

One domain a file, each a table *module type -> rule*. `certify` takes the sound ones only.
"""

from maar.registry import Registry

BOUNDS = Registry(
    "bound",
    {
        "interval": "maar.bounds.interval:Interval",
        "zonotope": "maar.bounds.zonotope:Zonotope",
        "hybrid_zonotope": "maar.bounds.hybrid_zonotope:HybridZonotope",
        "learned_zonotope": "maar.bounds.learned_zonotope:LearnedZonotope",
        "cauchy": "maar.bounds.cauchy:Cauchy",
        "crown": "maar.bounds.crown:Crown",
        "alpha_crown": "maar.bounds.alpha_crown:AlphaCrown",
        "best_of": "maar.bounds.best_of:BestOf",
    },
)
