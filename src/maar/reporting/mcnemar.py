"""Two systems on the same images: is the difference of their shares more than chance?

Of n images the first alone succeeds on b, the second alone on c; only these b + c tell the two
apart. If both were equally good, b would be binomial with b + c tosses of a fair coin (McNemar
1947). The exact test is cautious; the mid-p version counts half of what was observed (Fagerland et
al. 2013).
"""

from __future__ import annotations

import math

Z95 = 1.959964


def p_values(b: int, c: int) -> tuple[float, float]:
    """Two-sided, exact and mid-p; 1 where nothing tells the two apart."""
    tosses, few = b + c, min(b, c)
    if not tosses:
        return 1.0, 1.0
    # In whole numbers: no rounding, whatever the size.
    ways, tail = 1, 1
    for k in range(1, few + 1):
        ways = ways * (tosses - k + 1) // k
        tail += ways
    whole = 2**tosses
    exact = min(1.0, 2 * tail / whole)
    return exact, min(1.0, (2 * tail - ways) / whole)


def difference(b: int, c: int, n: int) -> tuple[float, float, float]:
    """(b - c) / n, and its 95 % interval by Bonett and Price's adjusted Wald method (2012)."""
    one, other = (b + 1) / (n + 2), (c + 1) / (n + 2)
    reach = Z95 * math.sqrt((one + other - (one - other) ** 2) / (n + 2))
    return (b - c) / n, max(-1.0, one - other - reach), min(1.0, one - other + reach)
