"""Imports point one way (DESIGN): read from the source text, so that lazy imports count too."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import maar

ROOT = Path(maar.__file__).parent

# package -> the packages of maar that it may import. `core` is for everyone and imports none.
WORDS = {"data", "networks", "domains", "regions", "attacks"}
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "records": set(),
    "terminal": set(),
    "data": set(),
    "networks": set(),
    "domains": {"data", "networks"},
    "regions": {"data", "networks", "domains"},
    "attacks": WORDS,
    "methods": WORDS,
    "config": WORDS | {"methods"},
    "training": WORDS | {"methods", "config", "records", "terminal"},
    "certificates": WORDS,
    "certification": WORDS | {"certificates", "exchange", "records", "terminal"},
    "exchange": {"networks"},
    "zoo": {"networks", "training"},
    "reporting": {"data", "records", "terminal"},
    "experiments": {
        "data",
        "networks",
        "methods",
        "config",
        "training",
        "certification",
        "reporting",
        "records",
        "terminal",
    },
    "tuning": {
        "data",
        "networks",
        "methods",
        "config",
        "training",
        "certification",
        "experiments",
        "records",
    },
}
ANYTHING = {"api", "cli", "__init__", "__main__"}


def modules_named(tree: ast.AST, package: str) -> Iterator[str]:
    """Every module that a file of `package` (dotted) imports, with relative imports resolved."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            prefix = ".".join(base if node.level else [])
            module = ".".join(filter(None, [prefix, node.module or ""]))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def parts_imported(tree: ast.AST, package: str) -> set[str]:
    """The second name of each `maar.<name>` that the tree imports."""
    dotted = (name.split(".") for name in modules_named(tree, package))
    return {name[1] for name in dotted if name[0] == "maar" and len(name) > 1}


def offences(source: str, part: str, package: str) -> set[str]:
    allowed = ALLOWED.get(part, set()) | {part, "core"}
    return (parts_imported(ast.parse(source), package) & {*ALLOWED, "api", "cli"}) - allowed


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    relative = path.relative_to(ROOT)
    part = relative.parts[0].removesuffix(".py")
    if part in ANYTHING:
        return
    package = ".".join(("maar", *relative.parts[:-1]))
    assert not offences(path.read_text(encoding="utf-8"), part, package)


def test_the_checker_imports_numpy_and_the_standard_library_only():
    for path in (ROOT.parent / "maar_check").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        roots = {name.split(".")[0] for name in modules_named(tree, "maar_check")}
        assert roots <= {*sys.stdlib_module_names, "numpy", "maar_check"}, path


def test_every_package_is_in_the_table():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages <= {*ALLOWED, "api", "cli"}


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("import maar.methods", "certification"),
        ("from maar.methods.colt import COLT", "certification"),
        ("from maar import methods", "certification"),
        ("def f():\n    from ..methods import colt", "certification"),
        ("from maar.training import trainer", "methods"),
        ("from maar.domains import interval", "networks"),
        ("from maar.certification import store", "reporting"),
        ("from maar.cli import main", "training"),
        ("from maar.data import load", "errors"),
        ("if TYPE_CHECKING:\n    from maar.methods import METHODS", "certification"),
        ("from maar.config import TrainConfig", "methods"),
        ("def f():\n    from maar.config import TrainConfig", "methods"),
    ],
)
def test_the_rule_can_fail(source, part):
    assert offences(source, part, f"maar.{part}")


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("from maar.core.errors import UsageError\nimport torch", "data"),
        ("from . import colt\nfrom .colt import COLT", "methods"),
        ("from maar.methods import METHODS", "training"),
    ],
)
def test_the_rule_can_pass(source, part):
    assert not offences(source, part, f"maar.{part}")
