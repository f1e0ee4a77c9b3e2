"""The table of runs, and in what their configurations differ."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Literal

from maar.records.reading import count, number, table, word
from maar.reporting.collect import Collected, Run
from maar.reporting.model import Cell, Column, Table
from maar.reporting.results import ACC, CR
from maar.reporting.systems import (
    best,
    eps_text,
    evidence_of,
    flat,
    percent,
    plain,
    seconds_cell,
    trained,
)

Tone = Literal["", "good", "bad", "muted", "strong"]
TONES: dict[str, Tone] = {"finished": "good", "damaged": "bad", "running": "strong"}
# What every row has a column for already, or what says nothing about the result.
SHOWN_ELSEWHERE = ("name", "data", "network", "eps", "seed", "method.name", "method.base.name")


def runs_table(found: Collected) -> Table | None:
    """One row for each run; None if there are networks without runs only."""
    runs = [run for run in found.runs if run.state]
    if not runs:
        return None
    differing = [key for key in differing_keys(runs) if key not in SHOWN_ELSEWHERE]
    # What the method does tells more than how long, and that more than on what machine.
    differing.sort(key=lambda key: (not key.startswith("method"), not key.startswith("train")))
    usual = {key: _usual(runs, key) for key in differing}
    columns = (
        Column("run"),
        Column("state", filterable=True),
        Column("method", filterable=True),
        Column("differs in", help="Settings that are not those of most runs"),
        Column("network", filterable=True),
        Column("data", filterable=True),
        Column("eps", numeric=True, filterable=True),
        Column("seed", numeric=True),
        Column("stage", numeric=True, help="The one that it is in, of how many"),
        Column("epoch", numeric=True, help="Of that stage"),
        Column("ACC", numeric=True, help=f"{ACC}; of a run that is not finished, on validation"),
        Column("VE", numeric=True, help="Verified error of the last epoch, in %"),
        Column("CR", numeric=True, help=CR),
        Column("training", numeric=True),
        Column("hash", help="The first digits of the hash of the configuration"),
    )
    rows = tuple(_row(run, usual) for run in runs)
    caption = "Numbers in %. Runs that are not finished are listed with what they have."
    return Table("runs", "Runs", columns, rows, caption, is_long=True)


def _usual(runs: list[Run], key: str) -> str | None:
    """The value that more than half of the runs with such a setting have; None if there is none."""
    settings = [flat(run.config) for run in runs]
    values = Counter(value_text(one[key]) for one in settings if key in one)
    value, number_ = values.most_common(1)[0]
    return value if 2 * number_ > values.total() else None


def _row(run: Run, usual: dict[str, str | None]) -> tuple[Cell, ...]:
    last = run.metrics[-1] if run.metrics else {}
    settings = flat(run.config)
    unusual = [key for key in usual if key in settings and value_text(settings[key]) != usual[key]]
    chips = tuple(f"{key} = {value_text(settings[key])}" for key in unusual)
    store = best(run, run.eps)
    certified = None if store is None else number(store.summary, "certified")
    cr = Cell()
    if store is not None and certified is not None:
        cr = percent([certified], [evidence_of(store, run)])
    return (
        plain(run.name),
        Cell(run.state, run.state, tone=TONES.get(run.state, "muted")),
        plain(run.method),
        Cell(", ".join(chips), ", ".join(chips) or None, chips=chips),
        plain(word(run.config, "network")),
        plain(run.data),
        Cell(eps_text(run.eps), run.eps),
        Cell("" if run.seed is None else str(run.seed), run.seed),
        _of(last, "stage", "stages"),
        _of(last, "epoch", "epochs"),
        _accuracy(run, last),
        _share(run, number(table(last, "train"), "verified_error"), "metrics.jsonl"),
        cr,
        seconds_cell(run.seconds),
        plain(run.hash[:8]),
    )


def _accuracy(run: Run, last: dict[str, Any]) -> Cell:
    test = number(table(run.result, "test"), "accuracy")
    if test is not None:
        return _share(run, test, "result.json")
    return _share(run, number(table(last, "valid"), "accuracy"), "metrics.jsonl")


def _share(run: Run, share: float | None, file: str) -> Cell:
    return Cell() if share is None else percent([share], [trained(run, file)])


def _of(last: dict[str, Any], key: str, whole: str) -> Cell:
    if not count(last, key):
        return Cell()
    return Cell(f"{last[key]} of {last.get(whole, '?')}", count(last, key))


def differing_keys(runs: list[Run]) -> list[str]:
    """Keys of the configurations in which not all runs agree, in the order of the first."""
    settings = [flat(run.config) for run in runs if run.config]
    keys = dict.fromkeys(key for one in settings for key in one)
    return [key for key in keys if len({value_text(one.get(key)) for one in settings}) > 1]


def config_table(found: Collected) -> Table | None:
    """A row for each setting in which runs differ, a column for each run; None if all agree."""
    runs = [run for run in found.runs if run.config]
    keys = [key for key in differing_keys(runs) if key != "name"]
    if not keys:
        return None
    settings = [flat(run.config) for run in runs]
    rows = tuple(
        (plain(key), *(_setting(one[key]) if key in one else Cell() for one in settings))
        for key in keys
    )
    columns = (Column("setting"), *(Column(run.name) for run in runs))
    caption = "Only what is not the same in all runs; blank where a method has no such setting."
    return Table("config-differences", "Differences of the configurations", columns, rows, caption)


def _setting(value: object) -> Cell:
    text = value_text(value)
    known = number({"": value}, "")
    return Cell(text, text if known is None else known)


def value_text(value: object) -> str:
    """A setting as a person would write it."""
    return value if isinstance(value, str) else json.dumps(value)
