"""eps by place, masks and tables, from the API and the command line to the audit."""

import importlib.util
import json

import numpy as np
import pytest
import torch
from torch import nn

import maar
from maar.cli.main import main
from maar.core.errors import UsageError


def net(features: int, seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, 3)
        ).eval()


def sampled(model, x, each, low, high, y, count=2000):
    """Whether any of many points of the box, corners among them, gets another answer."""
    generator = torch.Generator().manual_seed(0)
    e = 2 * torch.rand(count, *x.shape, generator=generator) - 1
    e[::2] = e[::2].sign()
    points = (x + e * each).maximum(low).minimum(high)
    return bool((model(points).argmax(1) != y).any())


@pytest.mark.parametrize("seed", range(3))
def test_features_with_radii_and_ranges_of_their_own(seed):
    model = net(4, seed)
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.randn(30, 4, generator=generator)
    y = model(x).argmax(1)
    eps = torch.tensor([0.3, 0.0, 2.0, 0.05])
    low, high = torch.full((4,), -50.0), torch.tensor([50.0, 50.0, 3.0, 50.0])
    x[:, 2] = x[:, 2].clamp(max=3)
    y = model(x).argmax(1)
    result = maar.certify(model, x, y, eps, span=(low, high), workers=1)
    assert 0 < result.verified.sum() < 30
    assert not result.unknown.any()
    for n, image in enumerate(result):
        if image.verdict == "verified":
            assert not sampled(model, x[n], eps, low, high, y[n])
        else:
            away = (image.counterexample.double() - x[n].double()).abs()
            assert (away <= eps.double()).all()
            assert image.counterexample[2] <= 3
            assert model(image.counterexample[None]).argmax(1) != y[n]


def test_a_mask_of_pixels():
    model = net(16)
    x = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    y = model(x).argmax(1)
    mask = torch.zeros(4, 4, dtype=torch.bool)
    mask[1, 1:3] = True
    everywhere = maar.certify(model, x, y, 0.2, workers=1)
    masked = maar.certify(model, x, y, 0.2, mask=mask, workers=1)
    assert masked.verified.sum() > everywhere.verified.sum()
    assert not (everywhere.verified & ~masked.verified).any()
    for n in masked.falsified.nonzero().flatten().tolist():
        moved = masked[n].counterexample != x[n]
        assert not moved[0][~mask].any()
    found = maar.attack(model, x, y, 0.2, mask=mask)
    assert not (found.success & masked.verified).any()
    bounds = maar.bounds(model, x, 0.2, mask=mask, rounding=True)
    assert (bounds.lb <= model(found.x_adv)).all()


def test_rows_of_a_table_have_no_range_of_their_own():
    model, x = net(4), 100 * torch.randn(5, 4)
    result = maar.certify(model, x, model(x).argmax(1), 3.0, workers=1)
    assert len(result) == 5
    with pytest.raises(UsageError, match="larger than the whole pixel range"):
        maar.certify(model, x.clamp(0, 1), [0] * 5, 3.0, span=(0.0, 1.0))
    with pytest.raises(UsageError, match="outside the range"):
        maar.bounds(model, x, 0.1, span=([-1.0] * 4, [1.0] * 4))


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = net(3)
    torch.save(model.state_dict(), "model.pt")
    (tmp_path / "model.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), "
        "nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 3))\n"
    )
    x = (10 * torch.randn(12, 3)).numpy().round(3)
    y = model(torch.from_numpy(x)).argmax(1).tolist()
    lines = [",".join([*map(str, row), str(label)]) for row, label in zip(x, y, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,kind", *lines]) + "\n")
    return tmp_path


WORDS = ["model.py:net", "--weights", "model.pt", "--data", "csv:t.csv?label=kind&classes=0,1,2"]


def certify(*words):
    return main(["certify", *WORDS, "--workers", "1", *words])


def test_the_command_line_binds_what_moves(project, capsys):
    np.save("eps.npy", np.array([2.5, 0.0, 0.5]))
    np.save("mask.npy", np.array([True, False, True]))
    assert certify("--eps", "2.5:0:0.5", "--out", "colons") == 0
    assert certify("--eps-file", "eps.npy", "--out", "file") == 0
    assert certify("--eps", "2.5", "--mask", "mask.npy", "--out", "mask") == 0
    assert certify("--eps", "2.5", "--out", "all") == 0
    keys = {
        name: json.loads((project / name / "manifest.json").read_text())["key"]
        for name in ("colons", "file", "mask", "all")
    }
    assert keys["colons"] == keys["file"]
    assert len(set(keys.values())) == 3
    assert "eps 0.5 to 2.5 in 2 places" in capsys.readouterr().out
    assert certify("--eps", "2.5", "--out", "mask") == 2
    assert "is about something else" in capsys.readouterr().err
    assert main(["report", "colons", "all", "--out", "page"]) == 0
    assert certify("--eps", "1", "--eps-file", "eps.npy") == 2
    assert certify("--eps", "1", "--mask", "nowhere.npy") == 2


@pytest.mark.skipif(not importlib.util.find_spec("onnxruntime"), reason="needs onnxruntime")
def test_the_audit_knows_what_moves(project, capsys):
    assert certify("--eps", "2.5:0:0.5", "--out", "out") == 0
    assert main(["audit", "out", "--workers", "1"]) == 0
    content = dict(np.load("out/perturbation.npz"))
    np.savez("out/perturbation.npz", **{**content, "each": content["each"] + 1})
    capsys.readouterr()
    assert main(["audit", "out", "--workers", "1"]) == 1
    assert "does not hold the numbers" in capsys.readouterr().err


@pytest.mark.skipif(not importlib.util.find_spec("onnxruntime"), reason="needs onnxruntime")
def test_the_audit_sees_a_counterexample_where_nothing_may_move(project, capsys):
    """A planted bug: a verifier that moves every place, and a replay that lets it pass."""
    from maar.regions.perturbation import Perturbation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Perturbation, "fault", lambda self, x, point: "")
        patch.setattr(
            Perturbation,
            "ball",
            lambda self, x: maar.Ball(
                x, torch.full(x.shape, 2.5), torch.tensor(-1e9), torch.tensor(1e9)
            ),
        )
        assert certify("--eps", "2.5:0:0.5", "--out", "out") == 0
    found = (project / "out" / "verdicts.jsonl").read_text()
    assert "falsified" in found
    assert main(["audit", "out", "--workers", "1"]) == 1
    assert "away, eps is" in capsys.readouterr().out
