"""Figures on paper: SVG and PDF by matplotlib, from the same data as the page's."""

from __future__ import annotations

import io
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from maar.reporting.colours import PALETTE, slots
from maar.reporting.model import Figure, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 7.0
"""Inches."""
LONGEST = 48
"""Letters of a name; the middle of a longer one is left out."""
IN_LEGEND = 20
"""More series are not named: nobody could tell their colours apart."""
STYLE: Any = {
    "svg.hashsalt": "maar",  # the same data give the same file
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # fonts that a reader can select and search
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    # A name is a name: no formula begins at its dollar sign.
    "text.parse_math": False,
}


def draw(figure: Figure) -> dict[str, bytes]:
    """The figure as {"svg": ..., "pdf": ...}."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    figure = _shortened(figure)
    with rc_context(STYLE), warnings.catch_warnings():
        # (letters that the font of the PDF has not; an SVG takes those of whoever looks at it)
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        canvas = Canvas(figsize=(WIDTH, _height(figure)), layout="constrained")
        axes = canvas.add_subplot()
        {"lines": _lines, "bars": _bars, "stacked": _stacked}[figure.kind](axes, figure)
        # Room for the names of the stages.
        axes.set_title(figure.title, loc="left", wrap=True, pad=18 if figure.bands else 6)
        if 1 < len(figure.series) <= IN_LEGEND:
            longest = max(len(_label(series)) for series in figure.series)
            columns = max(1, min(4, 100 // (longest + 8)))
            canvas.legend(loc="outside lower left", ncols=columns, frameon=False, fontsize=8)
        found = {}
        for kind, metadata in (("svg", {"Date": None}), ("pdf", {"CreationDate": None})):
            buffer = io.BytesIO()
            canvas.savefig(buffer, format=kind, metadata=metadata)
            canvas.set_layout_engine("none")  # found once, and dear
            found[kind] = buffer.getvalue()
    return found


def _height(figure: Figure) -> float:
    if figure.kind != "stacked":
        return 4.0
    return 1.6 + 0.3 * len(figure.series[0].x if figure.series else ())


def _colours(figure: Figure) -> list[str]:
    return [PALETTE[slot][0] for slot in slots(figure.series)]


def _label(series: Series) -> str:
    # matplotlib leaves out of the legend what begins with an underscore.
    return f" {series.name}" if series.name.startswith("_") else series.name


def _shortened(figure: Figure) -> Figure:
    """With names that leave room for the figure, where they still tell things apart."""
    half = LONGEST // 2 - 1

    def short(name: Any) -> Any:
        is_long = isinstance(name, str) and len(name) > LONGEST
        return f"{name[:half]} … {name[-half:]}" if is_long else name

    names = {series.name for series in figure.series}
    names |= {x for series in figure.series for x in series.x if isinstance(x, str)}
    if len({short(name) for name in names}) < len(names):
        return figure
    return replace(
        figure,
        series=tuple(
            replace(series, name=short(series.name), x=tuple(map(short, series.x)))
            for series in figure.series
        ),
    )


def _lines(axes: Axes, figure: Figure) -> None:
    categories = list(dict.fromkeys(x for series in figure.series for x in series.x))
    is_category = figure.x.kind == "category"
    for series, colour in zip(figure.series, _colours(figure), strict=True):
        x = [categories.index(v) if is_category else float(v) for v in series.x]
        y = [float("nan") if v is None else v for v in series.y]
        style = "--" if series.is_dashed else "-"
        points = "o" if len(x) <= 30 else ""
        axes.plot(x, y, style + points, color=colour, label=_label(series), lw=1.4, ms=3)
        if series.low:
            _error_bars(axes, x, series, colour)
    if is_category:
        axes.set_xticks(range(len(categories)), list(map(str, categories)))
    for number, band in enumerate(figure.bands):
        axes.axvspan(band.start, band.end, color="0.5", alpha=0.05 + 0.09 * (number % 2), lw=0)
        axes.annotate(
            band.label,
            ((band.start + band.end) / 2, 1),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            fontsize=8,
            color="0.35",
        )
    if figure.bands:
        axes.set_xlim(figure.bands[0].start, figure.bands[-1].end)
    if figure.range:
        axes.set_ylim(*figure.range)
    _axes(axes, figure)


def _bars(axes: Axes, figure: Figure) -> None:
    categories = list(dict.fromkeys(x for series in figure.series for x in series.x))
    width = 0.8 / max(1, len(figure.series))
    for number, (series, colour) in enumerate(zip(figure.series, _colours(figure), strict=True)):
        shift = (number - (len(figure.series) - 1) / 2) * width
        x = [categories.index(v) + shift for v in series.x]
        y = [float("nan") if v is None else v for v in series.y]
        alpha = 0.4 if series.is_dashed else 1.0
        axes.bar(x, y, width * 0.92, color=colour, alpha=alpha, label=_label(series))
        if series.low:
            _error_bars(axes, x, series, "0.2")
    axes.set_xticks(range(len(categories)), list(map(str, categories)))
    _axes(axes, figure)


def _error_bars(axes: Axes, x: list[float], series: Series, colour: str) -> None:
    ends = [
        (at, y, low, high)
        for at, y, low, high in zip(x, series.y, series.low, series.high, strict=True)
        if y is not None and low is not None and high is not None
    ]
    below = [max(0.0, y - low) for _, y, low, _ in ends]
    above = [max(0.0, high - y) for _, y, _, high in ends]
    points = [at for at, *_ in ends], [y for _, y, *_ in ends]
    axes.errorbar(*points, yerr=[below, above], fmt="none", ecolor=colour, capsize=2, lw=1)


def _stacked(axes: Axes, figure: Figure) -> None:
    categories = [str(x) for x in figure.series[0].x] if figure.series else []
    left = [0.0] * len(categories)
    for series, colour in zip(figure.series, _colours(figure), strict=True):
        width = [y or 0.0 for y in series.y]
        axes.barh(range(len(categories)), width, 0.7, left=left, color=colour, label=_label(series))
        left = [a + b for a, b in zip(left, width, strict=True)]
    axes.set_yticks(range(len(categories)), categories)
    axes.invert_yaxis()
    axes.set_xlabel(_unit(figure))
    if figure.y.is_share:
        axes.xaxis.set_major_formatter(_percent)


def _axes(axes: Axes, figure: Figure) -> None:
    axes.set_xlabel(figure.x.label)
    axes.set_ylabel(_unit(figure))
    axes.grid(axis="y", color="0.88", lw=0.6)
    axes.set_axisbelow(True)
    if figure.y.is_share:
        axes.yaxis.set_major_formatter(_percent)


def _unit(figure: Figure) -> str:
    return f"{figure.y.label} (%)" if figure.y.is_share else figure.y.label


def _percent(share: float, _: float) -> str:
    return f"{100 * share:g}"
