"""Names in a configuration that lead somewhere: checked when written, before anything is loaded."""

from __future__ import annotations

import re

from maar.core.errors import UsageError, nearest, unknown


def check_name(name: str) -> None:
    """A run's name is one folder name, for it becomes runs/NAME."""
    if name and (re.search(r"[/\\\x00-\x1f]", name) or name.startswith((".", "-"))):
        raise UsageError(
            f"name = {name!r} is not a folder name (accepted: no / or \\, no . or - in front)"
        )


def check_data(name: str) -> None:
    """A known data set, or a user's own with a format in front."""
    from maar.data import source

    source(name)


def check_network(name: str) -> None:
    """A registered network, or a file (looked at when the network is built)."""
    from maar.networks import NETWORKS

    if name in NETWORKS or ".py:" in name or name.endswith((".py", ".onnx")):
        return
    try:
        NETWORKS[name]
    except UsageError as error:
        raise UsageError(f"{error}, or your own: FILE.py:FUNCTION") from None


def check_device(name: str) -> None:
    """A device as torch writes it; whether this machine has it is asked when the run starts."""
    accepted = ("auto", "cpu", "cuda", "cuda:N", "mps")
    if name not in accepted[:3] and name != "mps" and not re.fullmatch(r"cuda:\d+", name):
        raise UsageError(
            f"device = {name!r} is unknown{nearest(name, accepted)} "
            f"(accepted: {', '.join(accepted)})"
        )


def check_augment(name: str) -> None:
    """A known augmentation, or the data set's own."""
    from maar.data.augment import AUGMENTS

    if name not in ("auto", *AUGMENTS):
        raise unknown("augmentation", name, ["auto", *AUGMENTS])
