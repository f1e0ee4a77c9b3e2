"""The code on configuration.md runs."""

import re
from pathlib import Path

from maar.config.load import build
from maar.core.unpacking import tomllib as toml

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_its_code_and_its_file_are_right(capsys):
    text = PAGE.read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(compile(block, "configuration.md", "exec"), {})
    assert 'eps = "2/255"' in capsys.readouterr().out
    for block in re.findall(r"```toml\n(.*?)```", text, re.S):
        build(toml.loads(block))
