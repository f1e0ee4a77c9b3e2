"""Draw docs/assets/idea.svg from a real run: `python scripts/draw_idea.py runs/demo`.

A digit, the ball around it, the network, and for each other class the range that CROWN proves for
the margin z_y - z_k on the whole ball.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from maar.core.eps import Eps
from maar.core.files import write_text
from maar.data import load
from maar.domains.bound import margins
from maar.domains.crown import Crown
from maar.regions import Ball
from maar.training.run import load_network

EPS = Eps("0.1")
IMAGE = 0  # of the test images
INK, SOFT, BLUE, GREEN = "#1f2937", "#6b7280", "#4f46e5", "#15803d"
TARGET = Path(__file__).parents[1] / "docs" / "assets" / "idea.svg"


def text(x: float, y: float, words: str, size: int = 13, fill: str = INK, **style: str) -> str:
    """One line of text, centred on x unless `anchor` says otherwise."""
    anchor, weight = style.get("anchor", "middle"), style.get("weight", "normal")
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}" '
        f'text-anchor="{anchor}" font-weight="{weight}">{words}</text>'
    )


def pixels(image: Tensor, x: float, y: float, side: float, hidden: bool = False) -> str:
    """A grey image as squares, ink on paper; `hidden`: only what the one in front leaves to see."""
    step = side / image.shape[-1]
    squares = [
        f'<rect x="{x + c * step:g}" y="{y + r * step:g}" width="{step + 0.1:g}" '
        f'height="{step + 0.1:g}" fill="{INK}" fill-opacity="{value:.2f}"/>'
        for r, row in enumerate(image.tolist())
        for c, value in enumerate(row)
        if value > 0.02 and not (hidden and r > 1 and c < 26)
    ]
    frame = f'<rect x="{x}" y="{y}" width="{side}" height="{side}" fill="white" stroke="{SOFT}"/>'
    return frame + "".join(squares)


def arrow(x: float, y: float, length: float) -> str:
    """A horizontal arrow."""
    end = x + length
    return (
        f'<path d="M{x} {y}H{end - 7}" stroke="{SOFT}" stroke-width="2"/>'
        f'<path d="M{end} {y}l-9 -5v10z" fill="{SOFT}"/>'
    )


def network(x: float, y: float, height: float, layers: int) -> str:
    """A network as a row of shrinking plates."""
    plates = []
    for k in range(layers):
        tall = height * (1 - 0.5 * k / (layers - 1))
        plates.append(
            f'<rect x="{x + 26 * k}" y="{y + (height - tall) / 2:g}" width="15" '
            f'height="{tall:g}" rx="4" fill="{BLUE}" fill-opacity="{0.35 + 0.16 * k:.2f}"/>'
        )
    return "".join(plates)


def chart(x: float, y: float, width: float, lb: list, ub: list, at: list, names: list) -> str:
    """For each other class the proven range of the margin, and its value at the image itself."""
    scale = width / max(*ub, 0.0)
    parts = [
        f'<path d="M{x} {y - 8}v{len(lb) * 20 + 10}" stroke="{INK}" stroke-width="1.5"/>',
        text(x, y - 14, "0", 12, SOFT),
    ]
    for k, (low, high, here, name) in enumerate(zip(lb, ub, at, names, strict=True)):
        row = y + 8 + 20 * k
        parts += [
            text(x - 12, row + 4, name, 12, SOFT, anchor="end"),
            f'<rect x="{x + low * scale:.1f}" y="{row - 5}" width="{(high - low) * scale:.1f}" '
            f'height="10" rx="3" fill="{GREEN}" fill-opacity="0.35"/>',
            f'<path d="M{x + low * scale:.1f} {row - 7}v14" stroke="{GREEN}" stroke-width="2.5"/>',
            f'<circle cx="{x + here * scale:.1f}" cy="{row}" r="2.6" fill="{INK}"/>',
        ]
    return "".join(parts)


def main(run: str) -> None:
    """Load, bound, draw."""
    net, _ = load_network(run)
    data = load("mnist_mini")
    x, y = data.images("test", [IMAGE]), data.labels("test", [IMAGE])
    ball = Ball(x, float(EPS))
    C = margins(y, data.info.n_classes)
    with torch.no_grad():
        found = Crown(rounding=True)(net, ball, C)
        here = (C @ net(x).unsqueeze(-1)).squeeze(-1)
    label = int(y)
    if not bool((found.lb > 0).all()):
        sys.exit(f"test image {IMAGE} is not verified at eps {EPS}: choose another")
    names = [f"z{label} − z{k}" for k in range(data.info.n_classes) if k != label]

    signs = torch.randint(0, 2, x.shape, generator=torch.Generator().manual_seed(0)).bool()
    body = [
        text(120, 30, f"all images within ±{EPS}", 14, INK, weight="bold"),
        pixels(torch.where(signs, ball.lb, ball.ub)[0, 0], 60, 58, 140, hidden=True),
        pixels(torch.where(signs, ball.ub, ball.lb)[0, 0], 50, 68, 140, hidden=True),
        pixels(x[0, 0], 40, 78, 140),
        text(120, 246, "a digit and the ball around it", 12, SOFT),
        arrow(216, 138, 46),
        text(340, 30, "one network", 14, INK, weight="bold"),
        network(281, 68, 140, 5),
        text(340, 246, "bounded layer by layer", 12, SOFT),
        arrow(418, 138, 46),
        text(660, 30, "margins proved for all of them at once", 14, INK, weight="bold"),
        chart(535, 62, 290, found.lb[0].tolist(), found.ub[0].tolist(), here[0].tolist(), names),
        text(660, 268, "dot: the digit itself; bar: where CROWN proves", 12, SOFT),
        text(660, 284, f"the margin to lie. All right of 0: it stays a {label}.", 12, SOFT),
    ]
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 300" role="img" '
        'font-family="system-ui, sans-serif">'
        '<rect width="860" height="300" rx="10" fill="white"/>' + "\n".join(body) + "</svg>\n"
    )
    write_text(TARGET, svg)
    print(f"wrote {TARGET} ({len(svg) // 1000} kB)")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/draw_idea.py RUN")
    main(sys.argv[1])
