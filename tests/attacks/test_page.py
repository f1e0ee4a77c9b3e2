"""The example in docs/regions-and-attacks.md runs as it stands."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "regions-and-attacks.md"


def test_the_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    names: dict = {}
    exec(compile(code, PAGE.name, "exec"), names)
    assert names["x_adv"].shape == names["x"].shape
    assert len(names["counterexamples"]) == names["found"].broken.sum()
