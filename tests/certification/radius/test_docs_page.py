"""The example of docs/radius.md runs as it stands."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "radius.md").read_text(encoding="utf-8")


def test_the_library_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names: dict = {}
    exec(compile(code, "radius.md", "exec"), names)
    assert names["tally"].done == 3
    assert names["tally"].counts["error"] == 0
    assert (tmp_path / "certs" / "radii" / "radii.jsonl").exists()
