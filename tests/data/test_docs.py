"""The example in docs/data.md builds, fetches and loads."""

import re
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from maar import data
from maar.data.web import Web

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not beside the tests")
def test_the_example_of_a_new_data_set(tiny, site):
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[-1]
    names = {}
    exec(dedent(code), names)
    example = names["KMNIST"]
    assert len(example.info.classes) == 10
    assert [file.name for file in example.files] == list(tiny.raw)
    # With the tiny files in place of the real ones, all else as on the page.
    site.files = {f"/{name}": raw for name, raw in tiny.raw.items()}
    tiny.published = replace(
        example,
        files=tiny.published.files,
        sha256=tiny.published.sha256,
        origins=(Web((site.url,), file="{name}"),),
    )
    data.fetch("tiny")
    assert data.load("tiny").size("train") == 6
