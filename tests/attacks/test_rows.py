"""Which of several offers an image keeps."""

import torch

from maar.attacks.rows import Best
from maar.regions import Ball


def test_largest_margin_of_each_image_wins_also_within_one_offer():
    best = Best(Ball(torch.full((3, 1), 0.5), 0.1))
    offers = torch.tensor([[0.1], [0.2], [0.3], [0.4], [0.5]])
    best.offer(torch.tensor([0, 2, 0, 2, 0]), (offers,), torch.tensor([-1.0, 3.0, 5.0, 2.0, 4.0]))
    assert best.e[0].flatten().tolist() == [offers[2].item(), 0.0, offers[1].item()]
    assert best.margin.tolist() == [5.0, float("-inf"), 3.0]
    assert best.broken.tolist() == [True, False, True]


def test_worse_and_nan_offers_are_declined():
    best = Best(Ball(torch.full((2, 1), 0.5), 0.1))
    images, e = torch.tensor([0, 1]), (torch.tensor([[0.1], [0.2]]),)
    best.offer(images, e, torch.tensor([1.0, float("nan")]))
    best.offer(images, (e[0] + 0.5,), torch.tensor([0.5, float("nan")]))
    best.offer(images[:0], (e[0][:0],), torch.tensor([]))
    assert torch.equal(best.e[0], torch.tensor([[0.1], [0.0]]))
    assert best.margin.tolist() == [1.0, float("-inf")]
