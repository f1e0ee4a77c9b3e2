"""Boxes forwards and linear bounds backwards: the two steps that every lemma and leaf is made of.

Numbers in brackets refer to the README, which argues each step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maar_check.arithmetic import LOST, Array, Floats, Numbers
from maar_check.layers import Affine, Relu, Reshape, Sum
from maar_check.network import Network
from maar_check.refusal import require
from maar_check.rows import Rows

TOGETHER = 1 << 21  # numbers in the largest value of all rows that are bounded at once
FLOAT32, LARGEST32 = 2.0**-24, 2.0**120  # one rounding of float32; no sum may reach the other
FLUSHED = 2.0**-125  # more than float32 may flush to zero in one step
