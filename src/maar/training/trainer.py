"""The training loop, for every method alike.

Everything random and everything scheduled is a pure function of the seed and the global step, and
a checkpoint holds the weights, their average and the optimiser. So a run that was killed anywhere
and resumed ends with the same bits as one that was not (CPU, same number of threads).
"""

from __future__ import annotations

import dataclasses
import math
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from maar.config import Config, config_hash
from maar.core.errors import RunError, UsageError
from maar.core.files import sha256_file
from maar.data import DataSet
from maar.data import load as load_data
from maar.data.augment import AUGMENTS
from maar.methods.base import Batch, Stage
from maar.networks import make
from maar.records.runs import read_run
from maar.training import checkpoint
from maar.training.averaging import Average
from maar.training.checkpoint import Parts, Position
from maar.training.display import Display
from maar.training.env import environment, resolve_threads
from maar.training.evaluate import accuracy, evaluate, images, latent_robustness
from maar.training.lines import epoch_line
from maar.training.optim import Descent, lr_schedule
from maar.training.parallel import Workers, connect
from maar.training.plan import Epoch, Plan
from maar.training.precision import autocast, check_precision
from maar.training.progress import Progress
from maar.training.rehearsal import AFTER, Rehearsal, freeze
from maar.training.revision import earlier_revision
from maar.training.run import Run, has_model, open_run_together
from maar.training.seeds import derive, generator


def train(
    config: Config,
    path: str | Path,
    *,
    resume: bool = False,
    display: Display | None = None,
    data: DataSet | None = None,
) -> dict[str, Any]:
    """Train into the folder `path` and return the content of its result.json.

    With `resume` a run that is there is continued, and one that is finished is left as it is.
    `data` stands in for what `config.data` names: without test images, nothing is tested.
    """
    display = display or Display()
    threads_before = torch.get_num_threads()
    try:
        with (
            connect(config) as workers,
            open_run_together(Path(path), config, resume=resume, workers=workers) as run,
        ):
            result = workers.first_does(lambda: _known(run))
            if result:
                return result
            shown = display if workers.is_first else Display()
            return workers.all_do(lambda: Trainer(run, shown, workers, data)).train()
    finally:
        display.close()
        torch.set_num_threads(threads_before)


def _known(run: Run) -> dict[str, Any]:
    """The result of a run that is finished; one whose weights are lost or damaged is not.

    Such weights are made again from the last checkpoint, unless the method is another by now.
    """
    if not run.resumed or not (run.path / "result.json").exists():
        return {}
    if has_model(run.path):
        return read_run(run.path).result
    if before := earlier_revision(run.path, run.config):
        raise UsageError(f"{before}: its lost weights cannot be made again")
    return {}


