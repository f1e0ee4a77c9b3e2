"""A certification with every kind of verdict in it, and an audit of a copy that may be spoilt."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from maar.certification.audit.folder import read_folder
from maar.certification.audit.run import audit
from maar.certification.run import make_plan, run
from maar.core.seals import file_seal
from maar.records.checks import spans
from maar.records.verdicts import Tally

EPS = 0.06
# With the last one, every verifier has settled an image.
LIMIT = 33
VERIFIERS = ("misclassified", "quick_pgd", "crown", "alpha_crown")


@pytest.fixture(scope="session")
def certified(trained, mnist_mini, tmp_path_factory) -> Path:
    """The folder of a certification."""
    plan = make_plan(trained, mnist_mini, EPS, verifiers=VERIFIERS, limit=LIMIT, name="small")
    out = tmp_path_factory.mktemp("certified") / "store"
    tally = run(plan, out, workers=1)
    assert min(tally.counts[k] for k in ("misclassified", "falsified", "verified", "unknown")) > 0
    return out


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sealed(content):
    """A manifest or a summary with its seal, whatever is in it."""
    rest = {k: v for k, v in content.items() if k != "seal"}
    return {**rest, "seal": digest(json.dumps(rest, sort_keys=True))}


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

    @property
    def manifest(self):
        return json.loads((self.path / "manifest.json").read_text())

    def write(self, lines) -> None:
        """Write lines with seals that hold: as a forger does who has the code."""
        seal, content = self.manifest["key"], ""
        for line in lines:
            body = json.dumps({k: v for k, v in line.items() if k != "seal"})
            seal = digest(f"{seal}\n{body}")
            content += f'{body[:-1]}, "seal": "{seal}"}}\n'
        (self.path / "verdicts.jsonl").write_text(content)
        if (self.path / "summary.json").exists():
            self.change_summary(lines=len(lines), last_seal=seal)

    def change_manifest(self, **values):
        """Change facts, and let the seal hold."""
        (self.path / "manifest.json").write_text(json.dumps(sealed({**self.manifest, **values})))

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
        self.change(index, counterexample=file_seal(path.read_bytes()))

    def change_summary(self, **values):
        path = self.path / "summary.json"
        path.write_text(json.dumps(sealed({**json.loads(path.read_text()), **values})))

    def recount(self):
        """Let the summary fit the lines, as a forger does who has the code."""
        summary = json.loads((self.path / "summary.json").read_text())
        lines = {line["index"]: line for line in self.lines}
        (self.path / "summary.json").unlink()
        tally = Tally(len(lines), self.manifest["images"], self.manifest["verifiers"])
        for line in lines.values():
            tally.add(line)
        about = {**summary, "indices": spans(lines), **tally.summary()}
        about = {key: self.manifest.get(key, value) for key, value in about.items()} | {
            key: about[key] for key in ("images", "verifiers")
        }
        (self.path / "summary.json").write_text(json.dumps(about))
        self.write(self.lines)

    def audit(self, **options):
        def runner(x):
            with torch.no_grad():
                return self.net(torch.from_numpy(x)).numpy()

        options = {"name": "small", **options}
        return audit(read_folder(self.path), self.net, self.data, runner, **options)

    def said(self):
        """The disagreements as lines; only of the images that were touched, to save time."""
        return [str(line) for line in self.audit(indices=self.touched or None).wrong]


@pytest.fixture
def store(certified, trained, mnist_mini, tmp_path) -> Copy:
    shutil.copytree(certified, tmp_path / "store")
    return Copy(tmp_path / "store", trained, mnist_mini)


@pytest.fixture
def copy_at() -> type[Copy]:
    """A folder that was copied already, with another network or other data."""
    return Copy
