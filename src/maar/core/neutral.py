"""Settings that do not change the experiment: where a run is computed, and how it is watched.

Threads and devices can change the last bits of a float; `env.json` has them.
"""

from __future__ import annotations

PLACE = ("name", "threads", "device", "devices")
# Within the table `train`.
WATCH = ("latent_images", "latent_steps", "test_accuracy", "checkpoint_every", "checkpoint_minutes")
NEUTRAL = (*PLACE, *(f"train.{name}" for name in WATCH))
"""All of them as dotted keys of a configuration."""
