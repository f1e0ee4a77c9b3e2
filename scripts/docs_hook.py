"""mkdocs hook: pages that are made when the documentation is built, so that none can fall behind.

- `index.md` is the README.
- `cli.md` has the help text of each command (`python scripts/docs_hook.py` prints it).
- `results.md` lists what `maar reproduce` has measured; `measurements/` has a page for each.
- `tutorials/` has the notebooks of `examples/` with their outputs.
- `certificate-argument.md` is the README of `src/maar_check`;
- `contributing.md` and `changelog.md` are the files at the top of the repository.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maar.cli.main import COMMANDS

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

INTRODUCTION = """\
# Command line

`maar` and `python -m maar` are the same program. This page is made from the program's own help
texts when the documentation is built.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | a well-formed request failed: data absent, file damaged, disk full |
| 2 | the request cannot be: an unknown name, a bad value |
| 130 | interrupted (Ctrl-C); what was finished is kept |
| 143 | terminated (SIGTERM); what was finished is kept |

Every error is one line on stderr that starts with `maar: error:`.
"""

# Fixed, so that the page does not depend on who builds it.
WIDTH = 92
ENVIRONMENT = {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}


def help_text(*command: str) -> str:
    """What `maar COMMAND --help` prints; a failing help fails the build of the documentation."""
    done = subprocess.run(
        [sys.executable, "-m", "maar", *command, "--help"],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    if done.returncode:
        raise RuntimeError(f"maar {' '.join(command)} --help failed: {done.stderr}")
    return "\n".join(textwrap.fill(line, WIDTH) for line in done.stdout.strip().splitlines())


def subcommands(text: str) -> list[str]:
    """The alternatives that the usage line offers as a word of its own: `{list,fetch,...}`."""
    usage = text.split("\n\n")[0]
    for before, names in re.findall(r"(\S+)\s+\{([a-z][a-z,-]*)\}", usage):
        flag = before.lstrip("[").startswith("-") and not before.endswith("]")
        if not flag:  # --flag {a,b} are values, not commands
            return names.split(",")
    return []


def command_line() -> str:
    """The whole page as Markdown."""
    parts = [INTRODUCTION, f"## maar\n\n```text\n{help_text()}\n```\n"]
    for command in COMMANDS:
        text = help_text(command)
        parts.append(f"## maar {command}\n\n```text\n{text}\n```\n")
        for sub in subcommands(text):
            parts.append(f"### maar {command} {sub}\n\n```text\n{help_text(command, sub)}\n```\n")
    return "\n".join(parts)


# Whose results are shown.
PROFILES = ("cpu", "small")
RESULTS = """\
# Results

Accuracy and certified robustness of the networks that were trained here by `maar reproduce`, beside
the published numbers. Each experiment has a page with its table, its sources and its command. The
JSON files in `results/PROFILE` have more: the command of every run, its seconds, the machine, and
which verifier settled how many images.

| experiment | data and radius | of the paper | rows | images | seeds |
|---|---|---|---:|---:|---:|
"""


def measured(root: Path) -> dict[str, dict[str, Any]]:
    """Return the results by name, those of the paper's tables first."""
    files = [each for p in PROFILES for each in (root / "results" / p).glob("*.json")]
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(files)}
    return dict(sorted(found.items(), key=lambda pair: not pair[0].startswith("table1")))


def settings(result: dict[str, Any]) -> str:
    """Name the data and the radius of a result's rows."""
    return "; ".join(dict.fromkeys(row["setting_title"] for row in result["rows"]))


def results(root: Path) -> str:
    """Return the list of all measurements."""
    lines = []
    for name, result in measured(root).items():
        images = {f"{row['images']:,}" for row in result["rows"] if row["images"]}
        seeds = {seed for row in result["rows"] for seed in row["seeds"]}
        cells = (settings(result), result["of"], str(len(result["rows"])), " / ".join(images))
        link = f"[{result['title']}](measurements/{name}.md)"
        lines.append(f"| {link} | {' | '.join(cells)} | {len(seeds)} |")
    return RESULTS + "\n".join(lines) + "\n"


def measurement(root: Path, name: str, result: dict[str, Any]) -> str:
    """Return the page of a result, under a heading that no other page has."""
    text = (root / "results" / result["profile"] / f"{name}.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("\n")
    return f"# {result['title']}: {settings(result)}\n{rest}\n[All results](../results.md)\n"


def home(root: Path) -> str:
    """Return the README as the home page of the site."""
    text = (root / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    text = re.sub(r"\]\(results/(?:cpu|small)[^)]*\)", "](results.md)", text)
    links = {"examples": "tutorials/certify_your_model.md", "CONTRIBUTING.md": "contributing.md"}
    for target, page in links.items():
        text = text.replace(f"]({target})", f"]({page})")
    return text.replace("[CITATION.cff](CITATION.cff)", "`CITATION.cff`")


def tutorial(path: Path) -> str:
    """Return a notebook as Markdown, with the outputs that it was saved with."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [_shown(output) for output in cell.get("outputs", [])]
    note = f"*This page is the notebook `examples/{path.name}` of the repository.*"
    return "\n\n".join([*parts, note])


def _shown(output: dict[str, Any]) -> str:
    """Return a cell's output as Markdown: a picture, or plain text."""
    data = output.get("data", {})
    if "image/png" in data:
        png = "".join(data["image/png"]).replace("\n", "")
        return f"![Output of the cell above](data:image/png;base64,{png})"
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs once the files of docs/ are known."""
    from mkdocs.structure.files import File

    root = Path(config.docs_dir).parent
    files.append(File.generated(config, "cli.md", content=command_line()))
    files.append(File.generated(config, "results.md", content=results(root)))
    for name, result in measured(root).items():
        content = measurement(root, name, result)
        files.append(File.generated(config, f"measurements/{name}.md", content=content))
    files.append(File.generated(config, "index.md", content=home(root)))
    for path in sorted((root / "examples").glob("*.ipynb")):
        page = f"tutorials/{path.stem}.md"
        files.append(File.generated(config, page, content=tutorial(path)))
    argument = (root / "src/maar_check/README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "certificate-argument.md", content=argument))
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        # links of a file at the top start with docs/, those of a page in docs/ do not
        text = (root / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name.lower(), content=text))
    return files


if __name__ == "__main__":
    print(command_line())