class Trainer:
    """One run in progress. It knows stages, batches and named loss terms, but no method."""

    def __init__(
        self, run: Run, display: Display, workers: Workers, data: DataSet | None = None
    ) -> None:
        self.device, self.workers = workers.device, workers
        threads = resolve_threads(run.config.threads)
        torch.set_num_threads(threads)
        device = str(self.device) if workers.count == 1 else self.device.type
        run.config = dataclasses.replace(run.config, threads=threads, device=device)
        self.run, self.config, self.display = run, run.config, display
        self.method, self.seed = self.config.method, self.config.seed
        self.slow = check_precision(self.config.train.precision, self.device)
        data = data or load_data(self.config.data, valid=self.config.valid)
        self.data = data.to(self.device)
        chosen = self.config.train.augment
        self.augment = AUGMENTS[self.data.info.augment if chosen == "auto" else chosen]
        self.net = self._fresh_network()
        self.plan = self._plan()
        averaging = self.config.train.average != "none"
        self.average = Average(self.config.train, self.net) if averaging else None
        self.descent: Descent | None = None
        self.restored: Parts = {}
        self.progress = Progress()
        self.rehearsal = Rehearsal(self.plan)
        self.memo: dict[str, Any] = {}
        self.best_score: float | None = None
        self.metrics_bytes = 0
        self.saved = time.monotonic()

    @property
    def judged(self) -> nn.Sequential:
        """The network that is validated, tested and saved."""
        return self.average.net if self.average else self.net

    def _fresh_network(self) -> nn.Sequential:
        info = self.data.info
        net = make(
            self.run.network,
            shape=info.shape,
            classes=info.n_classes,
            mean=info.mean,
            std=info.std,
            seed=derive(self.seed, "network"),
        )
        self.method.initialise(net, generator(self.seed, "initialise"))
        # Convolutions are faster with the channels innermost. Files hold the usual order.
        convolves = any(isinstance(module, nn.Conv2d) for module in net.modules())
        self.layout = torch.channels_last if convolves else torch.contiguous_format
        return net.to(self.device, memory_format=self.layout)  # pyright: ignore[reportCallIssue]

    def _plan(self) -> Plan:
        size, train = self.data.size("train"), self.config.train
        if size < train.batch:
            raise UsageError(f"batch = {train.batch} is more than the {size} training images")
        if train.batch % self.workers.count:
            raise UsageError(
                f"batch = {train.batch} cannot be shared evenly by {self.workers.count} processes"
            )
        if train.latent_images and not self.data.size("valid"):
            raise UsageError(
                f"latent_images = {train.latent_images} needs images to validate on "
                f"(accepted: 0, or with --valid {train.latent_images} or more)"
            )
        stages = self.method.stages(self.net, self.config.eps, train.epochs)
        shortest = min(stage.epochs for stage in stages)
        if train.average != "none" and train.average_from >= shortest:
            raise UsageError(
                f"average_from = {train.average_from} leaves nothing to average "
                f"(accepted: less than the {shortest} epochs of a stage)"
            )
        return Plan(stages, steps_per_epoch=size // train.batch)

    def train(self) -> dict[str, Any]:
        """Every epoch that is still to be done, then the test."""
        facts = environment(self.seed, self.config.threads, self.device, self.workers.count)
        if changes := self.run.begin(facts):
            self._warn(f"{', '.join(changes)}: the last bits may differ from an unbroken run")
        if self.slow:
            self._warn(self.slow)
        for line in self.plan.unfinished():
            self._warn(line)
        done = self.workers.all_do(self._restore)
        self.display.begin(self.config, self.plan, self.net, self.data.size("train"), done)
        for number in range(done, self.plan.epochs):
            epoch = self.plan.epoch(number)
            stage = self.plan.stages[epoch.stage]
            if self.descent is None or epoch.in_stage == 0:
                self._enter_stage(epoch)
            record = self._epoch(epoch)
            self._keep_best(epoch, record)
            self.metrics_bytes = self.run.add_metrics(record)
            self.progress = Progress()
            last = epoch.in_stage + 1 == stage.epochs
            if last:
                self._save_weights(f"stage-{epoch.stage + 1}-last")
            if last or (epoch.in_stage + 1) % self.config.train.checkpoint_every == 0:
                self._checkpoint(number + 1)
            self.run.log(epoch_line(record, self.plan))
            self.display.epoch(record)
        return self._finish()

    def _enter_stage(self, epoch: Epoch) -> None:
        """Freeze the prefix and make the optimiser: fresh, or resumed in the middle of a stage."""
        begun = epoch.in_stage > 0 or self.progress.steps > 0
        if not begun:
            self.best_score = None
            self.net.load_state_dict(self.judged.state_dict())
        freeze(self.net, self.plan.stages[epoch.stage])
        self.net.zero_grad()  # gradients of weights that are frozen from now on would linger
        self.descent = Descent(self.config.train, self.net)
        if begun:
            self.descent.restore(self.restored.get("optimizer", {}))
        self.restored, self.memo = {}, {}

    def _epoch(self, epoch: Epoch) -> dict[str, Any]:
        """One pass over the images in a fresh order; returns the line for metrics.jsonl."""
        progress, train = self.progress, self.config.train
        began, steps = time.perf_counter() - progress.seconds, self.plan.steps_per_epoch
        order = torch.randperm(
            self.data.size("train"), generator=generator(self.seed, "order", epoch.number)
        )
        numbers: dict[str, float] = {}
        try_after = progress.steps + AFTER
        for i in range(progress.steps, steps):
            index = order[i * train.batch : (i + 1) * train.batch]
            numbers = self._step(epoch, epoch.number * steps + i, index)
            if self.average:
                self.average.after_step(self.net, (epoch.in_stage - train.average_from) * steps + i)
            progress.steps, progress.seconds = i + 1, time.perf_counter() - began
            if i + 1 == try_after:
                self._rehearse(epoch, epoch.number * steps + i, index)
            self.display.step(epoch, i + 1, progress.terms.values, progress.notes.values)
            overdue = time.monotonic() - self.saved > 60 * train.checkpoint_minutes
            if overdue and i + 1 < steps:
                self._checkpoint(epoch.number)
        if self.average:
            self.average.after_epoch(self.net, epoch.in_stage - train.average_from)
        record: dict[str, Any] = {
            "stage": epoch.stage + 1,
            "stages": len(self.plan.stages),
            "epoch": epoch.in_stage + 1,
            "epochs": self.plan.stages[epoch.stage].epochs,
            "step": (epoch.number + 1) * steps,
            **numbers,
            "loss": progress.terms.values,
            "train": progress.notes.values,
        }
        if self.data.size("valid"):
            record["valid"] = self._evaluate("valid", epoch.stage)
        if train.test_accuracy and self.data.size("test"):
            record["test"] = {"accuracy": accuracy(self.judged, self.data, "test", self.workers)}
        if train.latent_images and record["epoch"] == record["epochs"]:
            self.display.note("latent robustness")
            record["valid"] |= latent_robustness(self.config, self.judged, self.data, self.workers)
        record["images_per_second"] = round(steps * train.batch / progress.seconds, 1)
        record["seconds"] = round(time.perf_counter() - began, 3)
        return record

    def _step(self, epoch: Epoch, step: int, index: Tensor) -> dict[str, float]:
        """One step of the optimiser; adds to the means and returns the scheduled numbers."""
        assert self.descent is not None
        stage, train, workers = self.plan.stages[epoch.stage], self.config.train, self.workers
        t = self.plan.since_stage(step)
        batch = self._batch(self.net, stage, t, step, index, self.memo)
        numbers = {"lr": lr_schedule(train, stage)(t), "eps": batch.eps}
        with autocast(train.precision, self.device):
            loss = self.method.loss(batch)
        total = torch.stack(list(loss.values())).sum()
        gradients = self.descent.backward(total)
        terms = {name: term.detach().clone() for name, term in {"total": total, **loss}.items()}
        noted = [part for parts in batch.notes.values() for part in parts]
        workers.average([*gradients, *self._statistics(), *terms.values(), *noted])
        if not math.isfinite(terms["total"].item()):
            listed = ", ".join(f"{name} {terms[name].item():g}" for name in loss)
            raise workers.known_to_all(
                RunError(
                    f"the loss is not finite in stage {epoch.stage + 1}, epoch "
                    f"{epoch.in_stage + 1}, step {step} ({listed}): try a lower --lr or a --clip, "
                    "with another --name"
                )
            )
        self.progress.terms.add(terms)
        self.progress.notes.add(batch.notes)
        self.descent.step(numbers["lr"])
        return {**numbers, **batch.at}

    def _batch(
        self,
        net: nn.Sequential,
        stage: Stage,
        t: float,
        step: int,
        index: Tensor,
        memo: dict[str, Any],
    ) -> Batch:
        """These images for one step, t epochs after the stage began."""
        index = index.to(self.device)
        # The whole batch is augmented everywhere: its images do not depend on who shares it.
        x = self.augment(self.data.images("train", index), generator(self.seed, "augment", step))
        index = self.workers.share(index)
        chance = (step, self.workers.rank) if self.workers.rank else (step,)
        return Batch(
            net=net,
            x=self.workers.share(x).contiguous(memory_format=self.layout),
            y=self.data.labels("train", index),
            eps=stage.eps(t),
            stage=stage,
            generator=generator(self.seed, "loss", *chance),
            at={name: schedule(t) for name, schedule in stage.schedules.items()},
            index=index,
            memo=memo,
        )

    def _rehearse(self, epoch: Epoch, step: int, index: Tensor) -> None:
        """Tell the display what the stages to come will cost, if it is time to try them."""
        # (all processes or none: a method may exchange something with the others)
        if not self.workers.first_does(
            lambda: self.display.foresees and self.rehearsal.is_due(epoch.stage)
        ):
            return
        memos: dict[str, dict[str, Any]] = {}

        def loss(net: nn.Sequential, stage: Stage, t: float) -> Tensor:
            memo = memos.setdefault(stage.name, {})
            with autocast(self.config.train.precision, self.device):
                terms = self.method.loss(self._batch(net, stage, t, step, index, memo))
            return torch.stack(list(terms.values())).sum()

        seconds, problem = self.rehearsal.seconds(self.net, epoch.stage, loss)
        if problem:
            self._warn(problem)
        self.display.outlook(seconds)

    def _statistics(self) -> list[Tensor]:
        """Return BatchNorm's statistics of this process's share of the batches."""
        return [
            buffer
            for module in self.net.modules()
            if isinstance(module, _BatchNorm) and module.training
            for buffer in module.buffers()
            if buffer.is_floating_point()
        ]

    def _evaluate(self, split: str, stage: int) -> dict[str, float]:
        return evaluate(
            self.config, self.judged, self.data, split, self.plan.stages[stage], self.workers
        )

    def _restore(self) -> int:
        """Put the newest whole checkpoint into the network; returns the number of epochs done."""
        found = self.workers.first_does(self.run.restore) if self.run.resumed else None
        if found is None:
            return 0
        position, parts, problems = found
        for problem in problems:
            self._warn(f"{problem}; going back to the checkpoint after {position}")
        if position.data_sha256 != self.data.sha256:
            raise RunError(f"{self.run.path} was begun with other images: {self.data.name} changed")
        where = f"the checkpoint in {self.run.checkpoints}"
        checkpoint.copy_into(self.net, parts["net"], where)
        if self.average:
            checkpoint.copy_into(self.average.net, parts["average"], where)
        self.restored, self.progress = parts, Progress.from_json(position.progress)
        self.best_score, self.metrics_bytes = position.best_score, position.metrics_bytes
        self.run.log(f"resumed after {position}")
        return position.epochs

    def _warn(self, line: str) -> None:
        self.run.log(f"warning: {line}")
        self.display.warn(line)

    def _checkpoint(self, epochs: int) -> None:
        """Save where the run stands: `epochs` whole ones and the progress in the next."""
        assert self.descent is not None
        position = Position(
            epochs=epochs,
            step=epochs * self.plan.steps_per_epoch + self.progress.steps,
            metrics_bytes=self.metrics_bytes,
            data_sha256=self.data.sha256,
            best_score=self.best_score,
            progress=self.progress.to_json(),
        )
        parts = {"net": self.net.state_dict(), "optimizer": self.descent.tensors()}
        if self.average:
            parts["average"] = self.average.net.state_dict()
        self.run.save_checkpoint(position, parts)
        self.saved = time.monotonic()

    def _keep_best(self, epoch: Epoch, record: dict[str, Any]) -> None:
        score = record.get("valid", {}).get(self.method.score)
        if score is not None and (self.best_score is None or score > self.best_score):
            self.best_score = score
            self._save_weights(f"stage-{epoch.stage + 1}-best")

    def _save_weights(self, name: str) -> Path:
        return self.run.save_weights(name, self.judged, self.data.info)

    def _finish(self) -> dict[str, Any]:
        # No checkpoint comes after this: a run that is stopped here does it again.
        net = self.judged.eval()
        finished = self.method.finish(
            net, images(self.config, net, self.data, self.plan.stages[-1])
        )
        path, test = self._save_weights("model"), {}
        if self.data.size("test"):
            self.display.note("testing")
            test = self._evaluate("test", -1)
        return self.workers.first_does(lambda: self._result(path, test, finished))

    def _result(
        self, path: Path, test: dict[str, float], finished: dict[str, float]
    ) -> dict[str, Any]:
        """Write result.json."""
        there = read_run(self.run.path)
        result: dict[str, Any] = {
            "epochs": self.plan.epochs,
            "steps": self.plan.steps,
            "loss": there.last.get("loss", {}),
            "train": there.last.get("train", {}),
            "valid": there.last.get("valid", {}),
            "test": test,
            **({"finish": finished} if finished else {}),
            "config_hash": config_hash(self.config),
            "data_sha256": self.data.sha256,
            "model_sha256": sha256_file(path),
            "seconds": round(there.seconds, 3),
            "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        self.run.finish(result)
        self.run.log(f"finished: {', '.join(f'test {k} {v:.4f}' for k, v in test.items())}")
        return result
