"""Exact minima of small networks over a box of two pixels, in rational numbers.

The box is a polygon; every ReLU cuts it where its input is zero, and on each piece the network is
affine. So the least margin, over the box or where some ReLUs have given signs, is that of a corner.
"""

import itertools
from fractions import Fraction

import torch
from torch import nn

from maar.domains.bound import Corners, Problem, margins
from maar.domains.graph import compile_network
from maar.domains.reduced.network import reduce


def at(line, point):
    return line[0] * point[0] + line[1] * point[1] + line[2]


def cut(polygon, line, sign):
    """The part where sign * line >= 0."""
    corners = [(point, sign * at(line, point)) for point in polygon]
    kept = []
    for (p, u), (q, v) in itertools.pairwise([*corners, corners[0]]):
        if u >= 0:
            kept.append(p)
        if (u > 0 > v) or (u < 0 < v):
            t = u / (u - v)
            kept.append((p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])))
    return kept


def applied(layer, lines):
    """A Linear of lines, exactly."""
    weights = [[Fraction(w) for w in row] for row in layer.weight.tolist()]
    biases = [Fraction(b) for b in layer.bias.tolist()]
    found = []
    for row, b in zip(weights, biases, strict=True):
        line = [sum(w * line[i] for w, line in zip(row, lines, strict=True)) for i in range(3)]
        found.append((line[0], line[1], line[2] + b))
    return found


def pieces(net, lb, ub):
    """Polygons that cover the box, each with the inputs of all ReLUs and the margin as lines."""
    for polygon, pre, lines in pieces_with_outputs(net, lb, ub):
        yield polygon, pre, tuple(a - b for a, b in zip(lines[0], lines[1], strict=True))


def pieces_with_outputs(net, lb, ub):
    """The same with all outputs instead of the margin."""
    (l0, l1), (u0, u1) = ([Fraction(v) for v in side.tolist()] for side in (lb, ub))
    open_ = [[(l0, l1), (u0, l1), (u0, u1), (l0, u1)]]
    while open_:
        polygon = open_.pop()
        lines = [(Fraction(1), Fraction(0), Fraction(0)), (Fraction(0), Fraction(1), Fraction(0))]
        pre, split = [], None
        for layer in net:
            if isinstance(layer, nn.Linear):
                lines = applied(layer, lines)
                continue
            pre.append(lines)
            ends = [[at(line, point) for point in polygon] for line in lines]
            split = next((x for x, e in zip(lines, ends, strict=True) if min(e) < 0 < max(e)), None)
            if split:
                break
            zero = (Fraction(0),) * 3
            lines = [line if max(e) > 0 else zero for line, e in zip(lines, ends, strict=True)]
        if split:
            open_ += [cut(polygon, split, 1), cut(polygon, split, -1)]
        else:
            yield polygon, pre, lines


def network(seed, wild, widths=(5, 4)):
    """Two outputs; with `wild`, layers and neurons of very different scale, dead and equal ones."""
    chance = torch.Generator().manual_seed(seed)
    layers = []
    for before, after in itertools.pairwise((2, *widths, 2)):
        layer = nn.Linear(before, after)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(after, before, generator=chance))
            layer.bias.copy_(0.5 * torch.randn(after, generator=chance))
            if wild:
                scale = 10 ** (wild * (2 * torch.rand(after, generator=chance) - 1))
                layer.weight.mul_(scale[:, None])
                layer.bias.mul_(scale)
                layer.weight[0] = -layer.weight[1]
                layer.bias[0] = -layer.bias[1]
                layer.weight[-1].mul_(seed % 2)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def problem(net, lb, ub):
    graph = compile_network(net, (2,), torch.float64)
    C = margins(torch.tensor([0]), 2, torch.float64)
    return reduce(Problem(graph, Corners(lb[None], ub[None]), C))


def lowest_maximum(found, C, c):
    """min over the box of the maximum of the rows C y + c: at a corner, or where two rows cross."""
    values = []
    for polygon, _, lines in found:
        rows = [
            tuple(
                sum(Fraction(a) * line[i] for a, line in zip(row, lines, strict=True))
                for i in range(3)
            )
            for row in C.tolist()
        ]
        rows = [(x, y, z + b) for (x, y, z), b in zip(rows, c, strict=True)]
        cells = [polygon]
        for one, other in itertools.combinations(rows, 2):
            cross = tuple(a - b for a, b in zip(one, other, strict=True))
            cells = [part for cell in cells for s in (1, -1) if (part := cut(cell, cross, s))]
        values += [max(at(row, point) for row in rows) for cell in cells for point in cell]
    return min(values)


def least(found):
    return min(at(margin, point) for polygon, _, margin in found for point in polygon)


def moved_to(rows, truth, gap):
    """The row with its least value moved to about `gap`, and that value exactly."""
    moved = rows[torch.tensor([0])]
    before = Fraction(float(moved.c))
    moved.c = moved.c + gap - float(truth)
    return moved, truth + Fraction(float(moved.c)) - before
