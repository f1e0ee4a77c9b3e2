"""Registries: names without imports, things on demand, errors that help."""

import sys

import pytest

from maar.core.errors import UsageError
from maar.core.registry import Registry


@pytest.fixture
def shapes():
    # `this` prints a poem when imported: a module that nothing else loads
    return Registry("shape", {"root": "math:sqrt", "poem": "this:s"})


def test_lists_names_in_order_without_importing(shapes):
    sys.modules.pop("this", None)
    assert list(shapes) == ["root", "poem"]
    assert "poem" in shapes
    assert "square" not in shapes
    assert len(shapes) == 2
    assert "this" not in sys.modules


def test_gives_the_thing(shapes):
    assert shapes["root"](9) == 3


def test_add_is_for_this_registry_only(shapes):
    entries = {"root": "math:sqrt"}
    registry = Registry("shape", entries)
    registry.add("floor", "math:floor")
    assert registry["floor"](1.5) == 1
    assert entries == {"root": "math:sqrt"}
    assert "floor" not in shapes


@pytest.mark.parametrize("name", ["rot", "", "ROOT"])
def test_unknown_name_is_a_usage_error(shapes, name):
    with pytest.raises(UsageError, match=r"unknown shape .*accepted: poem, root"):
        shapes[name]
