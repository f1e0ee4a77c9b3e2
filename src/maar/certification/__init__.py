"""Certification: settle each image as verified, falsified or unknown, cheap verifiers first.

    Query      one image, its ball, and the target classes that are still open
    Verifier   a query to a `Verdict`; one file each in `verifiers/`, one line in `VERIFIERS`
    Cascade    verifiers in order; each gets only the classes that those before it left open
    Store      one line per image, bound to weights, data, eps and verifiers by a key

    summary = certify(net, load("mnist"), eps=0.1, out="certs/mine")      (maar.certification.run)

Importing this package costs no torch.
"""

from __future__ import annotations

from maar.core.registry import Registry

VERIFIERS = Registry(
    "verifier",
    {
        "misclassified": "maar.certification.verifiers.misclassified:Misclassified",
        "interval": "maar.certification.verifiers.interval:IntervalVerifier",
        "quick_pgd": "maar.certification.verifiers.quick_pgd:QuickPgd",
        "zonotope": "maar.certification.verifiers.zonotope:ZonotopeVerifier",
        "crown": "maar.certification.verifiers.crown:CrownVerifier",
        "alpha_crown": "maar.certification.verifiers.alpha_crown:AlphaCrownVerifier",
        "pgd": "maar.certification.verifiers.pgd:Pgd",
        "pgd_paper": "maar.certification.verifiers.pgd_paper:PgdPaper",
        "pgd_strong": "maar.certification.verifiers.pgd_strong:PgdStrong",
        "bab": "maar.certification.verifiers.bab:BranchAndBound",
        "lp": "maar.certification.verifiers.lp:Lp",
        "milp_last": "maar.certification.verifiers.milp_last:MilpLast",
        "milp_conv": "maar.certification.verifiers.milp_conv:MilpConv",
        "milp": "maar.certification.verifiers.milp:Milp",
    },
    group="maar.verifiers",
)

# Cheap to dear. On a network that was not trained to be provable CROWN costs ten times what the
# quick attack does; on one that was, the full attack costs thirty times what CROWN does.
CASCADE = ("misclassified", "interval", "quick_pgd", "crown", "alpha_crown", "pgd", "bab")
