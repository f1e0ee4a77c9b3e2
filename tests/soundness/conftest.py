"""Hypothesis settings, and this folder on the path: its tests share a few plain modules."""

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

# pytest's importlib mode adds no folder by itself.
sys.path.insert(0, str(Path(__file__).parent))

# A bound's time varies with the machine's load. On the server the same examples every time;
# at home new ones, which are printed and kept when they fail.
slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", deadline=None, suppress_health_check=slow)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
