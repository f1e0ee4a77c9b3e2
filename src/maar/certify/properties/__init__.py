"""Decide any property (`maar.spec`): does some input of a box give an output that is unsafe?

    Question   a box, and its conditions (unsafe outputs) that are still open
    Step       a question to an `Answer`: conditions proved out of reach, or a point that meets one
    decide     the steps in order, over every box, until the property is settled or time is up

A step is one file and one line in `STEPS`; importing this package costs no torch.
"""

from __future__ import annotations

from maar.registry import Registry

STEPS = Registry(
    "step",
    {
        "attack": "maar.certify.properties.attack:QUICK",
        "bounds": "maar.certify.properties.bounds:BOUNDS",
        "strong_attack": "maar.certify.properties.attack:STRONG",
        "branching": "maar.certify.properties.branching:BRANCHING",
        "splitting": "maar.certify.properties.splitting:SPLITTING",
    },
)
