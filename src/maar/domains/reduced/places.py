"""A convolution's neurons bounded in tiles: the reduced network's side of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from maar.domains.backward import Backward
from maar.domains.bound import intersect
from maar.domains.interval import Boxes
from maar.domains.lines import lower
from maar.domains.reduced.blocks import Block, Blocks, Spread
from maar.domains.reduced.layer import Layer
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.near import Near, Place, slots
from maar.domains.reduced.tiles import Below, Tile, Tiling, present, settled
from maar.domains.rows import Rows, neurons

if TYPE_CHECKING:
    from maar.domains.reduced.network import Reduced

# Windows whose coefficients fit into a core's cache, together with what is made of them.
TOGETHER = 256
# Rows are put into blocks by the places of their neurons, on a grid of so many cells each way.
CELLS = 8


def can_be_tiled(reduced: Reduced, k: int) -> bool:
    """Whether ReLU k's input is a convolution over neurons whose rows are at hand as windows."""
    graph = reduced.graph
    shape = graph.shapes[graph.nodes[graph.relus[k]].inputs[0]]
    return len(shape) == 3 and k > 1 and all(j in reduced.near for j in range(k))


def bound_by_lines(boxes: Boxes, value: int) -> None:
    """Tighten a convolution's bounds by plain CROWN, window by window: see `settled`."""
    shape = boxes.graph.shapes[value]
    lb, ub = boxes.lb[value].flatten().clone(), boxes.ub[value].flatten().clone()
    for part in ((lb < 0) & (ub > 0)).nonzero().squeeze(1).split(TOGETHER):
        is_up = lb[part] + ub[part] > 0
        for _ in range(2):
            rows = neurons(shape, part, None, lb.dtype)
            sign = torch.where(is_up, 1.0, -1.0).to(lb)
            low = lower(boxes, value, replace(rows, A=rows.A * sign.view(-1, 1, 1, 1)))
            up, down = part[is_up], part[~is_up]
            lb[up] = torch.maximum(lb[up], low[is_up])
            ub[down] = torch.minimum(ub[down], -low[~is_up])
            is_open = (lb[part] < 0) & (ub[part] > 0)
            part, is_up = part[is_open], ~is_up[is_open]
    boxes.lb[value], boxes.ub[value] = lb.view_as(boxes.lb[value]), ub.view_as(boxes.ub[value])


def windows(
    reduced: Reduced, value: int, rows: Rows, stop: int = -1
) -> tuple[dict[int, Rows], Rows | None, Tensor, Tensor]:
    """Rows carried down past the ReLUs above ReLU `stop`, whose unstable neurons are set aside.

    What reaches each ReLU, stop included; what reaches the image; the constant and the error.
    """
    boxes, graph = reduced.boxes, reduced.graph
    order = {i: k for k, i in enumerate(graph.relus)}
    found: dict[int, Rows] = {}

    def relu(run: Backward, i: int, rows: Rows) -> Rows | None:
        found[order[i]] = rows
        if order[i] == stop:
            return None
        active = boxes.lb[graph.nodes[i].inputs[0]] >= 0
        A = rows.A * rows.look_up(active.to(rows.A))
        return rows.gated(A, active) if boxes.rounding else rows.with_A(A)

    run = Backward(boxes, relu)
    at_input = run.run(value, rows)
    return found, at_input, run.constant, run.error


def keep_near(reduced: Reduced, k: int, index: Tensor) -> bool:
    """Keep the rows of ReLU k's unstable neurons `index` for the tiles of the ReLUs above, if any.

    Those of its active neurons too, which the next convolution's tiles are composed of.
    """
    graph = reduced.graph
    value = graph.nodes[graph.relus[k]].inputs[0]
    if not _is_near(reduced, k):
        return False
    lb = reduced.boxes.lb[value].flatten()
    if k > 0:
        index = torch.cat([index, (lb >= 0).nonzero().squeeze(1)]).sort().values
    unit = neurons(graph.shapes[value], index, None, lb.dtype)
    found, X, c, e = windows(reduced, value, unit)
    below, Z = [found[j] for j in range(k)], list[Rows]()
    if X is None or not Near.fits([X, *below]):
        return False
    for j, (layer, rows) in enumerate(zip(reduced.layers, below, strict=True)):
        is_unstable = slots(layer.index, graph.shapes[_source(reduced, j)])[None] >= 0
        Z.append(rows.with_A(rows.A * rows.look_up(is_unstable.to(rows.A))))
    if reduced.boxes.rounding:
        m = torch.maximum(reduced.boxes.lb[0].abs(), reduced.boxes.ub[0].abs())
        size = X.dot_abs(m) + c.abs()
        for j, (layer, rows) in enumerate(zip(reduced.layers, Z, strict=True)):
            reach = torch.zeros_like(reduced.boxes.lb[_source(reduced, j)])
            reach.view(-1)[layer.index] = torch.maximum(-layer.lb, layer.ub)
            size = size + rows.dot_abs(reach)
        e = e + reduced.lost(size, len(index))
    slot = slots(index, graph.shapes[value])
    reduced.near[k] = Near(index, slot, X, Z, c, e)
    return True


