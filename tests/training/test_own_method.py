"""A method, network and verifier of the user's own: they travel with the run."""

import json
import re
import shutil
import textwrap

import pytest
import torch

import maar
from maar.cli.main import main
from maar.core.errors import UsageError
from maar.training.trainer import Display, train

METHOD = """
    from dataclasses import dataclass
    from typing import ClassVar

    import torch.nn.functional as F
    from maar.core.settings import NonNegative
    from maar.methods.base import Method, Stage
    from maar.methods.schedules import Ramp
    from near import FACTOR

    @dataclass(frozen=True)
    class Mine(Method):
        paper: ClassVar[str] = "nobody"
        year: ClassVar[int] = 2026
        idea: ClassVar[str] = "cross-entropy, times a factor"

        l1: NonNegative = 1e-5
        \"\"\"weight of the L1 norm\"\"\"

        def stages(self, net, eps, epochs):
            return [Stage("all", epochs, eps=Ramp(0.0, eps, epochs=1.0))]

        def loss(self, batch):
            l1 = sum(weight.abs().sum() for weight in batch.net.parameters())
            z = batch.net(batch.x)
            return {"ce": FACTOR * F.cross_entropy(z, batch.y), "l1": self.l1 * l1}
"""
NETWORK = """
    from torch import nn
    from maar.networks import Normalize
    from near import WIDTH

    def net(shape, classes, mean, std):
        return nn.Sequential(
            Normalize(mean, std), nn.Flatten(), nn.Linear(784, WIDTH), nn.ReLU(),
            nn.Linear(WIDTH, classes),
        )
"""
VERIFIER = """
    from dataclasses import dataclass
    from typing import ClassVar
    from maar.certification.verdict import UNKNOWN, Verdict
    from maar.domains.interval import Interval

    @dataclass(frozen=True)
    class Mine:
        name: ClassVar[str] = "mine"

        def __call__(self, query):
            import torch
            ball, margins = query.ball(torch.float64), query.margins(torch.float64)
            lb = Interval(True)(query.network.graph(torch.float64), ball, margins).lb[0]
            found = dict(zip(query.targets, lb.tolist(), strict=True))
            return Verdict(UNKNOWN.status, lb=found)
"""


class Stop(Display):
    """Ctrl-C after the first epoch."""

    def epoch(self, *args, **options):
        raise KeyboardInterrupt


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with the files, which is the current one."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "near.py").write_text("FACTOR = 0.5\nWIDTH = 8\n")
    for name, text in (("method", METHOD), ("network", NETWORK), ("verifier", VERIFIER)):
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.chdir(folder)
    return folder


WORDS = [
    "demo", "--method", "method.py:Mine", "--network", "network.py:net", "--epochs", "2", "--valid",
    "4500", "--threads", "1", "--l1", "1e-4", "--name", "it",
]  # fmt: skip


def test_a_run_with_own_files_lives_without_them(own, tmp_path, monkeypatch, capsys):
    from maar.config.flags import parse_command

    whole, _ = parse_command([*WORDS, "--name", "whole"], prog="x", description="")
    train(whole, own / "runs" / "whole")
    config, _ = parse_command(WORDS, prog="x", description="")
    with pytest.raises(KeyboardInterrupt):
        train(config, own / "runs" / "it", display=Stop())
    run = tmp_path / "elsewhere" / "it"
    shutil.copytree(own / "runs" / "it", run)
    expected = maar.load(own / "runs" / "whole").network.state_dict()
    shutil.rmtree(own)
    (tmp_path / "near.py").write_text("raise RuntimeError('another file of this name')\n")
    monkeypatch.chdir(tmp_path)
    index = json.loads((run / "own" / "index.json").read_text())
    assert list(index) == ["network.py", "method.py"]
    assert main(["train", str(run), "--resume"]) == 0
    found = maar.load(run)
    assert all(
        torch.equal(expected[key], value) for key, value in found.network.state_dict().items()
    )
    assert found.config.method.l1 == 1e-4
    # Certifying needs no method: its copy may even be broken.
    (copy,) = run.glob("own/method-*/method.py")
    copy.write_text("raise RuntimeError('never run')\n")
    words = ["--limit", "4", "--preset", "fast", "--eps", "0.01", "--workers", "1"]
    assert main(["certify", str(run), *words, "--out", "out"]) == 0
    with pytest.raises(Exception, match="it was changed"):
        maar.load(run).config  # noqa: B018
    capsys.readouterr()
    assert main(["train", str(run), "--resume"]) == 1
    assert "it was changed" in capsys.readouterr().err


def test_a_verifier_of_ones_own(own, capsys):
    words = [
        "certify",
        "zoo:maar-mnist-0.1",
        "--data",
        "mnist_mini",
        "--limit",
        "40",
        "--workers",
        "2",
    ]
    asked = ["--verifiers", "misclassified,verifier.py:Mine,pgd", "--out", "out"]
    if main([*words, *asked]) != 0:
        pytest.fail(capsys.readouterr().err)
    manifest = json.loads((own / "out" / "manifest.json").read_text())
    assert manifest["verifiers"] == ["misclassified", "mine", "pgd"]
    assert manifest["subject"]["verifiers"][1].startswith("Mine() of ")
    assert [path.name for path in own.glob("out/own/*/*.py")] == ["verifier.py"]
    (own / "verifier.py").write_text((own / "verifier.py").read_text() + "\n# another one\n")
    capsys.readouterr()
    assert main([*words, *asked]) == 2
    assert "is about something else" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('name: ClassVar[str] = "crown"', "calls itself 'crown', as one of maar's"),
        ("pass", "is no verifier"),
    ],
)
def test_bad_verifiers(own, line, said):
    text = (own / "verifier.py").read_text().replace('name: ClassVar[str] = "mine"', line)
    (own / "verifier.py").write_text(text)
    with pytest.raises(UsageError, match=said):
        maar.certify("zoo:maar-mnist-0.1", torch.rand(1, 1, 28, 28), [0], 0.1,
                     verifiers=[f"{own / 'verifier.py'}:Mine"])  # fmt: skip


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("method.py:Mien", "has no 'Mien'; did you mean 'Mine'"),
        ("method.py:F", "has no 'F'"),
        ("nowhere.py:Mine", "does not exist"),
        ("network.py:net", "is no class of methods"),
        ("mar", "did you mean 'mart'.*or your own: FILE.py:NAME"),
    ],
)
def test_bad_methods(own, capsys, name, said):
    assert main(["config", "show", "demo", "--method", name]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_entry_points(own, monkeypatch):
    from importlib.metadata import EntryPoint

    from maar.core.registry import Registry

    points = [
        EntryPoint("theirs", "json:loads", "maar.things"),
        EntryPoint("ours", "json:dumps", "maar.things"),
        EntryPoint("lost", "json:nothing", "maar.things"),
    ]
    monkeypatch.setattr("maar.core.registry.entry_points", lambda group: points)
    things = Registry("thing", {"ours": "math:sqrt"}, group="maar.things")
    assert list(things) == ["ours", "theirs", "lost"]
    assert things["theirs"]("1") == 1
    assert things["ours"](4) == 2
    with pytest.raises(UsageError, match="entry point 'json:nothing' cannot be imported"):
        things["lost"]
