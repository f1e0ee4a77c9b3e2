"""Train neural networks whose robustness is proved, and prove it, input by input.

    result = maar.certify(model, x, y, eps="2/255")
    result.verified                                    # bool per image

Names are imported when they are first used: `import maar` costs no torch.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
with suppress(ImportError):  # (in a wheel, where the build has written it)
    from maar._version import VERSION as __version__  # pyright: ignore[reportMissingImports]

_HOMES = {
    "maar.api.bounding": ("attack", "bounds"),
    "maar.api.certificates": ("check",),
    "maar.api.certifying": ("certify", "radius"),
    "maar.api.checking": ("audit", "verify"),
    "maar.api.converting": ("convert",),
    "maar.api.loading": ("load",),
    "maar.api.methods": ("PGD",),
    "maar.api.reporting": ("compare", "report"),
    "maar.api.training": ("evaluate", "train"),
    "maar.core.eps": ("Eps",),
    "maar.core.errors": ("MaarError", "RunError", "UsageError"),
    "maar.domains.alpha_crown": ("AlphaCrown",),
    "maar.domains.cauchy.estimate": ("Cauchy",),
    "maar.domains.crown": ("Crown",),
    "maar.domains.hybrid_zonotope": ("HybridZonotope",),
    "maar.domains.interval": ("Interval",),
    "maar.domains.zonotope": ("Zonotope",),
    "maar.methods.base": ("Method",),
    "maar.methods.cc_ibp": ("CCIBP",),
    "maar.methods.colt": ("COLT",),
    "maar.methods.crown_ibp": ("CrownIBP",),
    "maar.methods.diffai": ("DiffAI",),
    "maar.methods.exp_ibp": ("ExpIBP",),
    "maar.methods.ibp": ("IBP",),
    "maar.methods.maar": ("MAAR",),
    "maar.methods.mart": ("MART",),
    "maar.methods.mat": ("MAT",),
    "maar.methods.mtl_ibp": ("MTLIBP",),
    "maar.methods.rs": ("RS",),
    "maar.methods.sabr": ("SABR",),
    "maar.methods.standard": ("Standard",),
    "maar.methods.staps": ("STAPS",),
    "maar.methods.taps": ("TAPS",),
    "maar.methods.trades": ("TRADES",),
    "maar.networks.layers": ("Normalize", "Residual"),
    "maar.regions": ("Ball", "Box", "LatentBox", "LatentZonotope", "SmallBox"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'maar' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from maar.api.bounding import attack as attack
    from maar.api.bounding import bounds as bounds
    from maar.api.certificates import check as check
    from maar.api.certifying import certify as certify
    from maar.api.certifying import radius as radius
    from maar.api.checking import audit as audit
    from maar.api.checking import verify as verify
    from maar.api.converting import convert as convert
    from maar.api.loading import load as load
    from maar.api.methods import PGD as PGD
    from maar.api.reporting import compare as compare
    from maar.api.reporting import report as report
    from maar.api.training import evaluate as evaluate
    from maar.api.training import train as train
    from maar.core.eps import Eps as Eps
    from maar.core.errors import MaarError as MaarError
    from maar.core.errors import RunError as RunError
    from maar.core.errors import UsageError as UsageError
    from maar.domains.alpha_crown import AlphaCrown as AlphaCrown
    from maar.domains.cauchy.estimate import Cauchy as Cauchy
    from maar.domains.crown import Crown as Crown
    from maar.domains.hybrid_zonotope import HybridZonotope as HybridZonotope
    from maar.domains.interval import Interval as Interval
    from maar.domains.zonotope import Zonotope as Zonotope
    from maar.methods.base import Method as Method
    from maar.methods.cc_ibp import CCIBP as CCIBP
    from maar.methods.colt import COLT as COLT
    from maar.methods.crown_ibp import CrownIBP as CrownIBP
    from maar.methods.diffai import DiffAI as DiffAI
    from maar.methods.exp_ibp import ExpIBP as ExpIBP
    from maar.methods.ibp import IBP as IBP
    from maar.methods.maar import MAAR as MAAR
    from maar.methods.mart import MART as MART
    from maar.methods.mat import MAT as MAT
    from maar.methods.mtl_ibp import MTLIBP as MTLIBP
    from maar.methods.rs import RS as RS
    from maar.methods.sabr import SABR as SABR
    from maar.methods.standard import Standard as Standard
    from maar.methods.staps import STAPS as STAPS
    from maar.methods.taps import TAPS as TAPS
    from maar.methods.trades import TRADES as TRADES
    from maar.networks.layers import Normalize as Normalize
    from maar.networks.layers import Residual as Residual
    from maar.regions import Ball as Ball
    from maar.regions import Box as Box
    from maar.regions import LatentBox as LatentBox
    from maar.regions import LatentZonotope as LatentZonotope
    from maar.regions import SmallBox as SmallBox
