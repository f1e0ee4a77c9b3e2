"""Certification: settle each image as verified, falsified or unknown, cheap verifiers first.

    Query      one image, its ball, and the target classes that are still open
    Verifier   a query to a `Verdict`; one file each in `verifiers/`, one line in `VERIFIERS`
    Cascade    verifiers in order; each gets only the classes that those before it left open
    Store      one line per image, bound to weights, data, eps and verifiers by a key

    summary = certify(net, load("mnist"), eps=0.1, out="certs/mine")      (maar.certify.run)

Importing this package costs no torch.
"""

from __future__ import annotations

from maar.registry import Registry

VERIFIERS = Registry(
    "verifier",
    {
        "misclassified": "maar.certify.verifiers.misclassified:Misclassified",
        "interval": "maar.certify.verifiers.interval:IntervalVerifier",
        "quick_pgd": "maar.certify.verifiers.quick_pgd:QuickPgd",
        "zonotope": "maar.certify.verifiers.zonotope:ZonotopeVerifier",
        "crown": "maar.certify.verifiers.crown:CrownVerifier",
        "alpha_crown": "maar.certify.verifiers.alpha_crown:AlphaCrownVerifier",
        "pgd": "maar.certify.verifiers.pgd:Pgd",
        "pgd_paper": "maar.certify.verifiers.pgd_paper:PgdPaper",
        "pgd_strong": "maar.certify.verifiers.pgd_strong:PgdStrong",
        "bab": "maar.certify.verifiers.bab:BranchAndBound",
        "lp": "maar.certify.verifiers.lp:Lp",
        "milp_last": "maar.certify.verifiers.milp_last:MilpLast",
        "milp_conv": "maar.certify.verifiers.milp_conv:MilpConv",
        "milp": "maar.certify.verifiers.milp:Milp",
    },
)

# Cheap to dear. On a network that was not trained to be provable CROWN costs ten times what the
# quick attack does; on one that was, the full attack costs thirty times what CROWN does.
CASCADE = ("misclassified", "interval", "quick_pgd", "crown", "alpha_crown", "pgd", "bab")
