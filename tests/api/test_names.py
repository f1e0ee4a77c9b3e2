"""What `import maar` gives, and what it costs."""

import subprocess
import sys

import pytest

import maar


@pytest.mark.parametrize("name", maar.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert getattr(maar, name)
    assert name.startswith("__") or getattr(maar, name).__doc__


def test_no_package_has_the_name_of_a_public_one():
    from pathlib import Path

    packages = {path.parent.name for path in Path(maar.__file__).parent.glob("*/__init__.py")}
    assert not packages & set(maar.__all__)


def test_import_costs_no_torch():
    code = "import sys, maar; dir(maar); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="certfy"):
        _ = maar.certfy
