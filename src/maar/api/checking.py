"""`maar.verify` and `maar.audit`: decide a VNN-COMP question, check a certification again."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maar.api.loading import MODEL, read_network
from maar.core.errors import RunError, UsageError
from maar.core.own import is_own, path_of
from maar.zoo import is_zoo

if TYPE_CHECKING:
    from torch import nn

    from maar.certification.audit.folder import Folder
    from maar.certification.audit.points import Runner
    from maar.certification.audit.run import Report
    from maar.certification.properties.decide import Decision
    from maar.data import DataSet

TIMEOUT = 60.0
# Seconds that a step may take to notice by itself that time is up.
GRACE = 1.0


def verify(
    network: str | Path,
    property: str | Path,
    *,
    timeout: float = TIMEOUT,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    weights: str = MODEL,
    data: str | None = None,
) -> Decision:
    """Decide whether an input meets a VNNLIB property: sat, unsat, unknown or timeout.

    Args:
        network: An ONNX file, plain or gzipped, `zoo:NAME`, or `FILE.py:NAME`.
        property: A VNNLIB file of version 1.0 or 2.0, plain or gzipped.
        timeout: Seconds for reading and deciding together.
        mean: For ONNX files that take the normalised image: the mean of each channel.
        std: For ONNX files that take the normalised image: the deviation of each channel.
        weights: For `FILE.py:NAME`: a .pt or .safetensors file with its state_dict.
        data: For `FILE.py:NAME`: the data set whose shape and classes it is built for.

    Returns:
        A `Decision` with `verdict`, `witness`, `by`, `seconds`, `reason` and the steps' `log`.
    """
    from maar.core import clock

    begin = clock.now()
    from maar.certification.alarm import TimeUp, alarm
    from maar.certification.properties import STEPS
    from maar.certification.properties.decide import Decision, decide
    from maar.exchange.runtime import onnx_runner
    from maar.exchange.vnnlib import read_vnnlib

    name, prop = str(network), Path(property)
    for step in STEPS:
        assert STEPS[step] is not None  # imported now: an import must not be cut short
    try:
        left = max(0.0, begin + timeout - clock.now())
        # (The alarm rings by the wall clock.)
        with alarm(math.inf if clock.is_cpu_time() else left + GRACE):
            asked = read_vnnlib(prop)
            named = read_network(name, mean=mean, std=std, weights=weights, data=data)
            assert named.shape is not None
            runner = None if is_zoo(name) or is_own(name) else onnx_runner(name, mean=mean, std=std)
            left = max(0.0, begin + timeout - clock.now())
            try:
                return decide(named.net, named.shape, asked, timeout=left, runner=runner)
            except UsageError as error:
                raise UsageError(f"{name} and {prop}: {error}") from None
    except TimeUp:
        reason = "a computation had to be interrupted"
        return Decision("timeout", None, clock.now() - begin, reason=reason)
    except MemoryError:
        raise RunError(f"{name} and {prop}: no memory to decide this") from None


def audit(
    store: str | Path,
    *,
    network: str | None = None,
    data: str | None = None,
    indices: Sequence[int] | None = None,
    restarts: int = 2,
    complete: float = 0.0,
    seed: int = 1,
    workers: int | None = None,
) -> Report:
    """Check every verdict of a certification again, by code that shares nothing with the verifiers.

    Args:
        store: A folder that `maar certify` or `CertifyResult.save` wrote.
        network: The network, where it has moved: a run's folder, an ONNX file or `zoo:NAME`.
        data: The data set, where it has another name now.
        indices: Only these images.
        restarts: Starts of the attack on each verified or unknown image.
        complete: Seconds for another complete verifier on each verified image that the audit's own
            bounds leave open; 0: none.
        seed: Seed of the attack.
        workers: Processes, one thread each.

    Returns:
        A report; `report.wrong` lists disagreements and is empty if the certification holds.
    """
    require_onnxruntime()
    from maar.certification.audit.folder import read_folder
    from maar.certification.audit.run import Strength
    from maar.certification.audit.run import audit as check
    from maar.certification.workers import default_workers
    from maar.data import load

    folder = read_folder(Path(store))
    name, source = network_of_store(folder, network, {})
    where = data or folder.source.get("data") or folder.manifest["data"]
    options = {key: source.get(key) and tuple(source[key]) for key in ("mean", "std")}
    named = read_network(name, weights=source.get("weights") or MODEL, data=where, **options)
    images = load(where, valid=folder.valid)
    chosen = sorted(folder.records) if indices is None else sorted(set(indices))
    return check(
        folder,
        named.net,
        images,
        runner_of(name, named.net, images, options),
        strength=Strength(restarts, complete, seed),
        indices=chosen,
        workers=workers or default_workers(len(chosen)),
        name=named.name if network is None and name == source.get("network") else None,
    )


def require_onnxruntime() -> None:
    """Raise a `RunError` if onnx or onnxruntime is missing."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        raise RunError(
            "the audit computes the network by onnxruntime too: pip install 'maar[onnx]'"
        ) from None


def network_of_store(
    folder: Folder, network: str | None, options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return where a certification's network is, and how to read it."""
    if network is not None:
        return network, options
    source = folder.source
    name = source.get("network")
    if not isinstance(name, str):
        raise UsageError(f"{folder.path} does not say where its network is: give --network")
    around = folder.path.resolve().parent.parent
    if name.startswith("zoo:") or (path_of(name) if is_own(name) else Path(name)).exists():
        return name, source
    if (around / "config.toml").is_file():
        return str(around), source  # the run was moved, together with what is in it
    raise UsageError(f"the network {name} is no longer there: give --network")


def runner_of(name: str, net: nn.Sequential, data: DataSet, options: dict[str, Any]) -> Runner:
    """Return the network as onnxruntime computes it."""
    from maar.exchange.onnx_out import write_onnx
    from maar.exchange.runtime import onnx_runner

    if name.lower().endswith((".onnx", ".onnx.gz")):
        runner = onnx_runner(name, **options)  # the file itself: our reader is checked as well
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.onnx"
            write_onnx(net, path, data.shape)
            runner = onnx_runner(path)
    if runner is None:
        raise RunError(f"onnxruntime cannot run {name}")
    return runner
