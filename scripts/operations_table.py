"""Write the table of operations into docs/networks.md: python scripts/operations_table.py"""

from __future__ import annotations

from pathlib import Path

from torch import nn

from maar.domains import backward, hybrid_zonotope, interval, zonotope
from maar.domains.graph import FAST
from maar.domains.linear_map import LINEAR, Mapped
from maar.domains.rewriting import REWRITES
from maar.networks.maps import Add, Combine
from maar.networks.operations import OPERATIONS

PAGE = Path(__file__).parents[1] / "docs" / "networks.md"
BEGIN, END = "<!-- operations -->\n", "<!-- end of operations -->"
DOMAINS = {
    "interval": interval.RULES,
    "CROWN, alpha-CROWN": backward.RULES,
    "zonotope, branch and bound, MILP": zonotope.RULES,
    "hybrid zonotope": hybrid_zonotope.RADII,
}


def table() -> str:
    """The table as Markdown."""
    head = ["layer", "ONNX", *DOMAINS]
    rows = [head, ["---"] * len(head)]
    for kind, operation in OPERATIONS.items():
        if operation.kind in ("structure", "last"):
            continue
        yes = [_has(rules, kind) for rules in DOMAINS.values()]
        cells = ["yes" if each else "no" for each in yes]
        rows.append([f"`{kind.__name__}`", ", ".join(operation.onnx) or "-", *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _has(rules: dict[type[nn.Module], object], kind: type[nn.Module]) -> bool:
    """Whether a domain has a rule for every node that a layer becomes."""
    if kind is nn.ReLU:
        return True  # (the one thing that every domain does by itself)
    if kind in REWRITES:
        made = {Add, Combine, Mapped}
    else:
        made = {Mapped if kind in LINEAR and kind not in FAST else kind}
    return made <= set(rules)


def page(text: str) -> str:
    """The page with the table as it is now."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
