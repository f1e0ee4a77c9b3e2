"""`maar config show CONFIG [flags]`: the whole effective configuration as TOML."""

from __future__ import annotations

from collections.abc import Sequence

from maar.core.errors import UsageError, nearest

DESCRIPTION = """Print the whole effective configuration as TOML, every default written out, with
its hash. Fed back (`maar train FILE.toml`) it is the same experiment and has the same hash."""

ACTIONS = ("show", "recipes")

USAGE = """usage: maar config {show,recipes} ...

  maar config show CONFIG [flags]  print every setting in effect, as TOML
  maar config recipes [WORD ...]   list the shipped configurations, or those
                                   with these words in their names"""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    action, rest = (argv[0], argv[1:]) if argv else ("", [])
    if action in ("", "-h", "--help"):
        print(USAGE)
        return 0 if action else 2
    if action == "recipes":
        return _recipes(rest)
    if action != "show":
        raise UsageError(
            f"unknown action {action!r}{nearest(action, ACTIONS)} (accepted: {', '.join(ACTIONS)})"
        )
    from maar.config import to_toml
    from maar.config.flags import parse_command

    config, _ = parse_command(rest, prog="maar config show", description=DESCRIPTION)
    print(to_toml(config), end="")
    return 0


def _recipes(argv: Sequence[str]) -> int:
    if argv and argv[0] in ("-h", "--help"):
        print(
            "usage: maar config recipes [WORD ...]\n\n"
            "List the shipped configurations, or those with these words in their names."
        )
        return 0
    from rich.console import Console

    from maar.config.load import find, recipes
    from maar.terminal.tables import table

    names = [name for name in recipes() if all(word.lower() in name for word in argv)]
    if not names:
        parts = {part for name in recipes() for part in name.split("-")}
        missing = [word for word in argv if not any(word.lower() in name for name in recipes())]
        hint = nearest(missing[0], parts) if missing else ""
        raise UsageError(f"no recipe has {' and '.join(map(repr, argv))} in its name{hint}")
    shown = table("recipe", "what it does", whole=["recipe"])
    for name in names:
        first = find(name).read_text().partition("\n")[0]
        shown.add_row(name, first.lstrip("# "))
    Console().print(shown)
    return 0
