"""Where the adversary may move: sets written as e in [-1,1]^m.

Ball            the L-infinity ball, clipped to the pixel range    (every method)
SmallBox        a small box around a point inside the ball         (SABR)
LatentBox       the interval bounds after a block                  (TAPS)
LatentZonotope  a + A e behind a ReLU                              (COLT, MAAR)
"""

from maar.regions.ball import Ball
from maar.regions.box import Box, LatentBox
from maar.regions.latent_zonotope import LatentZonotope
from maar.regions.region import Errors, Region
from maar.regions.small_box import SmallBox

__all__ = ["Ball", "Box", "Errors", "LatentBox", "LatentZonotope", "Region", "SmallBox"]
