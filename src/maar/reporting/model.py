"""A report as data: what the page, the tables and the figures are all made from.

    Report
      Notice        what a reader must know first: a reduced profile, a damaged file
      Section       a heading with its blocks, in the order in which they are shown
        Table       columns and rows of cells    -> page, Markdown, LaTeX, CSV
        Figure      series over axes, with bands -> plotly, SVG, PDF, CSV
        Gallery     pictures with facts          -> page

Collected once, rendered many times. Every string here is plain text: names come from users, and
whoever renders escapes them. Numbers carry their `Evidence`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Value = str | float | int | None
LEAST_SPAN = 0.05
"""Least length of an axis of shares."""


@dataclass(frozen=True)
class Evidence:
    """What a number rests on, so that it can be audited; "" and None where it is not known."""

    source: str = ""
    """The folder or file that it was read from."""
    images: int | None = None
    of: int | None = None
    """How many the split has."""
    split: str = ""
    eps: str = ""
    preset: str = ""
    verifiers: tuple[str, ...] = ()
    seconds: float | None = None
    profile: str = ""
    seeds: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    """The seeds whose runs are not here any more: what they said was kept."""
    weights: str = ""
    """The first digits of the hash of the weights."""
    hardware: str = ""
    command: str = ""

    def __str__(self) -> str:
        return "; ".join(f"{name}: {text}" for name, text in self.facts())

    def facts(self) -> list[tuple[str, str]]:
        """What is known, as (name, text)."""
        if self.images is None:
            images = ""
        elif self.of is None or self.of == self.images:
            images = f"{self.images:,} {self.split}".rstrip()
        else:
            images = f"{self.images:,} of {self.of:,} {self.split}".rstrip()
        facts = {
            "images": images,
            "eps": self.eps,
            "preset": self.preset,
            "verifiers": ", ".join(self.verifiers),
            "seconds": "" if self.seconds is None else f"{self.seconds:,.1f}",
            "profile": self.profile,
            "seeds": ", ".join(map(str, self.seeds)),
            "measured before": self._before(),
            "weights": self.weights,
            "hardware": self.hardware,
            "source": self.source,
            "command": self.command,
        }
        return [(name, text) for name, text in facts.items() if text]

    def _before(self) -> str:
        if not self.before:
            return ""
        which = ", ".join(map(str, self.before))
        return f"seeds {which}, by runs that are not here any more; what they said was kept"


def duration(seconds: float) -> str:
    """A time, as people read it."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {whole % 60:02d} s"


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str = ""
    """As it is shown."""
    value: Value = None
    """To sort by, and for CSV: a number unrounded. None where there is nothing, sorted last."""
    evidence: Evidence | None = None
    tone: Literal["", "good", "bad", "muted", "strong"] = ""
    note: str = ""
    """A caveat about this entry."""
    chips: tuple[str, ...] = ()
    """The parts of the text, where it is a list."""
    mark: tuple[float, float] | None = None
    """Published and measured, as shares: to be drawn beside the text."""


@dataclass(frozen=True)
class Column:
    """The head of a column."""

    name: str
    numeric: bool = False
    """Right aligned, and sorted by number."""
    help: str = ""
    """What it means, and its unit."""
    filterable: bool = False
    """Few different texts, worth a choice on the page."""
    rank: int = 0
    """A narrow terminal leaves columns out, the highest rank first; none of rank 0."""


