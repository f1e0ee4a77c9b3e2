"""Code that the documentation shows must run, and must be true."""

import importlib.util
import json
import re
import statistics
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.methods import minutes
from maar.cli.main import COMMANDS
from maar.core.errors import UsageError
from maar.domains.bound import margins
from maar.domains.interval import Interval
from maar.networks import Normalize, Residual
from maar.regions import Ball

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def python_blocks(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"^ *```python\n(.*?)^ *```$", text, re.S | re.M)
    return [textwrap.dedent(block) for block in found]


def script(name):
    """scripts/NAME.py as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def docs_hook():
    """What mkdocs runs to make the command-line reference."""
    return script("docs_hook")


@pytest.fixture(scope="module")
def textbook():
    """The domain of adding-a-domain.md."""
    (code,) = [block for block in python_blocks("adding-a-domain.md") if "RULES = " in block]
    names = {}
    exec(compile(code, "adding-a-domain.md", "exec"), names)
    return names["Textbook"]()


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    return nn.Sequential(
        Normalize([0.5], [0.25]),
        nn.Flatten(),
        nn.Linear(16, 8),
        nn.ReLU(),
        Residual(body),
        nn.Linear(8, 3),
    )


def test_the_example_domain_is_sound(textbook, net):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(2, 1, 4, 4, generator=generator)
    ball, y = Ball(x, 0.2), torch.tensor([0, 2])
    C = margins(y, 3)
    with torch.no_grad():
        found = textbook(net, ball, C)
        for _ in range(300):
            point = ball.point(ball.random_start(generator))
            margin = (C @ net(point).unsqueeze(-1)).squeeze(-1)
            assert (found.lb - 1e-5 <= margin).all()
            assert (margin <= found.ub + 1e-5).all()
        # C is applied to the output here and within the last layer there, which is tighter
        known = Interval()(net, ball)
        torch.testing.assert_close(textbook(net, ball).lb, known.lb)
        for mine, theirs in zip(found.pre, known.pre, strict=True):
            torch.testing.assert_close(mine, theirs)


def test_the_example_domain_refuses_what_it_has_no_rule_for(textbook):
    net = nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(UsageError, match="layer 0 is a Conv2d; supported: Linear, ReLU"):
        textbook(net, Ball(torch.rand(1, 1, 4, 4), 0.1))


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_python_in_the_docs_is_python(page):
    for block in python_blocks(page):
        compile(block, page, "exec")


@pytest.mark.parametrize(
    ("usage", "commands"),
    [
        ("usage: maar data [-h] {list,fetch}", ["list", "fetch"]),
        ("usage: maar config {show,recipes} ...", ["show", "recipes"]),
        ("usage: maar x [-h] [--kind {ball,box}] RUN", []),
        ("usage: maar x [-h] --kind {ball,box}", []),
        ("usage: maar x [-h] [--kind {ball,box}] {one,two}", ["one", "two"]),
        ("usage: maar runs [DIR]\n\nuse {these,words}", []),
    ],
)
def test_the_reference_finds_sub_commands(docs_hook, usage, commands):
    assert docs_hook.subcommands(usage) == commands


def test_the_reference_has_every_command(docs_hook, monkeypatch):
    monkeypatch.setattr(docs_hook, "help_text", lambda *command: "usage: " + " ".join(command))
    page = docs_hook.command_line()
    for command in COMMANDS:
        assert f"\n## maar {command}\n" in page


def test_every_result_has_a_page(docs_hook):
    page, headings = docs_hook.results(ROOT), set()
    for path in [each for p in ("cpu", "small") for each in (ROOT / "results" / p).glob("*.json")]:
        result = json.loads(path.read_text())
        assert f"(measurements/{path.stem}.md)" in page
        own = docs_hook.measurement(ROOT, path.stem, result)
        headings.add(own.partition("\n")[0])
        assert result["command"] in own
    assert len(headings) == len(docs_hook.measured(ROOT)) > 10


def test_the_readme_has_the_numbers_that_were_measured():
    readme_results = script("readme_results")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    result = json.loads(readme_results.RESULT.read_text())
    assert readme_results.renewed(text, result) == text
    result["rows"][0]["metrics"]["certified"]["mean"] -= 0.001
    assert readme_results.renewed(text, result) != text


@pytest.mark.parametrize(
    "name",
    [
        "table1-cifar10-2_255-maar-colt-mat-seeds-0-first-300",
        "table1-cifar10-8_255-maar-colt-mat-seeds-0-first-2000",
    ],
)
def test_the_readme_has_the_numbers_of_cifar10(name):
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"](results/small/{name}.md)" in text
    for row in json.loads((ROOT / f"results/small/{name}.json").read_text())["rows"]:
        accuracy, certified = (100 * row["metrics"][m]["mean"] for m in ("accuracy", "certified"))
        assert f"{row['system']} {accuracy:.2f} / {certified:.2f}" in text


def test_the_methods_have_the_speeds_that_were_measured():
    page = (DOCS / "methods.md").read_text()
    rows = json.loads((ROOT / "results/benchmarks/methods-mnist-0.1.json").read_text())["rows"]
    for method in {row["method"] for row in rows}:
        of = [row for row in rows if row["method"] == method]
        steps = ", ".join(f"{1 / row['seconds']:.1f}" for row in of)
        images = ", ".join(f"{row['batch'] / row['seconds']:.0f}" for row in of)
        peak = f"{max(row['peak_mb'] for row in of):.0f} MB"
        whole = f"{minutes(of[0]['recipe'], [row['seconds'] for row in of]):.0f} min"
        assert f"| `{method}` | {steps} | {images} | {whole} | {peak} |" in page


@pytest.mark.parametrize(
    ("file", "precision"), [("train_step", "float32"), ("train_step-bf16", "bfloat16")]
)
def test_layerwise_training_has_the_speeds_that_were_measured(file, precision):
    page = (DOCS / "methods" / "layerwise.md").read_text()
    found = json.loads((ROOT / f"results/benchmarks/{file}.json").read_text())
    assert found["settings"]["stability_images"] == 1
    for setting in {row["setting"] for row in found["rows"]}:
        of = [row for row in found["rows"] if row["setting"] == setting]
        cells = [f"{r['seconds']:.2f} ({r['colt_code_seconds'] / r['seconds']:.1f}x)" for r in of]
        cells += ["-"] * (4 - len(cells))
        peak = f"{max(row['peak_mb'] for row in of) / 1000:.1f} GB"
        assert f"| {setting} | {precision} | {' | '.join(cells)} | {peak} |" in page


def links(text):
    """Targets of Markdown links to files, without their anchors."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.S | re.M)
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    return {target.partition("#")[0] for target in targets if ":" not in target} - {""}


