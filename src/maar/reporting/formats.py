"""Tables as Markdown, LaTeX and CSV; the data of figures as CSV."""

from __future__ import annotations

import csv
import io

from maar.reporting.model import Figure, Table

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # In front of a cell these would be an option of the \\ or \midrule of the line before.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "±": r"$\pm$",
    "−": "$-$",
}


def markdown(table: Table) -> str:
    """Return a pipe table, with its caption before and its notes after it."""
    before = [f"**{md(table.title)}**", ""]
    before += [md(table.caption), ""] if table.caption else []
    after = ["", *(f"- {md(note)}" for note in table.notes)] if table.notes else []
    return "\n".join([*before, pipes(table), *after, ""])


def pipes(table: Table) -> str:
    """Return the rows between pipes, and nothing else."""
    head = [md(column.name) for column in table.columns]
    rule = ["---:" if column.numeric else "---" for column in table.columns]
    body = [[md(cell.text) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))


def md(text: str) -> str:
    """Nothing in a user's name makes a column, a tag or a link."""
    text = " ".join(text.split()).replace("\\", "\\\\")
    for sign in "|`*_[]~$":
        text = text.replace(sign, f"\\{sign}")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("://", "&#58;//")  # (an address becomes a link by itself)


def latex(table: Table) -> str:
    """A `tabular` with the rules of the package booktabs, in a `table` with caption and label."""
    columns = "".join("r" if column.numeric else "l" for column in table.columns)
    head = " & ".join(tex(column.name) for column in table.columns)
    body = [f"  {' & '.join(tex(cell.text) for cell in row)} \\\\" for row in table.rows]
    notes = [f"\\par\\footnotesize {tex(note)}" for note in table.notes]
    return "\n".join(
        [
            "% \\usepackage{booktabs}",
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{tex(' '.join(filter(None, (_ended(table.title), table.caption))))}}}",
            f"\\label{{tab:{table.id}}}",
            f"\\begin{{tabular}}{{{columns}}}",
            "  \\toprule",
            f"  {head} \\\\",
            "  \\midrule",
            *body,
            "  \\bottomrule",
            "\\end{tabular}",
            *notes,
            "\\end{table}",
            "",
        ]
    )


def _ended(title: str) -> str:
    return title if title.endswith(".") else f"{title}."


def tex(text: str) -> str:
    """Text for LaTeX."""
    return "".join(_LATEX.get(sign, sign) for sign in " ".join(text.split()))


def table_csv(table: Table) -> str:
    """Unrounded values; what a number rests on stands in a column beside it."""
    proved = [any(row[k].evidence for row in table.rows) for k in range(len(table.columns))]
    head = []
    for column, has_evidence in zip(table.columns, proved, strict=True):
        head += [column.name, f"{column.name}: evidence"] if has_evidence else [column.name]
    lines = [head]
    for row in table.rows:
        line = []
        for cell, has_evidence in zip(row, proved, strict=True):
            line.append(cell.text if cell.value is None else cell.value)
            if has_evidence:
                line.append(str(cell.evidence or ""))
        lines.append(line)
    return _csv(lines)


def figure_csv(figure: Figure) -> str:
    """One line for each point."""
    lines: list[list[object]] = [["series", figure.x.label, figure.y.label, "low", "high", "note"]]
    for series in figure.series:
        for k, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            low, high, text = (
                part[k] if part else None for part in (series.low, series.high, series.texts)
            )
            lines.append([series.name, x, y, low, high, text])
    lines += [[f"band: {band.label}", band.start, None, None, None, None] for band in figure.bands]
    return _csv(lines)


def _csv(lines: list[list[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([list(map(_field, line)) for line in lines])
    return text.getvalue()


def _field(value: object) -> object:
    """A name that begins like a formula is kept from being one where the file is opened."""
    is_formula = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    if isinstance(value, str) and is_formula and not _is_number(value):
        return f"'{value}"
    return "" if value is None else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