def kept(reduced: Reduced, k: int, index: Tensor) -> Spread:
    """The rows kept of neurons of ReLU k."""
    near = reduced.near[k]
    near = near[near.slot.flatten()[index]]
    shape = near.slot.shape
    side = [-(-shape[axis] // CELLS) for axis in (1, 2)]
    rest = index % (shape[1] * shape[2])
    cell = rest // shape[2] // side[0] * CELLS + rest % shape[2] // side[1]
    sources = [reduced.graph.shapes[_source(reduced, j)] for j in range(k)]
    slot = [slots(layer.index, s) for layer, s in zip(reduced.layers, sources, strict=True)]
    first = [sum(len(layer.index) for layer in reduced.layers[:j]) for j in range(k)]
    image = reduced.graph.shapes[0]
    pixel = torch.arange(image.numel(), device=index.device).view(image)
    blocks: list[Block] = []
    for which in cell.unique():
        member = (cell == which).nonzero().squeeze(1)
        part = near[member]
        place = Place.around(part.X).within(image)
        seen = [
            present(each, Place.around(rows).within(each.shape))
            for each, rows in zip(slot, part.Z, strict=True)
        ]
        z = [
            (layer.index[s], size)
            for layer, s, size in zip(reduced.layers, seen, sources, strict=True)
        ]
        columns = [start + s for start, s in zip(first, seen, strict=True)]
        none = member.new_zeros(0)
        blocks.append(
            Block(member, place.cut(pixel), torch.cat([none, *columns]), part.over(place, z))
        )
    return _spread(reduced, blocks, len(index))


def _spread(reduced: Reduced, blocks: list[Block], count: int) -> Spread:
    return Spread(Blocks(blocks, count, len(reduced.centre), reduced.columns), reduced.centre)


def _source(reduced: Reduced, k: int) -> int:
    return reduced.graph.nodes[reduced.graph.relus[k]].inputs[0]


def _is_near(reduced: Reduced, k: int) -> bool:
    """Whether a convolution with a ReLU comes next, in a network without branches."""
    graph = reduced.graph
    # (the image's own convolution is bounded exactly by intervals, so that the next has no tiles)
    last = k + 1 + (k == 0)
    if any(len(node.inputs) != 1 for node in graph.nodes) or last >= len(graph.relus):
        return False
    is_image = all(len(graph.shapes[_source(reduced, j)]) == 3 for j in range(k, last + 1))
    return is_image and all(j in reduced.near for j in range(k))


def tiled(
    reduced: Reduced,
    k: int,
    given: Sequence[Tensor] | None,
    refuse: Callable[[int], None],
) -> Layer | None:
    """Bound ReLU k's input in tiles; the rows of its unstable neurons, or None without windows.

    The rows of its active neurons come with them, and are left in `composed`.
    """
    boxes, graph = reduced.boxes, reduced.graph
    value = _source(reduced, k)
    shape = graph.shapes[value]
    lb, ub = boxes.lb[value].flatten().clone(), boxes.ub[value].flatten().clone()
    alive = ((lb >= 0) | ((lb < 0) & (ub > 0))).nonzero().squeeze(1)
    found, _, c, e = windows(reduced, value, neurons(shape, alive, None, lb.dtype), stop=k - 1)
    if found[k - 1].corner is None:
        return None
    tiling = _tiling(reduced, given, len(alive))
    tiles: list[Tile] = []
    for tile in tiling.tiles(found[k - 1], c, e):
        place = alive[tile.member]
        pair = intersect((lb[place], ub[place]), tile.quick())
        lb[place], ub[place] = settled(tile.rows, pair, tile.lower)
        tiles.append(tile)
    boxes.lb[value], boxes.ub[value] = lb.view_as(boxes.lb[value]), ub.view_as(boxes.ub[value])
    unstable, active = (lb < 0) & (ub > 0), lb >= 0
    refuse(int(unstable.sum()))
    layers: list[Layer] = []
    for which in (unstable, active):
        index = which.nonzero().squeeze(1)
        blocks = list(_blocks(tiles, alive, slots(index, which.shape)))
        rows = _spread(reduced, blocks, len(index))
        layers.append(Layer(index, rows, lb[index], ub[index]))
    reduced.composed[k] = layers[1]
    return layers[0]


def _tiling(reduced: Reduced, given: Sequence[Tensor] | None, together: int) -> Tiling:
    below: list[Below] = []
    first = 0
    for j, layer in enumerate(reduced.layers):
        slot = slots(layer.index, reduced.graph.shapes[_source(reduced, j)])
        lines = reduced.lines(layer, given[j] if given else None)
        below.append(Below(reduced.near[j], lines, layer.index, slot, first, layer.lb, layer.ub))
        first += len(layer.index)
    last = below[-1].near.index
    active = reduced.boxes.lb[_source(reduced, len(below) - 1)].flatten()[last] >= 0

    def charge(rows: Affine, pixels: Tensor, columns: Tensor) -> Affine:
        return reduced.charged(rows, together, pixels, columns)

    return Tiling(below, active, reduced.centre, reduced.radius, reduced.graph.shapes[0], charge)


def _blocks(tiles: Sequence[Tile], alive: Tensor, slot: Tensor) -> Iterator[Block]:
    """The tiles' rows of the neurons that have a slot."""
    for tile in tiles:
        to = slot[alive[tile.member]]
        keep = to >= 0
        yield Block(to[keep], tile.pixels, tile.columns, tile.rows[keep])
