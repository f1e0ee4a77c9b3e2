"""The example in docs/bounds.md runs as it stands, and what the pages say of the code is so."""

import re
from pathlib import Path

import pytest
import torch

from maar.domains import BOUNDS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def page():
    return (DOCS / "bounds.md").read_text(encoding="utf-8")


def test_the_example_runs(page):
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    names: dict = {}
    exec(compile(code, "bounds.md", "exec"), names)
    assert all(parameter.grad is not None for parameter in names["net"].parameters())
    assert names["crown"].lb.shape == (4, 9)
    assert names["zonotope"].lb.shape == (4, 10)
    assert names["proved"].dtype == torch.bool
    net, y = names["net"].double(), names["y"]
    z = net(names["x"].double())
    margin = z.gather(1, y[:, None]) - z
    assert bool((names["crown"].lb.amin(1) <= margin.masked_fill(margin == 0, 1e9).amin(1)).all())


def test_every_domain_is_in_the_table(page):
    for name in BOUNDS:
        assert f"| `{name}`" in page


def test_the_names_that_soundness_points_to_exist():
    """An argument about functions that are gone is no argument."""
    text = (DOCS / "soundness.md").read_text(encoding="utf-8")
    code = "\n".join(path.read_text() for path in (DOCS.parent / "src/maar/domains").rglob("*.py"))
    names = "_affine halves outward output _account _meet concretise gated carry charged"
    for name in f"{names} never_below underflow refuse_inexact require settled quick".split():
        assert name in text
        assert f"def {name}(" in code, f"soundness.md speaks of {name}, which is no more"
    for file in re.findall(r"`((?:tests/domains/)?test_\w+\.py)`", text):
        folder = "" if "/" in file else "tests/soundness/"
        assert (DOCS.parent / folder / file).exists()
