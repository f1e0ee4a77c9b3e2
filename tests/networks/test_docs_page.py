"""docs/networks.md names everything there is, and its code runs."""

import re
from pathlib import Path

import pytest

from maar.exchange.onnx_operators import OPERATORS
from maar.networks import NETWORKS, make
from maar.networks.supported import SUPPORTED

PAGE = (Path(__file__).parents[2] / "docs" / "networks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)


@pytest.mark.parametrize("name", [*NETWORKS, *(kind.__name__ for kind in SUPPORTED), *OPERATORS])
def test_the_page_names(name):
    assert re.search(rf"\b{name}\b", PAGE)


def test_the_example_network(tmp_path):
    (block,) = (block for block in BLOCKS if block.startswith("# mine.py"))
    (tmp_path / "mine.py").write_text(block)
    make(f"{tmp_path / 'mine.py'}:net", (3, 32, 32), 10)


def test_the_example_of_use():
    (block,) = (block for block in BLOCKS if "weights_hash(net)" in block)
    names = {}
    exec(compile(block, "networks.md", "exec"), names)
    assert len(names["prefix"]) == 4
