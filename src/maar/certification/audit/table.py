"""The table of an audit."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from maar.certification import VERIFIERS
from maar.certification.audit.proofs import ALPHA_CROWN, ATTACKED, COMPLETE, CROWN, REPEATED, TRUST
from maar.certification.audit.run import REPLAYED, Report
from maar.records.verdicts import VERDICTS
from maar.terminal.tables import table as make

# How a line was checked, and the head of its column.
COLUMNS = {
    REPLAYED: "replayed",
    CROWN: "CROWN",
    ALPHA_CROWN: "alpha",
    COMPLETE: "complete",
    REPEATED: "again",
    ATTACKED: "attacked",
    TRUST: "trust",
}
# What a column says, below the table.
MEANING = {
    REPLAYED: "replayed: another class is ahead there, in float64 and by onnxruntime",
    CROWN: "CROWN, alpha: proved again by the audit's own CROWN, or alpha-CROWN, in float64",
    COMPLETE: "complete: proved again by another complete verifier than the one that proved it",
    REPEATED: "again: proved again by the bounds that the line names, which are maar's own",
    ATTACKED: "attacked: unknown, every class is open, so nothing is claimed",
    TRUST: "trust: withstood the audit's attack and was not proved again",
}


def make_table(report: Report) -> Table:
    """One row for each kind of claim: how many agree, by which check, and how many disagree."""
    used = {level for _, _, level in report.levels}
    columns = {level: head for level, head in COLUMNS.items() if level in used}
    gap = 2 if len(columns) < 4 else 1  # the names of verifiers need the room
    numbers = ("images", *columns.values(), "disagree")
    table = make("verdict", "by", *numbers, right=numbers, gap=gap)
    kinds = {(verdict, by) for verdict, by, _ in report.levels} | set(report.refuted)
    for verdict, by in sorted(kinds, key=_order):
        agreeing = {
            level: count
            for (*kind, level), count in report.levels.items()
            if tuple(kind) == (verdict, by)
        }
        refuted = report.refuted[verdict, by]
        cells = [_number(agreeing.get(level, 0)) for level in columns]
        table.add_row(
            verdict,
            by,
            f"{sum(agreeing.values()) + refuted:,}",
            *cells,
            Text(_number(refuted), "red"),
        )
    return table


def explanations(report: Report) -> list[str]:
    """Explain the columns that the table has."""
    used = {CROWN if level == ALPHA_CROWN else level for _, _, level in report.levels}
    return [text for level, text in MEANING.items() if level in used]


def on_trust(report: Report) -> str:
    """Return how many verdicts, and how many recorded bounds, rest on trust."""
    text = f"{report.on_trust:,} of {report.verified:,} verified verdicts rest on trust"
    if report.bounds_on_trust:
        text += f", {report.bounds_on_trust:,} of their bounds"
    if report.open_on_trust:
        text += f", proved classes of {report.open_on_trust:,} unknown images"
    return text


def _order(kind: tuple[str, str]) -> tuple[int, int, str]:
    """By verdict, then as the verifiers are listed."""
    verdict, by = kind
    names = list(VERIFIERS)
    return VERDICTS.index(verdict), names.index(by) if by in names else len(names), by


def headline(report: Report) -> Text:
    """Return the findings on the folder as a whole: `weights ok, data ok, ...`."""
    text = Text()
    for name, agrees in report.checked.items():
        word = ("ok", "green") if agrees else ("NO", "bold red")
        text.append(", " if text else "").append(f"{name} ").append(*word)
    return text


def _number(count: int) -> str:
    return f"{count:,}" if count else ""
