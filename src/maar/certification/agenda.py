"""What is to be done, in pieces: blocks of images to begin together, and images to finish."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from maar.certification.block import blocks_of
from maar.certification.cascade import Settled

# Images per worker. The last of them are all begun before any is finished, hardest first: a hard
# one begun last would keep all but one worker waiting.
LAST = 100


@dataclass(frozen=True, eq=False)
class Job:
    """One image: its index in the test split, its pixels [*shape] in [0, 1], its label."""

    index: int
    x: np.ndarray
    y: int


@dataclass(frozen=True, eq=False)
class Piece:
    """Work for one worker: jobs of one block to begin, or one job to finish."""

    jobs: Sequence[Job]
    begun: Settled | None = None
    """What is known of the one job; None: the jobs are to be begun."""

    @property
    def is_beginning(self) -> bool:
        return self.begun is None


Done = tuple[Job, Settled]


class Agenda:
    """Hands out pieces, and takes what came of them.

    `hardness`: index -> a number that is small where proofs take long, for the last images.
    """

    def __init__(self, jobs: Sequence[Job], hardness: dict[int, float]) -> None:
        self.blocks = deque(blocks_of((job.index, job) for job in jobs))
        self.hardness = hardness
        self.begun: list[tuple[float, int, Piece]] = []
        """To finish: a heap, in order of arrival, the last ones by hardness."""
        self.arrived = 0

    def __bool__(self) -> bool:
        """Whether there is a piece to hand out now."""
        return bool(self.blocks or self.begun)

    def next(self) -> Piece:
        """What is begun is finished first, except among the last images."""
        if self.blocks and (not self.begun or self.blocks[0][0].index in self.hardness):
            return Piece(self.blocks.popleft())
        return heapq.heappop(self.begun)[2]

    def take(self, piece: Piece, found: Sequence[Settled]) -> Iterator[Done]:
        """Enter a worker's answer; yields the jobs that are done."""
        for job, settled in zip(piece.jobs, found, strict=True):
            if settled.is_final or not piece.is_beginning:
                yield job, settled
            else:
                self._put(Piece([job], settled))

    def give_back(self, piece: Piece) -> bool:
        """Take back a piece whose worker was lost; False if it is one image, which is to blame."""
        if len(piece.jobs) == 1:
            return False
        self.blocks.extendleft([job] for job in reversed(piece.jobs))
        return True

    def again(self, piece: Piece) -> None:
        """Take back a piece, to be handed out once more as it is."""
        if piece.is_beginning:
            self.blocks.appendleft(list(piece.jobs))
        else:
            self._put(piece)

    def _put(self, piece: Piece) -> None:
        self.arrived += 1
        order = self.hardness.get(piece.jobs[0].index, -np.inf)
        heapq.heappush(self.begun, (order, self.arrived, piece))
