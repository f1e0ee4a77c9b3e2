"""What `maar compare` prints."""

import json

import pytest

from maar.cli.main import main

ASKED = {"by": "crown", "seconds": 0.0, "times": {"crown": 0.0}}
MORE = {
    "verified": {"verdict": "verified", **ASKED, "lb": 0.5},
    "falsified": {"verdict": "falsified", **ASKED, "target": 1, "margin": -0.5},
    "misclassified": {"verdict": "misclassified", **ASKED, "target": 1, "margin": -0.5},
    "unknown": {"verdict": "unknown", **ASKED, "by": None, "open": [1]},
}


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Two runs with 400 images: A certifies 30 that B does not, and B 10 that A does not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name, words in (
        ("a", ["verified"] * 360 + ["falsified"] * 10 + ["unknown"] * 5 + ["misclassified"] * 25),
        ("b", ["falsified"] * 30 + ["verified"] * 340 + ["unknown"] * 5 + ["misclassified"] * 25),
    ):
        folder = tmp_path / name / "certify" / "eps-0.1-k"
        folder.mkdir(parents=True)
        (tmp_path / name / "config.toml").write_text(f"seed = {int(name == 'b')}\n")
        subject = {"weights": name, "data": "d", "split": "test", "eps": 0.1}
        # (of the format before seals, so that the tests can edit it)
        facts = {"network": name, "data": "mnist", "split": "test", "verifiers": ["crown"]}
        facts |= {"key": "k", "format": 2, "images": len(words)}
        (folder / "manifest.json").write_text(json.dumps({"subject": subject, **facts}))
        lines = [json.dumps({"index": i, "label": 0, **MORE[word]}) for i, word in enumerate(words)]
        (folder / "verdicts.jsonl").write_text("\n".join(lines) + "\n")


def test_the_terminal(runs, capsys):
    assert main(["compare", "a", "b", "--list", "3"]) == 0
    said = capsys.readouterr().out
    assert "mnist test, eps 0.1: 400 images" in said
    assert "certified, in %             90.00  85.00  +5.00  95 %: +1.85 to +8.10" in said
    assert "certified by this one only     30     10    +20  both 330, neither 30" in said
    assert "p = 0.0022 exact" in said
    assert "A certifies more; significant at the 5 % level" in said
    assert "differ by +3.75 to +6.25 points: A is more robust in any case" in " ".join(said.split())
    assert "Only A certifies (of B: 30 falsified): 0, 1, 2, ... (27 more)" in said
    assert "seed" in said


def test_json_has_every_image(runs, capsys):
    assert main(["compare", "a", "b", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["a"], found["b"], found["settings"]) == ("a", "b", {"seed": ["0", "1"]})
    [pair] = found["comparisons"]
    assert pair["only_a"] == list(range(30))
    assert len(pair["only_b"]) == 10
    assert pair["certified_test"]["difference"] == pytest.approx(0.05)


def test_markdown(runs, capsys):
    assert main(["compare", "a", "b/certify/eps-0.1-k", "--markdown"]) == 0
    said = capsys.readouterr().out
    assert "| certified, in % | 90.00 | 85.00 | +5.00 |" in said
    assert "- McNemar: p = 0.0022 exact" in said


def test_warnings_are_in_markdown_too(runs, capsys, tmp_path):
    with (tmp_path / "a" / "certify" / "eps-0.1-k" / "verdicts.jsonl").open("a") as file:
        file.write("no verdict\n")
    assert main(["compare", "a", "b", "--markdown"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("> **warning:** ")
    assert "line 401 is no verdict" in said


def test_other_settings_and_limits_are_said(runs, capsys, tmp_path):
    for name, steps, limit in (("a", 20, 10.0), ("b", 40, 60.0)):
        folder = tmp_path / name / "certify" / "eps-0.1-k"
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["subject"]["verifiers"] = [f"Crown(steps={steps})"]
        (folder / "manifest.json").write_text(json.dumps(manifest))
        lines = (folder / "verdicts.jsonl").read_text()
        lines = lines.replace('"unknown"', f'"unknown", "limit": {limit}')
        (folder / "verdicts.jsonl").write_text(lines)
    assert main(["compare", "a", "b"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The verifiers had different settings" in said
    assert "Open images had 10 s each of A, 60 s of B." in said


def test_a_network_with_itself_is_no_question_of_chance(runs, capsys):
    assert main(["compare", "a", "a"]) == 0
    said = capsys.readouterr().out
    assert "Both are the same weights: every verdict is the same." in said
    for word in ("McNemar", "95 %", "not settled"):
        assert word not in said


def test_a_damaged_certification_is_named(runs, tmp_path, capsys):
    (tmp_path / "b" / "certify" / "eps-0.1-k" / "manifest.json").write_text("{")
    assert main(["compare", "a", "b"]) == 2
    said = capsys.readouterr().err
    assert "b has no certification of model; b/certify/eps-0.1-k/manifest.json is damaged" in said


def test_what_only_one_method_has_is_not_a_table(runs, tmp_path, capsys):
    (tmp_path / "a" / "config.toml").write_text(
        "[method]\nname = 'maar'\nlam = 6.0\nweight = 'soft'"
    )
    (tmp_path / "b" / "config.toml").write_text("[method]\nname = 'ibp'\nramp = 2.0\n")
    assert main(["compare", "a", "b"]) == 0
    said = capsys.readouterr().out
    assert "method.name  maar  ibp" in said
    assert "Only A has: method.lam 6.0, method.weight soft\n" in said
    assert "Only B has: method.ramp 2.0\n" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"], "takes two runs, not 1"),
        (["a", "b", "a"], "takes two runs, not 3"),
        (["a", "c"], "no such folder: c"),
        (["zoo:maar-mnist-0.1", "a"], "make it: maar certify zoo:maar-mnist-0.1"),
        (["zoo:maar-mnist", "a"], "did you mean 'zoo:maar-mnist-0.1'?"),
        (["a", "b", "--json", "--markdown"], "exclude each other"),
        (["a", "b", "--list", "-1"], "--list -1"),
    ],
)
def test_mistakes(runs, capsys, words, message):
    assert main(["compare", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