@dataclass(frozen=True)
class Table:
    """Rows of as many cells as there are columns; the first one names the row."""

    id: str
    """Name of its files and its anchor: a-z, 0-9 and hyphens."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    notes: tuple[str, ...] = ()
    """Shown below: sources and caveats."""
    is_long: bool = False
    """Made to be sorted and filtered, rather than read from top to bottom."""
    group_by: int | None = None
    """The column whose equal texts on rows in succession make a group."""

    @property
    def files(self) -> dict[str, str]:
        """Format -> path beside the page."""
        endings = {"Markdown": "md", "LaTeX": "tex", "CSV": "csv"}
        return {name: f"tables/{self.id}.{end}" for name, end in endings.items()}


@dataclass(frozen=True)
class Axis:
    """An axis of a figure."""

    label: str
    kind: Literal["number", "category"] = "number"
    is_share: bool = False
    """Values lie in [0, 1] and are shown in percent."""


@dataclass(frozen=True)
class Series:
    """A line, or the bars of one colour."""

    name: str
    x: tuple[float | str, ...]
    y: tuple[float | None, ...]
    """None leaves a gap."""
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    """Ends of the error bars; empty if there are none."""
    texts: tuple[str, ...] = ()
    """What is said about each point on hovering, besides its numbers; empty if nothing."""
    group: str = ""
    """Series of one group share their colour: the runs of one method, published and measured."""
    is_dashed: bool = False
    """A published number, an upper end: not what was measured here."""


@dataclass(frozen=True)
class Band:
    """A part of the x axis with a name: a training stage."""

    start: float
    end: float
    label: str


@dataclass(frozen=True)
class Figure:
    """A picture as data.

    lines    one line with points for each series
    bars     bars of the series side by side at each x
    stacked  horizontal bars: for each x (a category) the y of the series one after another
    """

    id: str
    """Name of its files and its anchor: a-z, 0-9 and hyphens."""
    title: str
    kind: Literal["lines", "bars", "stacked"]
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    bands: tuple[Band, ...] = ()
    caption: str = ""
    notes: tuple[str, ...] = ()

    @property
    def range(self) -> tuple[float, float] | None:
        """Ends of the y axis of lines of shares; None where whoever draws may choose.

        A few images more or less must not look like a trend: it spans five points or more.
        """
        if self.kind != "lines" or not self.y.is_share:
            return None
        values = [
            y
            for one in self.series
            for part in (one.y, one.low, one.high)
            for y in part
            if y is not None
        ]
        if not values:
            return None
        low, high = min(values), max(values)
        wider = max(LEAST_SPAN - (high - low), 0.08 * (high - low)) / 2
        low, high = low - wider, high + wider
        if high > 1:
            low, high = min(low, max(1 - LEAST_SPAN, low - (high - 1))), 1.0 + 0.01 * (high - low)
        if low < 0:
            low, high = -0.01 * (high - low), max(high, LEAST_SPAN)
        return low, high

    @property
    def files(self) -> dict[str, str]:
        """Format -> path beside the page."""
        endings = {"SVG": "svg", "PDF": "pdf", "CSV": "csv"}
        return {name: f"figures/{self.id}.{end}" for name, end in endings.items()}


@dataclass(frozen=True)
class Picture:
    """An image, small, to be shown enlarged without smoothing."""

    caption: str
    uri: str
    """data:image/png;base64,..."""
    width: int
    height: int


@dataclass(frozen=True)
class GalleryItem:
    """One image of the data set, with what is to be seen about it."""

    run: str
    index: int
    label: str
    """The true class."""
    pictures: tuple[Picture, ...]
    facts: tuple[tuple[str, str], ...]
    """(name, text), such as ("answer", "9"), ("margin", "-0.03"), ("radius", "0.101 to 0.104")."""
    evidence: Evidence | None = None


@dataclass(frozen=True)
class Gallery:
    """Images of one kind."""

    id: str
    title: str
    items: tuple[GalleryItem, ...]
    caption: str = ""
    notes: tuple[str, ...] = ()


Block = Table | Figure | Gallery


@dataclass(frozen=True)
class Section:
    """A heading of the page, and what stands below it."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    caption: str = ""
    lead: tuple[str, ...] = ()
    """Paragraphs."""
    points: tuple[str, ...] = ()
    """A list of sentences."""


@dataclass(frozen=True)
class Notice:
    """Shown above everything else."""

    level: Literal["info", "warning", "error"]
    text: str


@dataclass(frozen=True)
class Report:
    """Everything that the page shows."""

    title: str
    made: str
    """When, as 2020-06-04 12:00 UTC."""
    version: str
    """Of maar."""
    command: str
    """That makes this report again."""
    sections: tuple[Section, ...]
    notices: tuple[Notice, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """What is in it at a glance, as (name, text): runs, certifications, data sets."""

    def tables(self) -> list[Table]:
        """Every table, in order."""
        return [b for section in self.sections for b in section.blocks if isinstance(b, Table)]

    def figures(self) -> list[Figure]:
        """Every figure, in order."""
        return [b for section in self.sections for b in section.blocks if isinstance(b, Figure)]

    def galleries(self) -> list[Gallery]:
        """Every gallery, in order."""
        return [b for section in self.sections for b in section.blocks if isinstance(b, Gallery)]
