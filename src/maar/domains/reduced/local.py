"""The bounds of a convolution's neurons, each computed on the part of the image that it sees.

A neuron of the second convolution sees a tenth of the image and some of the ReLUs before it; its
row in the reduced network (`bounds.reduced`) is zero elsewhere. Neurons at one place see about the
same part: they are a group, which sees what any of them sees. One batched product over all groups
takes the place of one over the whole image, with the same terms but the zeros. What a group sees is
read off the rows, so that nothing is assumed about the network between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from maar.domains.bound import Pair
from maar.domains.reduced.linear import Affine, Lines, below_by, replaced
from maar.domains.reduced.network import Layer, Reduced

# A batched product of small matrices is worth less than one of large ones.
WORTH = 4


@dataclass
class Local:
    """The rows of one layer's neurons in G groups of R: [G, 2R, ...], each row and its negative.

    `seen[j]`, [G, K_j]: the ReLUs of layer j that a group sees; `layers[j]`: their rows, [G, K_j,
    ...]. `centre`, `radius`, [G, P]: of the pixels that it sees. `slot`, [U]: where each neuron's
    row is among all G * R. A group smaller than others repeats a row; one that sees less than
    others has zeros in its rows for the rest.
    """

    rows: Affine
    seen: list[Tensor]
    layers: list[Affine]
    centre: Tensor
    radius: Tensor
    slot: Tensor

    def slopes(
        self, layers: Sequence[Layer], choose: Callable[[Tensor, Tensor], Tensor]
    ) -> list[Tensor]:
        """A first choice of the slopes below, as parameters: [G, 2R, K_j]."""
        count = self.rows.c.shape[1]
        return [
            choose(layer.lb, layer.ub)[seen][:, None].repeat(1, count, 1).requires_grad_()
            for layer, seen in zip(layers, self.seen, strict=True)
        ]

    def bounds(self, layers: Sequence[Layer], slopes: Sequence[Tensor]) -> Pair:
        """Lower and upper bounds of the neurons, by these slopes and the layers' present bounds."""
        rows = self.rows
        start = rows.Z.shape[-1]
        for j in range(len(layers) - 1, -1, -1):
            start -= self.seen[j].shape[1]
            lines = _lines(layers[j], self.seen[j], slopes[j])
            rows = replaced(rows, start, self.layers[j], lines, upper=False)
        middle = rows.X @ self.centre[..., None]
        reach = rows.X.abs() @ self.radius[..., None]
        lower = rows.c + middle[..., 0] - reach[..., 0] - rows.e
        low, high = (half.flatten()[self.slot] for half in lower.chunk(2, dim=1))
        return low, -high


def _lines(layer: Layer, seen: Tensor, slope: Tensor) -> Lines:
    below = below_by(
        layer.lb[seen][:, None], layer.ub[seen][:, None], layer.below[seen][:, None], slope
    )
    above, intercept = layer.above
    return Lines(above[seen][:, None], intercept[seen][:, None], below)


@torch.no_grad()
def grouped(reduced: Reduced, k: int, budget: int = 4 << 30) -> Local | None:
    """The groups of layer k's neurons; None where all at once are as quick, or fit better.

    `budget`: bytes that the groups may take.
    """
    layer, before = reduced.layers[k], reduced.layers[:k]
    shape = reduced.graph.shapes[reduced.graph.nodes[reduced.graph.relus[k]].inputs[0]]
    if reduced.parallel or len(shape) != 3 or not layer.rows.Z.numel():
        return None
    _, group = (layer.index % (shape[1] * shape[2])).unique(return_inverse=True)
    member = torch.nn.functional.one_hot(group).T  # [G, U]
    sees = _sees(layer.rows, before, member.float())
    seen = [_first(each) for each in sees[:-1]]
    pixels = _first(sees[-1])
    count = int(member.sum(1).max())
    if not _pays(reduced, len(layer.index), (len(member), count), seen, pixels.shape[1], budget):
        return None
    place, slot = _places(group, count)
    starts = torch.tensor([0, *(len(each.index) for each in before)]).cumsum(0).tolist()
    columns = [each + start for each, start in zip(seen, starts[:-1], strict=True)]

    def cut(rows: Affine, place: Tensor, depth: int) -> Affine:
        """Rows of each group over what it sees of the image and of the first `depth` layers."""
        column = torch.cat([place.new_zeros(len(place), 0), *columns[:depth]], 1)
        return Affine(
            rows.X[place[..., None], pixels[:, None]],
            rows.Z[place[..., None], column[:, None]],
            rows.c[place],
            rows.e[place],
        )

    own = cut(layer.rows, place, k)
    pairs = zip(vars(own).values(), vars(-own).values(), strict=True)
    return Local(
        Affine(*(torch.cat(pair, 1) for pair in pairs)),
        seen,
        [cut(before[j].rows, seen[j], j) for j in range(k)],
        reduced.centre[pixels],
        reduced.radius[pixels],
        slot,
    )


def _pays(
    reduced: Reduced,
    neurons: int,
    groups: tuple[int, int],
    seen: list[Tensor],
    pixels: int,
    budget: int,
) -> bool:
    """Whether the groups are less work than all rows at once, by far, and fit into memory."""
    each = [part.shape[1] for part in seen]
    work = groups[0] * groups[1] * pixels * sum(each)
    before = sum(len(layer.index) for layer in reduced.layers[: len(seen)])
    if WORTH * work > neurons * len(reduced.centre) * before:
        return False
    size = 2 * groups[1] * (pixels + sum(each))
    size += sum(here * (pixels + sum(each[:j])) for j, here in enumerate(each))
    return reduced.centre.element_size() * groups[0] * size <= budget


def _places(group: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Which neurons are in each group, [G, count], and where among them each neuron is, [U].

    A group's first neuron stands for those that it has not.
    """
    order = group.argsort(stable=True)
    sorted_ = group[order]
    first = torch.searchsorted(sorted_, sorted_.unique())
    rank = torch.arange(len(order), device=group.device) - first[sorted_]
    place = order[first][:, None].repeat(1, count)
    place[sorted_, rank] = order
    slot = torch.empty_like(order)
    slot[order] = sorted_ * count + rank
    return place, slot


def _sees(rows: Affine, before: Sequence[Layer], member: Tensor) -> list[Tensor]:
    """Return the part of each earlier layer and of the image that a group sees, through ReLUs too.

    `member`, [G, U], has ones: the sums count, and only zero or not is asked.
    """
    Z, X = member @ (rows.Z != 0).to(member), member @ (rows.X != 0).to(member)
    found: list[Tensor] = []
    stop = Z.shape[1]
    for layer in reversed(before):
        start = stop - len(layer.index)
        through = (Z[:, start:stop] > 0).to(member)
        found.insert(0, through > 0)
        Z = Z[:, :start] + through @ (layer.rows.Z != 0).to(member)
        X = X + through @ (layer.rows.X != 0).to(member)
        stop = start
    return [*found, X > 0]


def _first(seen: Tensor) -> Tensor:
    """The places that are seen, [G, most of them]; those of others too where a group sees fewer."""
    return seen.to(torch.int8).argsort(dim=1, descending=True, stable=True)[
        :, : int(seen.sum(1).max())
    ]
