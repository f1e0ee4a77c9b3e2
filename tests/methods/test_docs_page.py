"""The method of adding-a-method.md works as the page says."""

import dataclasses
import re
import sys
import types
from pathlib import Path

import pytest

from maar.config.flags import parse_command
from maar.methods import METHODS
from maar.records.runs import read_run
from maar.training.trainer import train

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-method.md"


@pytest.fixture
def noise(monkeypatch):
    """The page's file as a module, registered by the page's line."""
    text = PAGE.read_text()
    code = re.search(r"```python\n(.*?)```", text, re.S)
    line = re.search(r'```text\n"(\w+)": "([\w.]+):(\w+)",\n```', text)
    assert code
    assert line
    module = types.ModuleType(line[2])
    monkeypatch.setitem(sys.modules, line[2], module)
    exec(compile(code[1], "noise.py", "exec"), vars(module))
    monkeypatch.setitem(METHODS._entries, line[1], f"{line[2]}:{line[3]}")
    return METHODS["noise"]


def test_it_trains_and_has_its_flags(noise, tmp_path):
    words = ["demo", "--method", "noise", "--l1", "1e-4", "--epochs", "1", "--valid", "4900"]
    config, _ = parse_command([*words, "--network", "mlp"], prog="maar train", description="")
    assert config.method == noise(l1=1e-4)
    train(dataclasses.replace(config, threads=1), tmp_path / "run")
    (line,) = read_run(tmp_path / "run").metrics
    assert set(line["loss"]) == {"total", "noisy", "l1"}
    assert set(line["train"]) == {"noisy_accuracy"}


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_has_a_page_with_equation_cost_and_use(name):
    pages = PAGE.parent
    text = (pages / "methods" / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    assert re.search(r"^    \S.*=", text, re.M), "an equation"
    assert "**Cost of a step**: " in text
    assert "**When to use it**: " in text
    assert f"[`{name}`](methods/{name}.md)" in (pages / "methods.md").read_text()
    assert f"methods/{name}.md" in (pages.parent / "mkdocs.yml").read_text()
