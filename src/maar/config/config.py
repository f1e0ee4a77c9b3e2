"""The settings of a run and their defaults. The string under a field is its help text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from maar.config.names import check_augment, check_data, check_device, check_name, check_network
from maar.core.eps import Eps
from maar.core.settings import (
    AboveZero,
    Check,
    Count,
    NonNegative,
    OnlyWith,
    Positive,
    Range,
    Settings,
    Share,
    Unless,
)
from maar.methods import METHODS
from maar.methods.base import Method


@dataclass(frozen=True)
class TrainConfig(Settings):
    """How the weights move: optimiser, batches, learning rate."""

    epochs: Annotated[Positive, Unless("method.stage_epochs")] = 20
    """epochs of each stage"""
    batch: Positive = 128
    """images per step; an epoch's last images that do not fill a batch wait for the next epoch"""
    optimizer: Literal["adam", "sgd"] = "adam"
    """adam, or sgd with momentum"""
    lr: AboveZero = 1e-3
    """learning rate at its highest"""
    lr_schedule: Literal["constant", "steps", "halving", "one_cycle"] = "one_cycle"
    """how the learning rate runs within a stage; steps: times lr_decay at lr_decay_epochs; halving
    (the paper's): times lr_decay every lr_decay_every epochs, counted from lr_decay_from"""
    lr_decay: Annotated[AboveZero, OnlyWith("lr_schedule", "steps", "halving")] = 0.2
    """factor on the learning rate each time it falls (lr_schedule = steps, halving)"""
    lr_decay_epochs: Annotated[tuple[Positive, ...], OnlyWith("lr_schedule", "steps")] = ()
    """epochs of a stage at which the learning rate falls (lr_schedule = steps)"""
    lr_decay_from: Annotated[Count, OnlyWith("lr_schedule", "halving")] = 0
    """epochs of a stage before the count to the first fall begins (lr_schedule = halving)"""
    lr_decay_every: Annotated[Positive, OnlyWith("lr_schedule", "halving")] = 10
    """epochs from one fall of the learning rate to the next (lr_schedule = halving)"""
    momentum: Annotated[Share, OnlyWith("optimizer", "sgd")] = 0.9
    """of sgd"""
    weight_decay: NonNegative = 0.0
    """L2 penalty, as the optimiser applies it"""
    clip: NonNegative = 0.0
    """largest L2 norm of the gradient; 0: no limit"""
    average: Literal["none", "ema", "swa"] = "none"
    """judge and save an average of the weights; ema: exponential, over the steps; swa: plain, over
    the ends of the epochs"""
    ema_decay: Annotated[Share, OnlyWith("average", "ema")] = 0.999
    """share of the old average in the new one at each step (average = ema)"""
    average_from: Annotated[Count, OnlyWith("average", "ema", "swa")] = 0
    """epochs of a stage before the average begins (average = ema, swa)"""
    precision: Literal["32", "bf16"] = "32"
    """arithmetic of the loss; the weights are float32 in any case"""
    augment: Annotated[str, Check(check_augment)] = "auto"
    """of the images: none, shift, affine, crop_flip, edge_flip; auto: as is customary for them"""
    latent_images: Count = 0
    """validation images for latent robustness, measured at the end of each stage; 0: not at all"""
    latent_steps: Annotated[Positive, OnlyWith("latent_images")] = 150
    """steps of that attack"""
    test_accuracy: bool = False
    """note accuracy on the test images after each epoch, for figures; nothing is chosen by it"""
    checkpoint_every: Positive = 1
    """epochs between checkpoints"""
    checkpoint_minutes: AboveZero = 10.0
    """a checkpoint also in the middle of an epoch, if the last one is this old"""


@dataclass(frozen=True)
class Config(Settings):
    """Everything that determines a run, and where it runs (name, threads, device, devices)."""

    name: Annotated[str, Check(check_name)] = ""
    """folder of the run below runs/; default: CONFIG's name, plus the hash if flags changed it"""
    data: Annotated[str, Check(check_data)] = "mnist_mini"
    """data set: see `maar data list`; your own: npz:PATH or folder:PATH"""
    valid: Count = 0
    """images taken out of the training set for validation, always the same ones"""
    network: Annotated[str, Check(check_network)] = "convmed_2_2_100"
    """see `maar networks`; your own: FILE.py:FUNCTION"""
    eps: Eps = field(default_factory=lambda: Eps("0.1"))
    """L-infinity radius on pixels in [0, 1], such as 0.1 or 2/255"""
    seed: Count = 0
    """of the weights, the order of the images, the attacks' starts"""
    threads: Annotated[int, Range(low=0, high=1024)] = 0
    """CPU threads of each process; 0: one per physical core, divided among the processes"""
    device: Annotated[str, Check(check_device)] = "auto"
    """cpu, cuda, cuda:1, ...; auto: cuda where there is one"""
    devices: Positive = 1
    """processes that share each batch: one per GPU, or so many on the CPU (needs maar[parallel])"""
    method: Method = field(default_factory=lambda: METHODS["standard"]())
    """see `maar methods`"""
    train: TrainConfig = field(default_factory=TrainConfig)
    """optimiser, batches, learning rate"""
