"""The lines of metrics.jsonl for TensorBoard, in RUN/tensorboard.

A display among others: it is told of each epoch. Asked for or not, the run is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maar.core.errors import RunError, UsageError
from maar.records.runs import read_run
from maar.training.display import Display

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.tensorboard.writer import SummaryWriter

    from maar.config import Config
    from maar.training.plan import Plan

# Numbers of an epoch that say where it is, or when it was.
PLACE = ("stages", "epoch", "epochs", "step", "seconds")


class TensorBoard(Display):
    """Writes the numbers of every epoch as scalars, at the global step."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.folder = run / "tensorboard"
        self.writer: SummaryWriter | None = None
        self._writer_class = _writer_class()

    def begin(self, config: Config, plan: Plan, net: nn.Module, images: int, done: int) -> None:
        known = any(self.folder.glob("events.*"))
        # What an interrupted session wrote beyond its last checkpoint will come again.
        step = done * plan.steps_per_epoch + 1
        self.writer = self._writer_class(str(self.folder), purge_step=step if known else None)
        if not known:  # earlier sessions have not been asked for it
            for record in self._earlier()[:done]:
                self.epoch(record)

    def _earlier(self) -> list[dict[str, Any]]:
        run = read_run(self.run)
        if run.problems:
            raise RunError(run.problems[0])
        return run.metrics

    def epoch(self, record: dict[str, Any]) -> None:
        if self.writer is not None:
            for name, value in _scalars(record):
                self.writer.add_scalar(name, value, record["step"])
            self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


def _scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """`loss/natural`, `train/verified_error`, ...; what is scheduled goes below `schedule`."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}/{inner}", x) for inner, x in value.items())
        elif name == "images_per_second":
            yield f"speed/{name}", value
        elif name not in PLACE:
            yield f"schedule/{name}", value


def _writer_class() -> type[SummaryWriter]:
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        raise UsageError(
            "--tensorboard needs the package tensorboard: pip install 'maar[tensorboard]'"
        ) from None
    return SummaryWriter
