"""The training loop, for every method alike.

Everything random and everything scheduled is a pure function of the seed and the global step, and
a checkpoint holds the weights and the optimiser. So a run that was killed anywhere and resumed
ends with the same bits as one that was not (CPU, same number of threads).
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

from maar.config import Config, config_hash
from maar.data import load as load_data
from maar.data.augment import AUGMENTS
from maar.errors import RunError, UsageError
from maar.files import sha256_file
from maar.methods.base import Batch
from maar.networks import make
from maar.train import checkpoint
from maar.train.checkpoint import Position
from maar.train.display import Display, epoch_line
from maar.train.env import environment, resolve_device, resolve_threads
from maar.train.evaluate import evaluate
from maar.train.metrics import Means
from maar.train.optim import lr_schedule, make_optimizer, optimizer_tensors, restore_optimizer
from maar.train.plan import Epoch, Plan
from maar.train.run import Run, open_run
from maar.train.seeds import derive, generator
from maar.train.status import status


def train(
    config: Config, path: str | Path, *, resume: bool = False, display: Display | None = None
) -> dict[str, Any]:
    """Train into the folder `path` and return the content of its result.json.

    With `resume` a run that is there is continued, and one that is finished is left as it is.
    """
    display = display or Display()
    threads_before = torch.get_num_threads()
    try:
        with open_run(Path(path), config, resume=resume) as run:
            if run.resumed and (result := status(run.path).result):
                return result
            return Trainer(run, display).train()
    finally:
        display.close()
        torch.set_num_threads(threads_before)


class Trainer:
    """One run in progress. It knows stages, batches and named loss terms, but no method."""

    def __init__(self, run: Run, display: Display) -> None:
        device = resolve_device(run.config.device)
        threads = resolve_threads(run.config.threads)
        torch.set_num_threads(threads)
        run.config = dataclasses.replace(run.config, threads=threads, device=str(device))
        self.run, self.config, self.display = run, run.config, display
        self.method, self.seed = self.config.method, self.config.seed
        self.data = load_data(self.config.data, valid=self.config.valid).to(device)
        chosen = self.config.train.augment
        self.augment = AUGMENTS[self.data.info.augment if chosen == "auto" else chosen]
        self.net = self._fresh_network(device)
        self.plan = self._plan()
        self.optimizer: torch.optim.Optimizer | None = None
        self.memo: dict[str, Any] = {}
        self.best_score: float | None = None
        changes = run.begin(environment(self.seed, threads, device))
        if changes:
            self._warn(f"{', '.join(changes)}: the last bits may differ from an unbroken run")

    def _fresh_network(self, device: torch.device) -> nn.Sequential:
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
        return net.to(device)

    def _plan(self) -> Plan:
        size, batch = self.data.size("train"), self.config.train.batch
        if size < batch:
            raise UsageError(f"batch = {batch} is more than the {size} training images")
        stages = self.method.stages(self.net, self.config.eps, self.config.train)
        return Plan(stages, steps_per_epoch=size // batch)

    def train(self) -> dict[str, Any]:
        """Every epoch that is still to be done, then the test."""
        done, optimizer_state = self._restore()
        self.display.begin(self.config, self.plan, self.net, self.data.size("train"), done)
        for number in range(done, self.plan.epochs):
            epoch = self.plan.epoch(number)
            stage = self.plan.stages[epoch.stage]
            if self.optimizer is None or epoch.in_stage == 0:
                self._enter_stage(epoch, optimizer_state)
            record = self._epoch(epoch)
            self._keep_best(epoch, record)
            metrics_bytes = self.run.add_metrics(record)
            last = epoch.in_stage + 1 == stage.epochs
            if last:
                self._save_weights(f"stage-{epoch.stage + 1}-last")
            if last or (epoch.in_stage + 1) % self.config.train.checkpoint_every == 0:
                self._checkpoint(epoch, metrics_bytes)
            self.run.log(epoch_line(record, self.plan))
            self.display.epoch(record)
        return self._finish()

    def _enter_stage(self, epoch: Epoch, optimizer_state: dict[str, Tensor]) -> None:
        """Freeze the prefix and make the optimiser: fresh, or resumed in the middle of a stage."""
        frozen = self.plan.stages[epoch.stage].frozen
        self.net.train()
        for index, layer in enumerate(self.net):
            layer.train(index >= frozen)  # a frozen BatchNorm keeps its statistics too
            layer.requires_grad_(index >= frozen)
        self.net.zero_grad()  # gradients of weights that are frozen from now on would linger
        weights = [p for p in self.net.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(self.config.train, weights)
        self.memo = {}
        if epoch.in_stage == 0:
            self.best_score = None
        else:
            restore_optimizer(self.optimizer, optimizer_state)

    def _epoch(self, epoch: Epoch) -> dict[str, Any]:
        """One pass over the images in a fresh order; returns the line for metrics.jsonl."""
        began = time.perf_counter()
        steps, batch = self.plan.steps_per_epoch, self.config.train.batch
        order = torch.randperm(
            self.data.size("train"), generator=generator(self.seed, "order", epoch.number)
        )
        terms, notes, numbers = Means(), Means(), {}
        for i in range(steps):
            index = order[i * batch : (i + 1) * batch]
            numbers = self._step(epoch, epoch.number * steps + i, index, terms, notes)
            self.display.step(epoch, i + 1, terms.values, notes.values)
        trained = time.perf_counter() - began
        stage = self.plan.stages[epoch.stage]
        record: dict[str, Any] = {
            "stage": epoch.stage + 1,
            "epoch": epoch.in_stage + 1,
            "step": (epoch.number + 1) * steps,
            **numbers,
            "loss": terms.values,
            "train": notes.values,
        }
        if self.data.size("valid"):
            record["valid"] = evaluate(self.config, self.net, self.data, "valid", stage)
        record["images_per_second"] = round(steps * batch / trained, 1)
        record["seconds"] = round(time.perf_counter() - began, 3)
        return record

    def _step(
        self, epoch: Epoch, step: int, index: Tensor, terms: Means, notes: Means
    ) -> dict[str, float]:
        """One step of the optimiser; adds to the means and returns the scheduled numbers."""
        assert self.optimizer is not None
        stage, train = self.plan.stages[epoch.stage], self.config.train
        t = self.plan.since_stage(step)
        numbers = {"lr": lr_schedule(train, stage)(t), "eps": stage.eps(t)}
        at = {name: schedule(t) for name, schedule in stage.schedules.items()}
        index = index.to(self.data.y_train.device)
        x = self.data.images("train", index)
        batch = Batch(
            net=self.net,
            x=self.augment(x, generator(self.seed, "augment", step)),
            y=self.data.labels("train", index),
            eps=numbers["eps"],
            stage=stage,
            generator=generator(self.seed, "loss", step),
            at=at,
            index=index,
            memo=self.memo,
        )
        loss = self.method.loss(batch)
        total = torch.stack(list(loss.values())).sum()
        if not math.isfinite(total.item()):
            listed = ", ".join(f"{name} {term.item():g}" for name, term in loss.items())
            raise RunError(
                f"the loss is not finite in stage {epoch.stage + 1}, epoch {epoch.in_stage + 1}, "
                f"step {step} ({listed}): try a lower --lr or a --clip"
            )
        terms.add({"total": total, **loss})
        notes.add(batch.notes)
        for group in self.optimizer.param_groups:
            group["lr"] = numbers["lr"]
        self.optimizer.zero_grad()
        total.backward()
        if train.clip:
            nn.utils.clip_grad_norm_(self.net.parameters(), train.clip)
        self.optimizer.step()
        return {**numbers, **at}

    def _restore(self) -> tuple[int, dict[str, Tensor]]:
        """Put the newest whole checkpoint into the network; returns (epochs done, optimiser)."""
        found = self.run.restore() if self.run.resumed else None
        if found is None:
            return 0, {}
        position, weights, optimizer_state, problems = found
        for problem in problems:
            self._warn(f"{problem}; going back to the checkpoint after epoch {position.epochs}")
        if position.data_sha256 != self.data.sha256:
            raise RunError(f"{self.run.path} was begun with other images: {self.data.name} changed")
        checkpoint.copy_into(self.net, weights, f"the checkpoint in {self.run.checkpoints}")
        self.best_score = position.best_score
        self.run.log(f"resumed after epoch {position.epochs}")
        return position.epochs, optimizer_state

    def _warn(self, line: str) -> None:
        self.run.log(f"warning: {line}")
        self.display.warn(line)

    def _checkpoint(self, epoch: Epoch, metrics_bytes: int) -> None:
        assert self.optimizer is not None
        position = Position(
            epochs=epoch.number + 1,
            step=(epoch.number + 1) * self.plan.steps_per_epoch,
            metrics_bytes=metrics_bytes,
            data_sha256=self.data.sha256,
            best_score=self.best_score,
        )
        state = optimizer_tensors(self.optimizer)
        checkpoint.save(self.run.checkpoints, position, self.net, state)

    def _keep_best(self, epoch: Epoch, record: dict[str, Any]) -> None:
        score = record.get("valid", {}).get(self.method.score)
        if score is not None and (self.best_score is None or score > self.best_score):
            self.best_score = score
            self._save_weights(f"stage-{epoch.stage + 1}-best")

    def _save_weights(self, name: str) -> Path:
        return self.run.save_weights(name, self.net, self.data.info)

    def _finish(self) -> dict[str, Any]:
        path = self._save_weights("model")
        last = self.plan.stages[-1]
        there = status(self.run.path)
        result: dict[str, Any] = {
            "epochs": self.plan.epochs,
            "steps": self.plan.steps,
            "loss": there.last.get("loss", {}),
            "train": there.last.get("train", {}),
            "valid": there.last.get("valid", {}),
            "test": {},
            "config_hash": config_hash(self.config),
            "data_sha256": self.data.sha256,
            "model_sha256": sha256_file(path),
        }
        if self.data.size("test"):
            self.display.note("testing")
            result["test"] = evaluate(self.config, self.net, self.data, "test", last)
        result["seconds"] = round(there.seconds, 3)
        result["finished"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.run.finish(result)
        self.run.log(
            f"finished: {', '.join(f'test {k} {v:.4f}' for k, v in result['test'].items())}"
        )
        return result
