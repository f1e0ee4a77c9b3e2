"""Find a bad point in a region: one loop for every region.

PGD     sign-gradient steps: training, metrics, and the paper's certification
APGD    adaptive steps: certification
search  a sequence of attacks whose finds are confirmed by a plain forward pass
"""

from maar.attacks.apgd import APGD
from maar.attacks.attack import Attack
from maar.attacks.losses import margin
from maar.attacks.pgd import PGD
from maar.attacks.search import PAPER, STRONG, Found, search

__all__ = ["APGD", "PAPER", "PGD", "STRONG", "Attack", "Found", "margin", "search"]
