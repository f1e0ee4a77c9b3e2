"""Training methods by name. A method is one file here, one line in `METHODS`, one test row."""

from __future__ import annotations

from maar.core.registry import Registry

METHODS = Registry(
    "method",
    {
        "maar": "maar.methods.maar:MAAR",
        "mat": "maar.methods.mat:MAT",
        "colt": "maar.methods.colt:COLT",
        "standard": "maar.methods.standard:Standard",
        "pgd": "maar.methods.pgd:PGDTraining",
        "trades": "maar.methods.trades:TRADES",
        "mart": "maar.methods.mart:MART",
        "ibp": "maar.methods.ibp:IBP",
        "crown_ibp": "maar.methods.crown_ibp:CrownIBP",
        "diffai": "maar.methods.diffai:DiffAI",
        "rs": "maar.methods.rs:RS",
        "sabr": "maar.methods.sabr:SABR",
        "taps": "maar.methods.taps:TAPS",
        "staps": "maar.methods.staps:STAPS",
        "mtl_ibp": "maar.methods.mtl_ibp:MTLIBP",
        "cc_ibp": "maar.methods.cc_ibp:CCIBP",
        "exp_ibp": "maar.methods.exp_ibp:ExpIBP",
    },
    group="maar.methods",
    named=True,
)
