"""`maar export NETWORK`: hand a network, and questions about it, to other verifiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from maar.cli.parse import parse
from maar.cli.subject import NETWORK, PerChannel, read_network
from maar.core.eps import Eps
from maar.core.errors import UsageError
from maar.core.files import locked

if TYPE_CHECKING:
    from torch import nn

    from maar.data import DataSet

OF_RUN = "(default: that of the run, or of --open)"
NONE = "(default: none)"


@dataclass(frozen=True)
class Export:
    """Write a network as an ONNX file, and images as VNNLIB properties that other verifiers read.

    The ONNX file takes pixels in [0, 1]; what normalises them is inside.
    """

    network: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar=NETWORK)]
    """The folder of a run, an ONNX file, a network of `maar zoo`, or FILE.py:NAME."""
    weights: Annotated[str, tyro.conf.arg(metavar="NAME|FILE")] = "model"
    """Of a run: model, the end of it, or a stage's, such as stage-1-last or stage-1-best.
    Of FILE.py:NAME: a file with its state_dict."""
    onnx: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint=NONE)] = None
    """Write the network to this file."""
    vnnlib: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint=NONE)] = None
    """Write net.onnx, one property per image, and instances.csv into this folder."""
    indices: Annotated[str | None, tyro.conf.arg(metavar="I,J,...", help_behavior_hint=NONE)] = None
    """For --vnnlib: these test images, counted from 0, separated by commas."""
    open: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint=NONE)] = None
    """For --vnnlib: the images that this folder of `maar certify` has left open."""
    data: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint=OF_RUN)] = None
    """Data set of the images."""
    eps: Annotated[str | None, tyro.conf.arg(metavar="EPS", help_behavior_hint=OF_RUN)] = None
    """L-infinity radius on pixels in [0, 1], such as 0.1 or 2/255."""
    version: Literal["1.0", "2.0"] = "1.0"
    """Version of the VNNLIB files. Most verifiers read 1.0 only."""
    timeout: Annotated[float, tyro.conf.arg(metavar="S")] = 300.0
    """Seconds per image that instances.csv allows."""
    batch: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: any number)")
    ] = None
    """Fix the number of images that the ONNX file takes at once."""
    mean: PerChannel = None
    """For ONNX files that take the normalised image: the mean of each channel."""
    std: PerChannel = None
    """For ONNX files that take the normalised image: the deviation of each channel."""


@dataclass(frozen=True)
class Subject:
    """What the positional argument names."""

    net: nn.Sequential
    shape: tuple[int, ...]
    data: str | None
    eps: Eps | None


@dataclass(frozen=True)
class Images:
    """Which images, and the radius around them."""

    data: DataSet
    indices: list[int]
    eps: Eps


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = parse(Export, "maar export", argv)
    if args.onnx is None and args.vnnlib is None:
        raise UsageError("nothing to write: give --onnx FILE or --vnnlib DIR")
    if args.vnnlib is None and (args.indices or args.open):
        raise UsageError("--indices and --open are for --vnnlib DIR")
    if args.vnnlib is not None and (args.indices is None) == (args.open is None):
        raise UsageError("--vnnlib needs --indices I,J,... or --open DIR, one of them")
    if not 0 < args.timeout < float("inf"):
        raise UsageError(f"--timeout {args.timeout} (accepted: a number of seconds > 0)")
    subject = _subject(args)
    images = None
    if args.open is not None:
        images = _left_open(args, subject, args.open)
    elif args.indices is not None:
        images = _chosen(args, subject, args.indices)

    from maar.exchange.onnx_out import write_onnx

    if args.onnx is not None:
        write_onnx(subject.net, args.onnx, subject.shape, batch=args.batch)
        print(f"network in {args.onnx}")
    if args.vnnlib is not None and images is not None:
        if not images.indices:
            print(f"no image is open in {args.open}: nothing written to {args.vnnlib}")
            return 0
        write_onnx(subject.net, args.vnnlib / "net.onnx", subject.shape, batch=args.batch)
        _write_properties(args, images, args.vnnlib)
        print(f"{len(images.indices)} properties, net.onnx and instances.csv in {args.vnnlib}")
    return 0


def _subject(args: Export) -> Subject:
    named = read_network(
        args.network, weights=args.weights, mean=args.mean, std=args.std, data=args.data
    )
    shape = named.shape
    if shape is None:
        from maar.data import info

        assert named.data is not None
        shape = tuple(info(named.data).shape)
    return Subject(named.net, shape, named.data, named.eps)


def _chosen(args: Export, subject: Subject, indices: str) -> Images:
    from maar.data import load

    data, eps = args.data or subject.data, args.eps or subject.eps
    for flag, value in (("data", data), ("eps", eps)):
        if value is None:
            raise UsageError(f"--{flag} is needed: an ONNX file does not say it")
    assert data is not None
    assert eps is not None
    try:
        numbers = [int(word) for word in indices.split(",")]
    except ValueError:
        raise UsageError(
            f"--indices {indices!r} is not a list of numbers (accepted: such as 0,5,7)"
        ) from None
    radius = eps if isinstance(eps, Eps) else Eps(eps)
    return _checked(Images(load(data), list(dict.fromkeys(numbers)), radius), subject)


def _left_open(args: Export, subject: Subject, store: Path) -> Images:
    """The open images of a certification of this very network."""
    from maar.data import load
    from maar.networks import weights_hash
    from maar.records.stores import LOCK, VERDICT_LINES, read_manifest

    if args.data is not None or args.eps is not None:
        raise UsageError("--open says which data and eps: leave --data and --eps out")
    about = read_manifest(store)
    if not about.eps:
        raise UsageError(f"{store} is not a folder of `maar certify`")
    if about.hash != weights_hash(subject.net):
        raise UsageError(f"{store} is about another network than {args.network}")
    data = load(about.data)
    if data.sha256 != about.subject["data"]:
        raise UsageError(f"{store} is about other images than those of {about.data} here")
    with locked(store / LOCK, wait=False):  # a line being written would look like a torn one
        records = VERDICT_LINES.read(store).records
    found = sorted(i for i, line in records.items() if line["verdict"] in ("unknown", "error"))
    return _checked(Images(data, found, Eps(about.eps)), subject)


def _checked(images: Images, subject: Subject) -> Images:
    from maar.networks.checking import spell, trace

    data, there = images.data, images.data.size("test")
    if tuple(data.shape) != tuple(subject.shape):
        raise UsageError(
            f"the network takes {spell(subject.shape)}, images of {data.name} are "
            f"{spell(data.shape)}"
        )
    out = trace(subject.net, subject.shape)[-1].shape
    if out != (len(data.classes),):
        raise UsageError(
            f"the network gives {spell(out)} outputs, {data.name} has {len(data.classes)} classes"
        )
    for index in images.indices:
        if not 0 <= index < there:
            raise UsageError(
                f"index {index} is not a test image of {data.name} (accepted: 0 to {there - 1})"
            )
    return images


def _write_properties(args: Export, images: Images, folder: Path) -> None:
    from maar.exchange.instances import Instance, write_instances
    from maar.exchange.vnnlib import write_vnnlib

    data, eps = images.data, images.eps
    classes = len(data.classes)
    name = "".join(c if c.isalnum() else "_" for c in data.name)
    radius = str(eps).replace("/", "_")
    instances = []
    for index in images.indices:
        x, y = data.images("test", [index])[0].numpy(), int(data.labels("test", [index])[0])
        file = f"{name}_{index}_eps_{radius}.vnnlib"
        comment = f"test image {index} of {data.name}, class {y}, eps {eps}"
        write_vnnlib(folder / file, x, eps, y, classes, version=args.version, comment=comment)
        instances.append(Instance("net.onnx", file, args.timeout))
    write_instances(folder / "instances.csv", instances)
