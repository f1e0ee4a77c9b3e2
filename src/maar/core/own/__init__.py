"""A user's own Python code, `FILE.py:NAME` wherever a registered name stands.

The file is run as Python: it is the user's own. It may import its neighbours. A run keeps copies of
the file and its neighbours (`copies`), and reads these from then on (`reading`).

Objects of such a file can be sent to worker processes: its module is called
`maar.core.own.file_HEX`, HEX being its path, and importing this package installs the finder that
knows what this means.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from maar.core.errors import MaarError, UsageError, nearest
from maar.core.own.copies import found_copy, keep, reading, run_of
from maar.core.own.neighbours import neighbours

__all__ = [
    "file_of",
    "is_own",
    "keep",
    "load",
    "one_line",
    "own",
    "path_of",
    "reading",
    "run_of",
]

_PREFIX = f"{__name__}.file_"
_loaded: dict[str, str] = {}
"""Name of a neighbour module -> the folder that it was imported from."""


def is_own(name: str) -> bool:
    """Whether a name is written as a Python file, with or without a name in it."""
    return name.endswith(".py") or ".py:" in name


def path_of(name: str) -> Path:
    """Return the file that `FILE.py:NAME` names, or the copy of it that a run keeps."""
    path = Path(name.rpartition(":")[0] if ".py:" in name else name).expanduser()
    return found_copy(path) or path


def own(what: str, name: str) -> Any:
    """Return the thing that `FILE.py:NAME` names; every way this can fail is one line."""
    path, attribute = path_of(name), name.rpartition(":")[2] if ".py:" in name else ""
    module = load(what, path)
    public = [
        key
        for key, value in vars(module).items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
        and key[0] != "_"
    ]
    known = f"names there: {', '.join(public) or 'none'}"
    if not attribute:
        raise UsageError(f"{what} {name!r} does not say which; write {path}:NAME ({known})")
    thing = getattr(module, attribute, None)
    if thing is None or isinstance(thing, ModuleType):
        raise UsageError(
            f"{what} file {path} has no {attribute!r}{nearest(attribute, public)} ({known})"
        )
    return thing


def file_of(thing: Any) -> Path | None:
    """Return the file that a class or an object's class was read from, if it is a user's own."""
    module = (thing if isinstance(thing, type) else type(thing)).__module__
    if not module.startswith(_PREFIX):
        return None
    return Path(bytes.fromhex(module.removeprefix(_PREFIX)).decode())


def load(what: str, path: Path) -> ModuleType:
    """Run a file as a module, or return the module if it was run before and has not changed."""
    if not path.is_file():
        raise UsageError(f"{what} file {str(path)!r} does not exist")
    path = path.resolve()
    name = _PREFIX + str(path).encode().hex()
    module = sys.modules.get(name)
    if module is not None and getattr(module, "__maar_stamp__", None) == _stamp(path):
        return module
    sys.modules.pop(name, None)
    try:
        return importlib.import_module(name)
    except MaarError:
        raise
    except Exception as error:
        raise UsageError(f"{what} file {path} fails: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """Return what went wrong and on which line of the user's code."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} (line {error.lineno})"
    text = (str(error).splitlines() or [""])[0]
    line = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({Path(line.filename).name}, line {line.lineno})"


class _Finder:
    """Find `maar.core.own.file_HEX`."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(_PREFIX):
            return None
        try:
            file = bytes.fromhex(name.removeprefix(_PREFIX)).decode()
        except ValueError:
            return None
        return importlib.util.spec_from_file_location(name, file, loader=_Loader(name, file))


class _Loader(importlib.machinery.SourceFileLoader):
    """Run a file so that it can import what lies beside it, as a script could."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source itself: no bytecode is written beside it, none is trusted."""
        return self.source_to_code(self.get_data(self.path), self.path)

    def exec_module(self, module: ModuleType) -> None:
        path = Path(self.path)
        folder = str(path.parent)
        for near in neighbours(path):
            top = near.relative_to(path.parent).parts[0].removesuffix(".py")
            if _loaded.get(top, folder) != folder:  # another file's neighbour of the same name
                for key in [key for key in sys.modules if key.partition(".")[0] == top]:
                    del sys.modules[key]
            _loaded[top] = folder
        sys.path.insert(0, folder)
        try:
            module.__dict__["__maar_stamp__"] = _stamp(path)
            super().exec_module(module)
        finally:
            sys.path.remove(folder)
            if folder not in sys.path:
                sys.path.append(folder)  # last: for imports inside functions


def _stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    stats = [(str(file), file.stat()) for file in (path, *neighbours(path))]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


if not any(finder is _Finder for finder in sys.meta_path):
    sys.meta_path.append(_Finder)  # pyright: ignore[reportArgumentType]
