"""Which files beside a user's own file it imports: read from the source, without running it."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

from maar.core import limits
from maar.core.unpacking import read_limited


def neighbours(path: Path) -> list[Path]:
    """Return the modules and packages beside `path` that it imports, and those that these import.

    Of a package, every Python file. Imports by computed names are not seen.
    """
    folder = path.parent
    seen: dict[Path, None] = {}
    todo = [path]
    while todo:
        for name in _imported(todo.pop()):
            for file in _files(folder, name):
                if file not in seen and file != path:
                    seen[file] = None
                    todo.append(file)
    return list(seen)


def digest(path: Path) -> str:
    """Return the hash of a file and its neighbours: of what runs when it is loaded."""
    total = hashlib.sha256()
    files = {file.relative_to(path.parent).as_posix(): file for file in (path, *neighbours(path))}
    for name in sorted(files):
        content = read_limited(files[name], limits.OWN_BYTES)
        total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()


def _imported(path: Path) -> Iterator[str]:
    """The first names of all modules that a file imports."""
    try:
        tree = ast.parse(read_limited(path, limits.OWN_BYTES))
    except (SyntaxError, ValueError, OSError):
        return  # running it says what is wrong
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def _files(folder: Path, name: str) -> list[Path]:
    if (folder / f"{name}.py").is_file():
        return [folder / f"{name}.py"]
    package = folder / name
    if not (package / "__init__.py").is_file():
        return []
    return [file for file in sorted(package.rglob("*.py")) if "__pycache__" not in file.parts]
