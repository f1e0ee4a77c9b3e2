"""A network on whole splits: judged by the method's own numbers, attacked, or finished by it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import torch
from torch import nn

from maar.config import Config
from maar.data import DataSet
from maar.methods.base import Batch, Stage
from maar.training.metrics import LATENT, measure
from maar.training.parallel import Workers
from maar.training.seeds import generator

BATCH = 500


def images(config: Config, net: nn.Sequential, data: DataSet, stage: Stage) -> Iterator[Batch]:
    """The training images as they are, in their order, for `method.finish`."""
    for start in range(0, data.size("train"), BATCH):
        part = slice(start, start + BATCH)
        yield Batch(
            net=net,
            x=data.images("train", part),
            y=data.labels("train", part),
            eps=float(config.eps),
            stage=stage,
            generator=generator(config.seed, "finish", start),
        )


def evaluate(
    config: Config,
    net: nn.Sequential,
    data: DataSet,
    split: str,
    stage: Stage,
    workers: Workers | None = None,
) -> dict[str, float]:
    """Mean over the images of each result of `method.judge`, the network in evaluation mode.

    The chance in it depends on the seed and the image only: curves over epochs are comparable.
    """
    sums: dict[str, float] = {}
    size = data.size(split)
    rank, count = (workers.rank, workers.count) if workers else (0, 1)
    with _evaluation_mode(net):
        for start in range(rank * BATCH, size, count * BATCH):  # several processes take turns
            part = slice(start, start + BATCH)
            batch = Batch(
                net=net,
                x=data.images(split, part),
                y=data.labels(split, part),
                eps=float(config.eps),
                stage=stage,
                generator=generator(config.seed, "judge", split, start),
            )
            for name, good in config.method.judge(batch).items():
                sums[name] = sums.get(name, 0.0) + float(good.double().sum())
    sums = workers.sum(sums) if workers else sums
    return {name: total / size for name, total in sums.items()}


def accuracy(
    net: nn.Sequential, data: DataSet, split: str, workers: Workers | None = None
) -> float:
    """Return the share of a split's images that are classified correctly."""
    right = 0.0
    rank, count = (workers.rank, workers.count) if workers else (0, 1)
    with _evaluation_mode(net), torch.no_grad():
        for start in range(rank * BATCH, data.size(split), count * BATCH):
            part = slice(start, start + BATCH)
            right += float(
                (net(data.images(split, part)).argmax(1) == data.labels(split, part)).sum()
            )
    sums = workers.sum({"right": right}) if workers else {"right": right}
    return sums["right"] / data.size(split)


def latent_robustness(
    config: Config, net: nn.Sequential, data: DataSet, workers: Workers | None = None
) -> dict[str, float]:
    """By layer, as `maar evaluate` measures it, on the first `train.latent_images` to validate."""
    with _evaluation_mode(net):
        found = measure(
            net,
            data,
            float(config.eps),
            split="valid",
            limit=config.train.latent_images,
            attack=dataclasses.replace(LATENT, steps=config.train.latent_steps),
            seed=config.seed,
            workers=workers,
        )
    return {f"latent_robustness_{layer}": x for layer, x in found.latent_robustness.items()}


@contextlib.contextmanager
def _evaluation_mode(net: nn.Module) -> Iterator[None]:
    was_training = [module.training for module in net.modules()]
    net.eval()
    try:
        yield
    finally:
        for module, training in zip(net.modules(), was_training, strict=True):
            module.training = training
