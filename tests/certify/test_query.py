import torch

from maar.certify.network import Network
from maar.certify.query import Query


def test_the_rows_are_those_of_the_open_classes(trained):
    network = Network(trained, (1, 28, 28))
    query = Query.of(network, torch.rand(1, 1, 28, 28), 3, 0.1)
    assert query.targets == (0, 1, 2, 4, 5, 6, 7, 8, 9)
    z = torch.rand(10)
    assert torch.equal(query.margins()[0] @ z, z[3] - z[list(query.targets)])
    some = query.narrowed([9, 0])
    assert torch.equal(some.margins()[0] @ z, z[3] - z[[9, 0]])
    assert some.memory is query.memory


def test_the_ball_of_each_precision_holds_the_real_one(ask):
    x, eps = torch.tensor([0.75, 0.25]).double(), 0.1
    for dtype, slack in ((torch.float32, 1e-6), (torch.float64, 1e-15)):
        ball = ask(eps).ball(dtype)
        assert ball.lb.dtype == dtype
        below, above = x - eps - ball.lb.double(), ball.ub.double() - x - eps
        assert min(below.min(), above.min()) >= 0
        assert max(below.max(), above.max()) < slack
