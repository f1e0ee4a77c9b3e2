"""`maar.check`: check certificates by the program that trusts nothing of maar."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from maar.certificates.folder import MANIFEST, NAME
from maar.core.errors import RunError, UsageError

if TYPE_CHECKING:
    from maar_check import Total

CLAIMS = ("real", "float32")


def check(
    folder: str | Path,
    *,
    workers: int = 1,
    sample: int | None = None,
    exact: bool = False,
    claim: str = "real",
    data: str | Path | None = None,
) -> Total:
    """Check certificates by `python -m maar_check`, in a process of its own.

    Args:
        folder: A folder of `maar certify --certificates`, or the certificates in it.
        workers: Processes, one thread each.
        sample: Number of certificates to choose at random; all by default.
        exact: Rational numbers instead of floats: for small networks, or a small sample.
        claim: `"real"` for the network in real numbers, `"float32"` for the network as computed.
        data: A data set to compare images and labels with.
    """
    for name, value in (("workers", workers), ("sample", sample)):
        if value is not None and value < 1:
            raise UsageError(f"{name} = {value} (accepted: 1 or more)")
    if claim not in CLAIMS:
        raise UsageError(f"claim = {claim!r} (accepted: {', '.join(CLAIMS)})")
    command = [sys.executable, "-m", "maar_check", str(folder_of(folder)), "--json"]
    command += ["--workers", str(workers), "--claim", claim]
    command += ["--exact"] if exact else []
    command += [] if sample is None else ["--sample", str(sample)]
    command += [] if data is None else ["--data", str(data)]
    return _total(command)


def folder_of(folder: str | Path) -> Path:
    """The folder with the manifest: the one that is named, or the certificates in it."""
    folder = Path(folder)
    for place in (folder / NAME, folder):
        # (a folder of verdicts has a manifest too, of another kind)
        if (place / MANIFEST).is_file() and (place.name == NAME or not (folder / NAME).exists()):
            return place
    raise UsageError(
        f"{folder} has no certificates (accepted: a folder of `maar certify --certificates`)"
    )


def _total(command: list[str]) -> Total:
    import maar_check

    source = str(Path(maar_check.__file__).parent.parent)
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    try:
        fields = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RunError(f"maar_check ended without a result: {lines[-1]}") from None
    fields["least"] = float(fields["least"])
    if fields.pop("holds") != (done.returncode == 0):
        raise RunError("maar_check contradicts itself")
    return maar_check.Total(**fields)
