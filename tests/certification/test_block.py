"""Images begun together: the same answers to the last bit, whoever else is in the block."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from maar.certification import CASCADE, VERIFIERS
from maar.certification.agenda import Agenda, Job
from maar.certification.block import BLOCK, Block, Quick, blocks_of
from maar.certification.cascade import Cascade, Settled
from maar.certification.network import Network
from maar.certification.query import Query
from maar.certification.verdict import UNKNOWN, Status, Verdict
from maar.domains.bound import margins
from maar.domains.interval import Interval
from maar.regions import Ball

QUICK = ("misclassified", "interval", "quick_pgd")


@pytest.fixture(scope="module")
def queries(trained, mnist_mini):
    """A whole block, with images of every kind."""
    network = Network(trained, (1, 28, 28))
    x, y = mnist_mini.images("test"), mnist_mini.labels("test")
    wrong = (trained(x).argmax(1) != y).nonzero().flatten()[:2].tolist()
    chosen = [*range(BLOCK - len(wrong)), *wrong]
    return [
        Query.of(network, x[i : i + 1], int(y[i]), eps, seed)
        for seed, i in enumerate(chosen)
        for eps in [0.02]
    ]


def same(one, other):
    points = [settled.counterexample for settled in (one, other)]
    if (points[0] is None) != (points[1] is None):
        return False
    is_same_point = points[0] is None or np.array_equal(*points)
    names = ("status", "by", "lb", "margin", "open", "target")
    return is_same_point and all(getattr(one, n) == getattr(other, n) for n in names)


def test_the_default_cascade_begins_with_three():
    assert tuple(verifier.name for verifier in Cascade.named(CASCADE).quick) == QUICK
    assert Cascade.named(["crown", "interval"]).quick == ()
    assert not isinstance(VERIFIERS["pgd"](), Quick)


def test_an_image_has_the_same_answer_whoever_else_is_there(queries):
    cascade = Cascade.named(QUICK)
    whole = cascade.begin(queries)
    assert len({settled.status for settled in whole}) >= 3
    for chosen in ([0], [5, 6, 31], range(0, BLOCK, 2), range(BLOCK - 1, -1, -1)):
        part = cascade.begin([queries[n] for n in chosen])
        assert all(same(found, whole[n]) for n, found in zip(chosen, part, strict=True))


def test_together_and_alone_agree(queries):
    cascade = Cascade.named(CASCADE[:4])
    for query, begun in zip(queries, cascade.begin(queries), strict=True):
        known = dict(begun.times)
        settled, alone = cascade.settle(query, begun), cascade.settle(query)
        assert (settled.status, settled.by) == (alone.status, alone.by)
        for k, lb in settled.lb.items():
            assert lb == pytest.approx(alone.lb[k], rel=1e-3, abs=1e-3)
        assert known.items() <= settled.times.items()  # nobody was asked twice


def test_an_interval_does_not_depend_on_its_batch(queries):
    """Not even where another image of the batch has more neurons alive, hence more rounding."""
    dark = torch.zeros_like(queries[0].x)
    x = torch.cat([dark, torch.ones_like(dark)])
    C, bound = margins(torch.tensor([3, 3]), 10), Interval(rounding=True)
    graph = queries[0].network.graph(torch.float32)
    both = bound(graph, Ball(x, 0.0), C)
    alone = bound(graph, Ball(dark, 0.0), C[:1])
    torch.testing.assert_close(both.lb[:1], alone.lb, rtol=0, atol=1e-6)
    torch.testing.assert_close(both.ub[:1], alone.ub, rtol=0, atol=1e-6)


@dataclass(frozen=True)
class Says:
    """A quick verifier with one answer to all, or a failure."""

    verdict: object
    name: str = "says"
    asked: list = field(default_factory=list)

    def together(self, block):
        self.asked.append(len(block.queries))
        if isinstance(self.verdict, BaseException):
            raise self.verdict
        return [self.verdict] * len(block.queries)

    def __call__(self, query):
        self.asked.append(query.seed)
        return UNKNOWN


def test_what_fails_together_is_asked_one_by_one(queries):
    bad, next_ = Says(MemoryError("too much"), "bad"), Says(UNKNOWN, "next")
    cascade = Cascade((bad, next_))
    for query, begun in zip(queries[:2], cascade.begin(queries[:2]), strict=True):
        settled = cascade.settle(query, begun)
        assert (settled.status, settled.open) == (Status.UNKNOWN, list(query.targets))
    assert (bad.asked, next_.asked) == ([2, 0, 1], [0, 1])


def test_a_lie_is_an_error_of_its_image(queries):
    right = [query for query in queries if int(query.network.net(query.x).argmax()) == query.y]
    lie = Says(Verdict(Status.FALSIFIED, counterexample=right[0].x))
    for settled in Cascade((lie,)).begin(right[:3]):
        assert settled.status is Status.ERROR
        assert settled.counterexample is None
    nothing = Says(Verdict(Status.VERIFIED))
    assert Cascade((nothing,)).begin(right[:1])[0].status is Status.UNKNOWN


def test_what_is_begun_with_nothing_proved_is_open(queries):
    """A verdict never comes of a list of open classes that somebody forgot to fill in."""
    cascade = Cascade((Says(UNKNOWN),))
    settled = cascade.settle(queries[0], Settled(open=[]))
    assert (settled.status, settled.open) == (Status.UNKNOWN, list(queries[0].targets))


def test_only_what_is_proved_of_a_class_closes_it(queries):
    query = queries[0]
    first, *others = query.targets
    begun = Settled(lb={first: 0.5, others[0]: 0.0, others[1]: float("nan")})
    assert Cascade((Says(UNKNOWN),)).settle(query, begun).open == others


def test_images_of_one_row_are_refused(queries):
    with pytest.raises(ValueError, match="not of one block"):
        Block.of([queries[3], queries[3]])


def job(index):
    return Job(index, np.zeros((1, 1, 2), np.float32), 0)


def test_blocks_are_by_index():
    order = [0, BLOCK, 1, 2 * BLOCK - 1, BLOCK - 1]
    assert blocks_of((i, i) for i in order) == [[0, 1, BLOCK - 1], [BLOCK, 2 * BLOCK - 1]]


def drain(agenda):
    """All pieces in order, everything open after its beginning."""
    order = []
    while agenda:
        piece = agenda.next()
        order.append(([job.index for job in piece.jobs], piece.is_beginning))
        list(agenda.take(piece, [Settled() for _ in piece.jobs]))
    return order


def test_the_agenda_finishes_what_is_begun_except_at_the_end():
    jobs = [job(i) for i in (0, 1, BLOCK, BLOCK + 1, 2 * BLOCK)]
    hard = {BLOCK: 3.0, BLOCK + 1: 2.0, 2 * BLOCK: 1.0}
    assert drain(Agenda(jobs, hard)) == [
        ([0, 1], True),
        ([BLOCK, BLOCK + 1], True),
        ([2 * BLOCK], True),
        ([0], False),
        ([1], False),
        ([2 * BLOCK], False),
        ([BLOCK + 1], False),
        ([BLOCK], False),
    ]
    assert [first for (first, *_), _ in drain(Agenda(jobs, {}))] == [
        *(0, 0, 1),
        *(BLOCK, BLOCK, BLOCK + 1),
        *(2 * BLOCK, 2 * BLOCK),
    ]


def test_a_lost_block_is_begun_image_by_image_and_a_lost_image_is_not():
    agenda = Agenda([job(i) for i in range(3)], {})
    block = agenda.next()
    assert not agenda
    assert agenda.give_back(block)
    assert drain(agenda) == [([i], beginning) for i in range(3) for beginning in (True, False)]
    agenda = Agenda([job(7)], {})
    assert not agenda.give_back(agenda.next())
    assert not agenda
