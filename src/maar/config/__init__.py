"""The configuration of a run: frozen dataclasses, from which TOML and flags are both made.

config = load("demo")                        a shipped recipe, a TOML file or a run's folder
config = Config(method=PGDTraining(), eps="2/255")
to_toml(config)                              the whole of it, every default written out
config_hash(config)                          the same for the same experiment
"""

from __future__ import annotations

from maar.config.config import Config, TrainConfig
from maar.config.dump import config_hash, differing, to_toml
from maar.config.load import load, recipes

__all__ = [
    "Config",
    "TrainConfig",
    "config_hash",
    "differing",
    "load",
    "recipes",
    "to_toml",
]
