"""What there is to reproduce: a line for each experiment, or one of them in full."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from maar.experiments.plan import flag_words
from maar.experiments.tables import Experiment, Profile
from maar.terminal.tables import table


def listing(experiments: Sequence[Experiment], profiles: Sequence[Profile]) -> RenderableType:
    """A line for each experiment, and the profiles."""
    shown = table("experiment", "of the paper", "what", whole=("experiment", "of the paper"))
    for each in experiments:
        shown.add_row(Text(each.name, "cyan"), Text(each.of), Text(each.title))
    costs = table("--profile", "what is spent", whole=["--profile"])
    for profile in profiles:
        costs.add_row(Text(profile.name, "cyan"), Text(profile.about))
    return Group(shown, "", costs, "", Text("more on one: maar reproduce --list NAME", "dim"))


def details(experiment: Experiment) -> RenderableType:
    """One experiment: what it is about, its settings and its rows."""
    title = Text.assemble((experiment.name, "cyan"), f"  {experiment.title} ({experiment.of})")
    rows = table("system", "--methods", "flags", "seeds", whole=("system", "--methods", "seeds"))
    for row in experiment.rows:
        flags, seeds = " ".join(flag_words(row.flags)), ", ".join(map(str, row.seeds))
        rows.add_row(*map(Text, (row.label, row.method, flags, seeds)))
    settings = f"settings: {', '.join(experiment.settings)}"
    takes = f"what it takes: maar reproduce {experiment.name} --dry-run"
    return Group(title, Text(experiment.about), "", rows, "", settings, Text(takes, "dim"))
