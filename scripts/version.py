"""The version that a build gets: from the newest tag, or from what the source says.

v0.2.0 at this commit       0.2.0
five commits behind it      0.2.1.dev5+g1a2b3c4
a source distribution       what its PKG-INFO says
no tag, no git              `__version__` in src/maar/__init__.py
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def version(root: Path = ROOT) -> str:
    """Return the version of the source below `root`."""
    return _from_sdist(root) or _from_git(root) or _from_source(root)


def _from_sdist(root: Path) -> str:
    path = root / "PKG-INFO"
    found = re.search(r"^Version: (.+)$", path.read_text(), re.M) if path.is_file() else None
    return found[1].strip() if found else ""


def _from_git(root: Path) -> str:
    # (an unpacked archive within somebody else's repository is not described by that)
    top = _git(root, "rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != root.resolve():
        return ""
    described = _git(root, "describe", "--tags", "--long", "--match", "v[0-9]*")
    found = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)-(\d+)-(g[0-9a-f]+)", described)
    if not found:
        return ""
    major, minor, patch, since = map(int, found.groups()[:4])
    if not since:
        return f"{major}.{minor}.{patch}"
    return f"{major}.{minor}.{patch + 1}.dev{since}+{found[5]}"


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _from_source(root: Path) -> str:
    text = (root / "src" / "maar" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "(.+)"', text)
    assert found, "src/maar/__init__.py has no __version__"
    return found[1]


if __name__ == "__main__":
    print(version())
