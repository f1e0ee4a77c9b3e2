"""One small network, and certificates of every kind about it, written once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from maar.certificates.folder import Folder, subject_of
from maar.certification.agenda import Job
from maar.certification.cascade import Cascade
from maar.certification.workers import Task
from maar.exchange.onnx_out import onnx_bytes
from maar.networks.layers import Normalize

SHAPE = (1, 6, 6)
NAMES = ("misclassified", "interval", "quick_pgd", "crown", "alpha_crown", "bab")


@dataclass(frozen=True)
class Made:
    """A folder of certificates, its network, and which verifier settled which image."""

    path: Path
    net: nn.Sequential
    by: dict[int, str]

    def one(self, by: str) -> int:
        """An image that this verifier settled."""
        return next(index for index, name in self.by.items() if name == by)


def network() -> nn.Sequential:
    torch.manual_seed(5)
    net = nn.Sequential(
        Normalize([0.4], [0.3]),
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 8),
        nn.ReLU(),
        nn.Linear(8, 4),
    ).eval()
    with torch.no_grad():
        for layer in net[1:]:
            for parameter in layer.parameters():
                parameter *= 2  # (or no ReLU would be unstable)
        net[-1].bias -= net(torch.rand(200, *SHAPE)).mean(0)  # no class is all images'
    return net


def settle(net, images, labels, eps, path, names=NAMES, text=None) -> Made:
    """Certify images into a folder, as `maar certify --certificates` does."""
    subject = subject_of(onnx_bytes(net, images.shape[1:]), text or str(eps))
    task = Task(net, images.shape[1:], eps, Cascade.named(names), subject=subject)
    prepared, folder = task.prepared(), Folder(path, subject, "made test")
    folder.begin()
    by, rows = {}, []
    for index, (x, y) in enumerate(zip(images, labels, strict=True)):
        job = Job(index, x, int(y))
        settled = task.begin(prepared.network, [job])[0]
        if not settled.is_final:
            settled = task.settle(prepared.network, job, settled)
        folder.put(index, settled.proof)
        rows.append((index, int(y), settled.status.value))
        by[index] = settled.by
    folder.finish(rows)
    return Made(folder.path, net, by)


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Made:
    generator = np.random.default_rng(3)
    images = generator.random((80, *SHAPE), dtype=np.float32)
    net = network()
    with torch.no_grad():
        labels = net(torch.from_numpy(images)).argmax(1).numpy()
    labels[::13] = (labels[::13] + 1) % 4
    whole = settle(net, images, labels, 0.03, tmp_path_factory.mktemp("all"))
    few = [whole.one(by) for by in ("crown", "alpha_crown", "quick_pgd", "misclassified")]
    searched = [index for index, by in whole.by.items() if by == "bab"]
    few.append(max(searched, key=lambda index: (whole.path / f"{index}.npz").stat().st_size))
    return settle(net, images[few], labels[few], 0.03, tmp_path_factory.mktemp("few"))
