"""Decide any property (`maar.core.spec`): does some input of a box give an output that is unsafe?

    Question   a box, and its conditions (unsafe outputs) that are still open
    Board      the questions, what is proved of them, and a witness once there is one
    Step       works on the board in turns
    decide     gives the turns, until the property is settled or time is up

A step is one file and one line in `STEPS`; importing this package costs no torch.
"""

from __future__ import annotations

from maar.core.registry import Registry

STEPS = Registry(
    "step",
    {
        "attack": "maar.certification.properties.attack:QUICK",
        "bounds": "maar.certification.properties.bounds:BOUNDS",
        "strong_attack": "maar.certification.properties.attack:STRONG",
        "branching": "maar.certification.properties.branching:BRANCHING",
        "splitting": "maar.certification.properties.splitting:SPLITTING",
    },
)
