"""Training methods by name. A method is one file here, one line in `METHODS`, one test row."""

from __future__ import annotations

from maar.registry import Registry

METHODS = Registry(
    "method",
    {
        "maar": "maar.methods.maar:MAAR",
        "mat": "maar.methods.mat:MAT",
        "colt": "maar.methods.colt:COLT",
        "standard": "maar.methods.standard:Standard",
        "pgd": "maar.methods.pgd:PGDTraining",
    },
)
