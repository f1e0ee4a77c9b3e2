"""Several processes that train one network: each takes its share of every batch.

All hold the same weights. After the backward pass the gradients are averaged over the processes,
so that each makes the very step that one process would make with the whole batch. Nothing is
wrapped around the network: losses use its parts, and its weights, in ways of their own.

lightning-fabric starts the processes (`--devices 2`), or finds itself started by torchrun or srun,
and connects them: NCCL between GPUs, gloo between CPUs. One process alone needs none of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import torch
from torch import Tensor

from maar.core.errors import MaarError, RunError, UsageError
from maar.core.lifeline import follow_parent
from maar.training.env import resolve_device

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from maar.config import Config

T = TypeVar("T")


class Reported(RunError):
    """An error that the first process tells the user; the others only leave."""


class Workers:
    """This process and those it trains together with; here it is alone."""

    rank = 0
    count = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def share(self, batch: Tensor) -> Tensor:
        """This process' part of a batch's rows."""
        size = len(batch) // self.count
        return batch[self.rank * size : (self.rank + 1) * size]

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace the tensors by their means over the processes, all in one exchange."""

    def sum(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """The sums over the processes, of names that some of them may lack."""
        return dict(numbers)

    def first_does(self, work: Callable[[], T]) -> T:
        """Return to all processes the result of `work` in the first; an error is raised in all."""
        return work()

    def all_do(self, work: Callable[[], T]) -> T:
        """Return this process's result of `work`; an error of any process is raised in all."""
        return work()

    def known_to_all(self, error: MaarError) -> MaarError:
        """The error to raise here for one that every process finds for itself."""
        return error if self.is_first else Reported(str(error))


class Team(Workers):
    """Several processes, connected."""

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric.device)
        self.fabric, self.rank, self.count = fabric, fabric.global_rank, fabric.world_size

    def average(self, tensors: Sequence[Tensor]) -> None:
        flat = torch.cat([tensor.detach().flatten().to(self.device) for tensor in tensors])
        with self._connection():
            mean = self.fabric.all_reduce(flat, reduce_op="mean")
        assert isinstance(mean, Tensor)
        sizes = [tensor.numel() for tensor in tensors]
        with torch.no_grad():
            for tensor, piece in zip(tensors, mean.split(sizes), strict=True):
                tensor.copy_(piece.view(tensor.shape))

    def sum(self, numbers: Mapping[str, float]) -> dict[str, float]:
        sums: dict[str, float] = {}
        for part in self._gather(dict(numbers)):
            for name, number in part.items():
                sums[name] = sums.get(name, 0.0) + number
        return sums

    def first_does(self, work: Callable[[], T]) -> T:
        outcome = _outcome(work) if self.is_first else (None, None)
        with self._connection():
            result, error = self.fabric.broadcast(outcome)
        if error:
            raise self.known_to_all(error)
        return cast(T, result)

    def all_do(self, work: Callable[[], T]) -> T:
        result, error = _outcome(work)
        errors = [found for found in self._gather(error) if found]
        if errors:
            raise self.known_to_all(errors[0])
        return cast(T, result)

    def _gather(self, mine: Any) -> list[Any]:
        found: list[Any] = [None] * self.count
        with self._connection():
            torch.distributed.all_gather_object(found, mine)
        return found

    @contextlib.contextmanager
    def _connection(self) -> Iterator[None]:
        """Say in one line that another process is gone."""
        try:
            yield
        except RuntimeError as error:
            reason = str(error).partition("\n")[0].partition(". ")[0]
            raise self.known_to_all(
                RunError(f"another process of this run has ended; --resume continues it ({reason})")
            ) from error


def _outcome(work: Callable[[], T]) -> tuple[T | None, MaarError | None]:
    try:
        return work(), None
    except MaarError as error:
        return None, error


@dataclass(frozen=True)
class Place:
    """Who started this process, how many it belongs to, and which of them it is."""

    starter: Literal["us", "torchrun", "srun"]
    devices: int
    nodes: int
    rank: int


def place(config: Config) -> Place:
    """As the environment and `devices` tell, before any connection."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices, world = _number("LOCAL_WORLD_SIZE"), _number("WORLD_SIZE")
        found = Place("torchrun", devices, world // devices, _number("RANK"))
    elif _number("SLURM_STEP_NUM_TASKS") > 1:
        # Of the step, not of the job: a script that calls maar without srun is one process.
        nodes, world = _number("SLURM_STEP_NUM_NODES"), _number("SLURM_STEP_NUM_TASKS")
        found = Place("srun", world // nodes, nodes, _number("SLURM_PROCID"))
    else:
        child = config.devices > 1 and "MASTER_PORT" in os.environ
        return Place("us", config.devices, 1, _number("LOCAL_RANK") if child else 0)
    if config.devices not in (1, found.devices):
        raise UsageError(
            f"devices = {config.devices}, but {found.starter} has started {found.devices} "
            f"processes on each machine (accepted: {found.devices}, or leave --devices out)"
        )
    return found


@contextlib.contextmanager
def connect(config: Config) -> Iterator[Workers]:
    """Start the other processes, where there are to be any, and connect with them."""
    there, device = place(config), resolve_device(config.device)
    if there.devices * there.nodes == 1:
        yield Workers(device)
        return
    _check_devices(config, there.devices, device)
    if there.starter == "us" and there.rank:
        follow_parent()  # it alone writes files: nothing is lost
    fabric = _launch(there, device)
    try:
        yield Team(fabric)
    except BaseException:
        # The others notice that we are gone. (NCCL would first wait for what is under way.)
        if torch.distributed.get_backend() == "gloo":
            torch.distributed.destroy_process_group()
        raise
    torch.distributed.destroy_process_group()


def _check_devices(config: Config, devices: int, device: torch.device) -> None:
    if device.index is not None:
        raise UsageError(
            f"device = {config.device!r} is one device, but {devices} are asked for "
            "(accepted: cpu, cuda, auto)"
        )
    if device.type == "mps":
        raise UsageError(f"devices = {devices}: mps is one device (accepted: 1)")
    if device.type == "cuda" and devices > torch.cuda.device_count():
        raise UsageError(
            f"devices = {devices}, but this machine has {torch.cuda.device_count()} GPUs"
        )


def _launch(there: Place, device: torch.device) -> Fabric:
    try:
        from lightning_fabric import Fabric
        from lightning_fabric.plugins.environments.lightning import LightningEnvironment
        from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
        from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
    except ImportError:
        raise UsageError(
            f"devices = {there.devices} needs lightning-fabric: pip install 'maar[parallel]'"
        ) from None
    environment = {
        "us": LightningEnvironment,
        "torchrun": TorchElasticEnvironment,
        "srun": SLURMEnvironment,
    }[there.starter]
    for name in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice about fabric's own features, which we do not use
        try:
            fabric = Fabric(
                accelerator=device.type,
                strategy="ddp",
                devices=there.devices,
                num_nodes=there.nodes,
                plugins=[environment()],
            )
            fabric.launch()
        except ValueError as error:  # numbers that do not fit the cluster's
            raise UsageError(f"devices = {there.devices}: {error}") from None
    return fabric


def _number(variable: str) -> int:
    """A variable of the environment; 0 if it is absent or no number."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else 0
