"""The examples of docs/certification.md run as they stand."""

import re
from pathlib import Path

from maar.certification import CASCADE
from maar.certification.cascade import Cascade
from maar.certification.verdict import Status

PAGE = (Path(__file__).parents[2] / "docs" / "certification.md").read_text(encoding="utf-8")
LIBRARY, VERIFIER = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def names_of(code):
    names: dict = {}
    exec(compile(code, "certification.md", "exec"), names)
    return names


def test_the_library_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = names_of(LIBRARY)["result"]
    assert len(result) == 20
    assert not result.error.any()
    assert (tmp_path / "certs" / "untrained" / "verdicts.jsonl").exists()


def test_the_example_of_a_verifier(ask):
    verifier = names_of(VERIFIER)["CrownIbp"]()
    assert verifier.name == "crown_ibp"
    assert Cascade((verifier,)).settle(ask(0.2)).status is Status.VERIFIED
    assert Cascade((verifier,)).settle(ask(0.25)).status is Status.UNKNOWN


def test_the_table_has_the_whole_cascade():
    listed = re.findall(r"^\| `(\w+)` \| [a-z ]+ \| [0-9]", PAGE, re.M)
    assert listed == list(CASCADE)
