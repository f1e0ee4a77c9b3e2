"""What `maar certify` and `maar radius` are both asked: which network, which images, how."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from maar.certification import VERIFIERS
from maar.certification.fork_server import warm_up
from maar.certification.presets import DEFAULT, PRESETS
from maar.certification.solvers import DEFAULT as SOLVER
from maar.certification.solvers import SOLVERS
from maar.cli.subject import NETWORK, PerChannel, Subject, subject
from maar.core import limits
from maar.core.errors import UsageError, unknown
from maar.core.unpacking import read_npy

if TYPE_CHECKING:
    from maar.certification.workers import Team
    from maar.data import DataSet

OF_RUN = "(default: that of the run)"
ALL = "(default: all)"
PER_CORE = "(default: one per core, fewer for few images)"
NOT_RAY = "(default: processes here)"


@dataclass(frozen=True)
class Asked:
    """The flags of both."""

    network: Annotated[
        tyro.conf.Positional[str | None],
        tyro.conf.arg(metavar=NETWORK, help_behavior_hint=""),
    ] = None
    """The folder of a run, an ONNX file, a network of `maar zoo`, or your own module."""
    data: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint=OF_RUN)] = None
    """Data set: see `maar data list`; your own: npz:PATH or folder:PATH[?size=N]."""
    classes: Annotated[
        str | None, tyro.conf.arg(metavar="A,B,...", help_behavior_hint="(default: by name)")
    ] = None
    """Of your own data: the names of the classes in the order of their labels."""

    mask: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE.npy", help_behavior_hint="(default: everywhere)")
    ] = None
    """Where inputs move, true or false: an array that broadcasts to an input."""
    limit: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint=ALL)] = None
    """Only the first N images."""
    indices: Annotated[str | None, tyro.conf.arg(metavar="I,J,...", help_behavior_hint=ALL)] = None
    """Only these images, counted from 0, separated by commas."""
    split: Literal["test", "valid"] = "test"
    """The test images, or those that the run kept for validation: tune on the latter."""
    weights: Annotated[str, tyro.conf.arg(metavar="NAME|FILE")] = "model"
    """Of a run: model, the end of it, or a stage's, such as stage-1-last or stage-1-best. Of your
    own module: a .pt or .safetensors file with its state_dict."""
    preset: Annotated[
        str | None,
        tyro.conf.arg(metavar="|".join(PRESETS), help_behavior_hint=f"(default: {DEFAULT})"),
    ] = None
    """Which verifiers to ask: for a quick answer, for all answers, or as in the MAAR paper."""
    verifiers: Annotated[
        str | None,
        tyro.conf.arg(metavar="A,B,...", help_behavior_hint=f"(of: {', '.join(VERIFIERS)})"),
    ] = None
    """Instead of a preset: verifiers to ask, in this order, separated by commas."""
    solver: Annotated[
        str | None,
        tyro.conf.arg(metavar="|".join(SOLVERS), help_behavior_hint=f"(default: {SOLVER})"),
    ] = None
    """For verifiers milp_last, milp_conv and milp: who solves their programs."""
    mean: PerChannel = None
    """For ONNX files that take the normalised image: the mean of each channel."""
    std: PerChannel = None
    """For ONNX files that take the normalised image: the deviation of each channel."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint=PER_CORE)] = None
    """Processes, one thread each."""
    ray: Annotated[
        str | None, tyro.conf.arg(metavar="auto|ADDRESS", help_behavior_hint=NOT_RAY)
    ] = None
    """Workers on a Ray cluster: auto is the running one, or else a new one on this machine;
    HOST:PORT or ray://HOST:PORT is one that is elsewhere."""


def read(args: Asked, eps: str | None) -> Subject:
    """The network, and the data and eps to ask about."""
    if args.network is None:
        raise UsageError(
            f"{NETWORK} is needed: the folder of a run, an ONNX file, one of the zoo or your own"
        )
    if args.workers is not None and args.workers < 1:
        raise UsageError(f"--workers {args.workers} (accepted: 1 or more)")
    numbers(args.indices)
    if args.preset is not None and args.verifiers is not None:
        raise UsageError("--preset and --verifiers exclude each other: give one of them")
    if args.preset is not None and args.preset not in PRESETS:
        raise unknown("preset", args.preset, PRESETS)
    if args.solver is not None and args.solver not in SOLVERS:
        raise unknown("solver", args.solver, SOLVERS)
    if args.workers != 1 and args.ray is None:
        warm_up()  # torch is imported there while it is imported here
    return subject(
        args.network,
        args.data,
        eps,
        weights=args.weights,
        mean=args.mean,
        std=args.std,
        classes=args.classes,
    )


def team(args: Asked) -> AbstractContextManager[Team]:
    """Who does the work; of a Ray cluster, only what was started for it ends with the block."""
    if args.ray is not None:
        from maar.certification.ray_workers import cluster

        return cluster(args.ray)
    from maar.certification.workers import LOCAL

    return nullcontext(LOCAL)


def load_data(args: Asked, subject: Subject) -> DataSet:
    """The images, those for validation as the run chose them."""
    from maar.data import load

    return load(subject.data, valid=subject.valid if args.split == "valid" else 0)


def options(args: Asked, subject: Subject) -> dict[str, Any]:
    """For `make_plan`."""
    return {
        "verifiers": None if args.verifiers is None else words(args.verifiers),
        "preset": args.preset,
        "solver": args.solver,
        "limit": args.limit,
        "indices": numbers(args.indices),
        "name": subject.name,
        "split": args.split,
        "source": subject.source,
        "mask": None if args.mask is None else read_npy(args.mask, limits.COUNTEREXAMPLE_BYTES),
    }


def folder(subject: Subject, name: str) -> Path:
    """Where results go if nothing else is said."""
    return subject.folder / name if subject.is_run else subject.folder


def words(text: str) -> list[str]:
    """Of a list with commas, spaces or both."""
    return text.replace(",", " ").split()


def numbers(text: str | None) -> list[int] | None:
    """Of --indices."""
    try:
        return None if text is None else [int(word) for word in words(text)]
    except ValueError:
        raise UsageError(
            f"--indices {text!r} is not a list of numbers (accepted: such as 0,5,7)"
        ) from None