PAGES = ("cli.md", "results.md", "contributing.md", "changelog.md", "certificate-argument.md")
GENERATED = {DOCS / name for name in PAGES}


@pytest.mark.parametrize("page", [*sorted(DOCS.rglob("*.md"))], ids=lambda path: path.stem)
def test_links_of_the_documentation_stay_within_it(page):
    for target in links(page.read_text(encoding="utf-8")):
        path = (page.parent / target).resolve()
        assert path.is_relative_to(DOCS), f"{target} leaves docs/: no page of the site"
        assert path.exists() or path in GENERATED, target


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_the_files_at_the_top_lead_somewhere(name):
    for target in links((ROOT / name).read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target
        # these two are pages of the site as well
        assert name == "README.md" or target.startswith("docs/"), target


def test_links_are_found():
    text = "[a](b.md#c) [d](#e) [f](https://g.h)\n```md\n[i](j.md)\n```\n[k](../l.md)"
    assert links(text) == {"b.md", "../l.md"}


def certification(name):
    return json.loads((ROOT / f"results/certification/colt_mnist_0.1-{name}.json").read_text())


def test_certification_has_the_seconds_that_were_measured():
    page = (DOCS / "certification.md").read_text()
    for name, verifier in certification("first-1000")["verifiers"].items():
        assert re.search(
            rf"^\| `{name}` \| {verifier['reached']:,} \|.* {verifier['seconds']:.0f} \|$",
            page,
            re.M,
        ), name
    rows = json.loads((ROOT / "results/benchmarks/workers.json").read_text())["rows"]
    seconds = statistics.median(row["seconds"] for row in rows if row["workers"] == 2)
    assert f"in {seconds:.0f} seconds on two cores" in " ".join(page.split())


def test_certification_says_which_images_are_hard():
    page = " ".join((DOCS / "certification.md").read_text().split())
    few, many, every = (
        100 * certification(name)["certified"] for name in ("first-200-paper", "first-1000", "all")
    )
    assert (
        f"{few:.2f} % of the first 200 are certified on COLT's public network, "
        f"{many:.2f} % of the first 1,000 and {every:.2f} % of all"
    ) in page


def test_the_python_page(capsys):
    torch.manual_seed(0)
    names = {}
    for block in python_blocks("python.md"):
        exec(compile(block, "python.md", "exec"), names)
    assert "verified" in capsys.readouterr().out
    assert set(names["terms"]) == {"adversarial", "consistency"}
