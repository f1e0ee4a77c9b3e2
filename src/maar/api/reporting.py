"""`maar.report` and `maar.compare`: what runs and certifications say, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from maar.config.idle import effective
from maar.core.errors import UsageError
from maar.reporting.compare import Compared
from maar.reporting.compare import compare as compare_runs
from maar.reporting.write import PAGE, read_report, save


def report(
    paths: str | Path | Sequence[str | Path],
    out: str | Path = "report",
    *,
    title: str = "",
    audience: str = "research",
) -> Path:
    """Write an offline page about runs and certifications, with its tables and figures as files.

    Args:
        paths: Folders of runs, folders of such folders, results of `maar certify` and
            `maar radius`, and NAME.json files of `maar reproduce`.
        out: Folder to write into: a new one, or that of an earlier report.
        title: Heading of the page.
        audience: `research`, or `audit` for a reader who must rely on a certification.

    Returns:
        The page.
    """
    listed = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not listed:
        raise UsageError("paths is empty (accepted: one or more folders)")
    made = read_report([Path(path) for path in listed], Path(out), title, audience=audience)
    save(made, Path(out))
    return Path(out) / PAGE


def compare(one: str | Path, other: str | Path, *, weights: str = "model") -> Compared:
    """Compare two certified runs image by image.

    Args:
        one: The folder of a run, or of the results of `maar certify`.
        other: Another one, about the same data and eps.
        weights: Which weights of a run were certified.

    Returns:
        Verdicts of both on the same images, settings that differ, and McNemar's test.
    """
    return compare_runs((Path(one), Path(other)), weights, effective)
