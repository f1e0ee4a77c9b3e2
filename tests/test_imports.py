"""Imports point one way (DESIGN): read from the source text, so that lazy imports count too."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import maar

ROOT = Path(maar.__file__).parent

# package -> the packages of maar that it may import. The modules directly below maar (errors,
# registry, eps, files, ...) are for everyone and import no package.
ALLOWED: dict[str, set[str]] = {
    "data": set(),
    "networks": {"data"},
    "bounds": {"data", "networks"},
    "regions": {"data", "networks", "bounds"},
    "attacks": {"data", "networks", "bounds", "regions"},
    "methods": {"data", "networks", "bounds", "regions", "attacks"},
    "train": {"data", "networks", "bounds", "regions", "attacks", "methods"},
    "certify": {"data", "networks", "bounds", "regions", "attacks"},
    "exchange": {"data", "networks"},
    "report": set(),
    "experiments": set(),
}
ANYTHING = {"cli", "__main__"}


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


def parts_imported(source: str, package: str) -> set[str]:
    """The second name of each `maar.<name>` that the source imports."""
    dotted = (name.split(".") for name in modules_named(ast.parse(source), package))
    return {name[1] for name in dotted if name[0] == "maar" and len(name) > 1}


def offences(source: str, part: str, package: str) -> set[str]:
    packages = {*ALLOWED, "cli"}
    return (parts_imported(source, package) & packages) - ALLOWED.get(part, set()) - {part}


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    relative = path.relative_to(ROOT)
    part = relative.parts[0].removesuffix(".py")
    if part in ANYTHING:
        return
    package = ".".join(("maar", *relative.parts[:-1]))
    assert not offences(path.read_text(encoding="utf-8"), part, package)


def test_every_package_is_in_the_table():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages <= {*ALLOWED, "cli"}


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("import maar.methods", "certify"),
        ("from maar.methods.colt import COLT", "certify"),
        ("from maar import methods", "certify"),
        ("def f():\n    from ..methods import colt", "certify"),
        ("from maar.train import trainer", "methods"),
        ("from maar.bounds import interval", "networks"),
        ("from maar.certify import store", "report"),
        ("from maar.cli import main", "train"),
        ("from maar.data import load", "errors"),
    ],
)
def test_the_rule_can_fail(source, part):
    assert offences(source, part, f"maar.{part}")


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("from maar.errors import UsageError\nimport torch", "data"),
        ("from . import colt\nfrom .colt import COLT", "methods"),
        ("from maar.methods import METHODS", "train"),
    ],
)
def test_the_rule_can_pass(source, part):
    assert not offences(source, part, f"maar.{part}")
