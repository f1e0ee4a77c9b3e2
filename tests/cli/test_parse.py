"""A mistake in a flag is one line that names it, and the exit code is that of usage."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
import tyro

from maar.cli.parse import one_line, parse
from maar.core.errors import UsageError


@dataclass(frozen=True)
class Form:
    """A command."""

    name: tyro.conf.Positional[str]
    """What it is about."""
    count: int = 3
    """A number."""
    kind: Literal["ball", "box"] = "ball"
    """One of two."""


@dataclass(frozen=True)
class Other:
    """Another command."""


Both = (
    Annotated[Form, tyro.conf.subcommand("form")] | Annotated[Other, tyro.conf.subcommand("other")]
)


def test_what_is_right_comes_through():
    assert parse(Form, "maar form", ["x", "--kind", "box"]) == Form("x", kind="box")
    assert parse(Both, "maar both", ["other"]) == Other()


@pytest.mark.parametrize(
    ("form", "argv", "parts"),
    [
        (Form, ["x", "--cuont", "4"], ["--cuont", "did you mean --count?"]),
        (Form, ["x", "y"], ["y"]),
        (Form, [], ["issing"]),
        (Form, ["x", "--count", "many"], ["--count", "'many'"]),
        (Form, ["x", "--count"], ["--count"]),
        (Form, ["x", "--kind", "bal"], ["--kind", "bal", "ball", "box"]),
        (Both, ["fomr"], ["fomr; did you mean 'form'?", "(accepted: form, other; "]),
        (Both, [], ["form", "other"]),
    ],
)
def test_a_mistake_is_one_line(form, argv, parts, capsys):
    with pytest.raises(UsageError) as caught:
        parse(form, "maar form", argv)
    message = str(caught.value)
    for part in parts:
        assert part in message
    assert message.endswith("see maar form --help)")
    assert not set(message) & set("\n│╭╰─")
    assert capsys.readouterr() == ("", "")


def test_help_prints_and_leaves(capsys):
    with pytest.raises(SystemExit) as left:
        parse(Form, "maar form", ["--help"])
    assert left.value.code in (0, None)
    assert "usage: maar form" in capsys.readouterr().out


@pytest.mark.parametrize(
    "box",
    [
        "╭─ Error ──╮\n│ Bad value: 3. │\n│ ──── │\n│ more help │\n╰──────╯\n",
        "╭─ Error ──╮\n│ \x1b[1mBad value\x1b[0m: 3. │\n│ ──── │\n│ more help │\n╰──────╯\n",
        "  Error     \n -------\n  Bad value: 3.   \n  ------\n  more help \n     \n",
    ],
    ids=["box", "colour", "ascii"],
)
def test_every_way_to_draw_the_box_is_read(box):
    assert one_line(box, "maar x") == "bad value: 3 (see maar x --help)"
