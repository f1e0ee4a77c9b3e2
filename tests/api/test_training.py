"""`maar.train`, `maar.load`, `maar.evaluate`, and methods as plain losses."""

import pytest
import torch
from torch import nn

import maar


def task():
    """Two classes of bright and dark images, and a small network."""
    torch.manual_seed(0)
    y = torch.randint(2, (256,))
    x = (0.2 * torch.rand(256, 1, 4, 4) + 0.6 * y.view(-1, 1, 1, 1)).clamp(0, 1)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), nn.ReLU(),
        nn.Linear(8, 2),
    )  # fmt: skip
    return net, x, y


@pytest.mark.parametrize(
    "method",
    [maar.MAAR(base=maar.PGD(steps=2)), maar.IBP(), maar.TRADES(), maar.MTLIBP(), maar.Standard()],
    ids=lambda method: method.name,
)
def test_a_method_is_a_plain_loss(method):
    net, x, y = task()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    totals = []
    for _ in range(12):
        terms = method(net, x, y, 0.05)
        assert all(term.dim() == 0 for term in terms.values())
        total = sum(terms.values())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        totals.append(float(total.detach()))
    assert totals[-1] < totals[0]


def test_maar_names_its_terms():
    net, x, y = task()
    terms = maar.MAAR(lam=6, base=maar.PGD(steps=2))(net, x, y, eps="2/255")
    assert set(terms) == {"adversarial", "consistency"}


def test_a_method_of_several_stages_has_no_single_loss():
    net, x, y = task()
    with pytest.raises(maar.UsageError, match="colt trains in 2 stages"):
        maar.COLT()(net, x, y, 0.05)
    assert maar.COLT(max_stages=1, stability=0.0)(net, x, y, 0.05)


@pytest.mark.parametrize("as_loader", [False, True])
def test_train_a_model_of_ones_own(as_loader):
    net, x, y = task()
    data = (x, y)
    if as_loader:
        tensors = torch.utils.data.TensorDataset(x, y)
        data = torch.utils.data.DataLoader(tensors, batch_size=64)
    method = maar.MAAR(base=maar.COLT(stability=0.0))
    made = maar.train(model=net, data=data, method=method, eps=0.05, epochs=3, batch=64, lr=0.02)
    assert {entry["stage"] for entry in made.history} == {1, 2}
    assert made.network[0].weight is net[0].weight
    measured = maar.evaluate(net, x, y, 0.05, steps=5)
    assert measured.robust_accuracy > 0.9
    assert measured.accuracy >= measured.robust_accuracy
    assert maar.certify(net, x[:20], y[:20], eps=0.05, workers=1).certified > 0.5


def test_train_by_recipe_and_load(tmp_path):
    run = maar.train("smoke", folder=tmp_path / "run", seed=3, lr=0.001)
    assert (run.config.seed, run.config.train.lr) == (3, 0.001)
    assert run.result["config_hash"]
    assert len(run.metrics) == run.result["epochs"]
    again = maar.load(tmp_path / "run")
    state = run.network.state_dict()
    assert all(torch.equal(state[k], v) for k, v in again.network.state_dict().items())


def test_load_from_the_zoo():
    loaded = maar.load(f"zoo:{_first_of_zoo()}")
    assert isinstance(loaded.network, nn.Sequential)
    assert loaded.eps is not None


def _first_of_zoo():
    from maar.zoo import entries

    return next(iter(entries()))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["recipe or model is needed"]),
        ({"recipe": "smoke", "epoch": 1}, ["epoch", "did you mean 'epochs'"]),
        ({"recipe": "smoek"}, ["unknown recipe", "smoke"]),
        ({"model": task()[0]}, ["method is None"]),
    ],
)
def test_a_wrong_argument_is_named(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(maar.UsageError) as caught:
        maar.train(**arguments)
    assert all(word in str(caught.value) for word in words), caught.value
