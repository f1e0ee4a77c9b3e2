"""A certification with every kind of verdict in it, and an audit of a copy that may be spoilt."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from maar.certify.audit.folder import read_folder
from maar.certify.audit.run import audit
from maar.certify.run import make_plan, run

EPS = 0.06
VERIFIERS = ("misclassified", "quick_pgd", "crown", "alpha_crown")


@pytest.fixture(scope="session")
def certified(trained, mnist_mini, tmp_path_factory) -> Path:
    """The folder of a certification."""
    plan = make_plan(trained, mnist_mini, EPS, verifiers=VERIFIERS, limit=24, name="small")
    out = tmp_path_factory.mktemp("certified") / "store"
    tally = run(plan, out, workers=1)
    assert min(tally.counts[k] for k in ("misclassified", "falsified", "verified", "unknown")) > 0
    return out


class Copy:
    """A copy of that folder, to spoil, and what the audit says of it."""

    def __init__(self, path: Path, net, data) -> None:
        self.path, self.net, self.data = path, net, data
        self.touched = []

    @property
    def lines(self):
        return [
            json.loads(line) for line in (self.path / "verdicts.jsonl").read_text().splitlines()
        ]

    def write(self, lines) -> None:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (self.path / "verdicts.jsonl").write_text(text)

    def one(self, verdict):
        """The first line of a verdict."""
        return next(line for line in self.lines if line["verdict"] == verdict)

    def change(self, index, /, **values):
        """Change an image's line."""
        self.touched.append(values.get("index", index))
        self.write([{**line, **values} if line["index"] == index else line for line in self.lines])

    def change_file(self, index, /, **arrays):
        """Change an image's counterexample."""
        self.touched.append(index)
        path = self.path / "counterexamples" / f"{index}.npz"
        with np.load(path) as file:
            there = dict(file)
        np.savez(path, **{**there, **arrays})

    def change_summary(self, **values):
        path = self.path / "summary.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    def audit(self, **options):
        def runner(x):
            with torch.no_grad():
                return self.net(torch.from_numpy(x)).numpy()

        return audit(read_folder(self.path), self.net, self.data, runner, **options)

    def said(self):
        """The disagreements as lines; only of the images that were touched, to save time."""
        return [str(line) for line in self.audit(indices=self.touched or None).wrong]


@pytest.fixture
def store(certified, trained, mnist_mini, tmp_path) -> Copy:
    shutil.copytree(certified, tmp_path / "store")
    return Copy(tmp_path / "store", trained, mnist_mini)
