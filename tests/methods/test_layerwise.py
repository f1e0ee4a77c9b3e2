"""The stages and the loss that COLT, MAT and MAAR share, and their limits against each other."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from maar.attacks import PGD
from maar.core.eps import Eps
from maar.core.errors import UsageError
from maar.domains.cauchy.estimate import Cauchy
from maar.methods import METHODS
from maar.methods.base import Batch, Outputs
from maar.methods.colt import COLT
from maar.methods.consistency import consistency, image_weight
from maar.methods.layerwise import LayerwiseOutputs
from maar.methods.maar import MAAR
from maar.methods.mat import MAT
from maar.networks import Normalize, make, relu_indices
from maar.regions import Ball

SHAPES = {"convmed_2_2_100": (1, 28, 28), "convmed_2_4_250": (3, 32, 32)}
SHORT = PGD(steps=2, step_size=0.5)


def network(name="convmed_2_2_100", seed=0):
    shape = SHAPES.get(name, (3, 32, 32))
    return make(name, shape, 10, [0.5] * shape[0], [0.25] * shape[0], seed=seed)


def batch_of(net, method, stage=0, t=0.5, n=6, y=None, seed=1, mix=None):
    stages = method.stages(net, Eps("0.1"), 2)
    stage = stages[stage]
    for index, layer in enumerate(net):
        layer.requires_grad_(index >= stage.frozen)
    net.zero_grad()
    chance = torch.Generator().manual_seed(7)
    channels = 1 if net[1].in_channels == 1 else 3
    size = 28 if channels == 1 else 32
    x = torch.rand(n, channels, size, size, generator=chance)
    return Batch(
        net=net,
        x=x,
        y=torch.randint(10, (n,), generator=chance) if y is None else y,
        eps=stage.eps(t),
        stage=stage,
        generator=torch.Generator().manual_seed(seed),
        at={name: schedule(t) for name, schedule in stage.schedules.items()},
        index=torch.arange(n),
    )


def gradients(method, stage=0, y=None, **knobs):
    net = network()
    batch = batch_of(net, method, stage, y=y, **knobs)
    sum(method.loss(batch).values()).backward()
    return [p.grad for p in net.parameters() if p.grad is not None]


def answers():
    """Labels that the fresh network gives, so that nothing is misclassified."""
    net = network()
    with torch.no_grad():
        return net(batch_of(net, COLT()).x).argmax(1)


@pytest.mark.parametrize(
    ("name", "count"),
    [("convmed_2_2_100", 3), ("convmed_2_4_250", 3), ("convmedbig_2_2_4_250", 4)],
)
def test_the_papers_stages(name, count):
    net = network(name)
    stages = COLT().stages(net, Eps("0.1"), 5)
    relus = relu_indices(net)
    assert [stage.frozen for stage in stages] == [0, *(i + 1 for i in relus[: count - 1])]
    left = range(count - 1, -1, -1)
    assert [s.eps(1.0) for s in stages] == pytest.approx([0.1 * 1.05 * 1.1**k for k in left])
    assert [s.lr_scale for s in stages] == pytest.approx([0.75**k for k in range(count)])
    weights = [s.schedules["stability"](1.0) for s in stages]
    assert weights == pytest.approx([0.005 * 1.5**k for k in range(count)])
    assert [s.is_last for s in stages] == [False] * (count - 1) + [True]


def test_fewer_stages_still_train_the_stability_of_the_next_relu():
    stages = COLT(max_stages=2).stages(network(), Eps("0.1"), 20)
    assert len(stages) == 2
    assert stages[-1].eps(0.0) == pytest.approx(0.105)
    assert not stages[-1].is_last


def test_stages_of_different_length():
    net = network()
    stages = COLT(stage_epochs=(4, 2)).stages(net, Eps("0.1"), 5)
    assert [stage.epochs for stage in stages] == [4, 2, 2]
    assert [s.epochs for s in COLT().stages(net, Eps("0.1"), 5)] == [5, 5, 5]


def test_a_network_without_relu_is_refused():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
    with pytest.raises(UsageError, match="ReLU"):
        COLT().stages(net, Eps("0.1"), 20)


def test_kappa_and_eps_follow_the_mix_epochs():
    [first, *_] = COLT(mix=4.0, anneal=True).stages(network(), Eps("0.1"), 20)
    assert first.schedules["kappa"](1.0) == pytest.approx(0.25)
    assert first.eps(1.0) == pytest.approx(0.25 * 0.1 * 1.05 * 1.1**2)
    assert first.schedules["kappa"](9.0) == 1.0


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_maar_without_weight_is_its_base(stage):
    plain = gradients(COLT(attack=SHORT, mix=1.0), stage)
    wrapped = gradients(MAAR(lam=0.0, base=COLT(attack=SHORT, mix=1.0)), stage)
    assert all(torch.equal(a, b) for a, b in zip(plain, wrapped, strict=True))
    other = gradients(MAAR(base=COLT(attack=SHORT, mix=1.0)), stage)
    assert not all(torch.equal(a, b) for a, b in zip(plain, other, strict=True))


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_mat_is_colt_where_nothing_is_misclassified(stage):
    y = answers()
    colt = gradients(COLT(attack=SHORT), stage, y=y)
    mat = gradients(MAT(attack=SHORT), stage, y=y)
    # The same numbers, added in another order: MAT needs the natural logits before the attack.
    for a, b in zip(colt, mat, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    wrong = (y + 1) % 10
    colt, mat = (
        gradients(COLT(attack=SHORT), stage, y=wrong),
        gradients(MAT(attack=SHORT), stage, y=wrong),
    )
    assert max((a - b).abs().max().item() for a, b in zip(colt, mat, strict=True)) > 1e-3


def test_mat_asks_a_misclassified_image_to_keep_its_answer():
    net, method = network(), MAT(attack=SHORT)
    batch = batch_of(net, method, y=(answers() + 1) % 10)
    out = method.outputs(batch)
    terms = method.terms(batch, out)
    z = out.worst[0][1]
    assert terms["adversarial"].item() == pytest.approx(F.cross_entropy(z, answers()).item())
    assert terms["natural"].item() == pytest.approx(F.cross_entropy(out.nat, batch.y).item())


def test_the_objectives():
    net = network()
    for objective, names in (("paper", {"natural"}), ("colt", set())):
        terms = COLT(objective=objective, attack=SHORT).loss(batch_of(net, COLT()))
        assert set(terms) == {"adversarial", "l1", "stability"} | names


def test_the_mix_begins_with_the_stage_before():
    """At kappa = 0 only the previous region counts, and before the first stage the images."""
    net, method = network(), COLT(objective="colt", mix=2.0, attack=SHORT)
    first = method.loss(batch_of(net, method, 0, t=0.0))
    batch = batch_of(net, method, 0, t=0.0)
    assert first["natural"].item() == pytest.approx(F.cross_entropy(net(batch.x), batch.y).item())
    assert first["adversarial"].item() == first["stability"].item() == 0
    second = method.loss(batch_of(net, method, 1, t=0.0))
    assert second["adversarial"].item() == 0
    assert second["previous"].item() > 0
    half = method.loss(batch_of(net, method, 1, t=1.0))
    assert half["previous"].item() == pytest.approx(second["previous"].item() / 2, rel=0.02)
    assert method.loss(batch_of(net, method, 1, t=2.0))["previous"].item() == 0


def test_the_previous_point_runs_through_the_layers_behind_its_own_relu():
    net, method = network(), COLT(mix=2.0, attack=PGD(steps=0, random_start=False))
    batch = batch_of(net, method, 2, t=1.0)
    out = method.outputs(batch)
    (_, now), (share, before) = out.worst
    assert share == 0.5
    # Without steps, both points are centres of zonotopes; the looser one lies further away.
    assert now.shape == before.shape == out.nat.shape
    assert not torch.equal(now, before)


def test_stability_of_the_first_relu_by_hand():
    net, method = network(), COLT(attack=SHORT)
    batch = batch_of(net, method)
    ball = Ball(batch.x, batch.eps)
    conv, norm = net[1], net[0]
    centre, radius = (ball.lb + ball.ub) / 2, (ball.ub - ball.lb) / 2 / norm.std.view(1, -1, 1, 1)
    reach = F.conv2d(radius, conv.weight.abs(), None, conv.stride, conv.padding)
    middle = conv(norm(centre))
    lb, ub = middle - reach, middle + reach
    wanted = 0.005 * ((-lb).clamp_min(0) * ub.clamp_min(0)).sum() / len(lb)
    terms = method.loss(batch)
    assert terms["stability"].item() == pytest.approx(wanted.item(), rel=1e-4)
    total, count = batch.notes["unstable_relu_1"]
    assert (total / count).item() == pytest.approx(((lb < 0) & (ub > 0)).sum().item() / len(lb))


def test_stability_on_a_part_of_the_batch_is_an_estimate_of_the_whole():
    net = network()
    whole = COLT(attack=SHORT)
    part = COLT(attack=SHORT, stability_images=0.5)
    all_images = whole.loss(batch_of(net, whole, n=8))["stability"].item()
    first_half = part.loss(batch_of(net, part, n=8))["stability"].item()
    assert first_half == pytest.approx(all_images, rel=0.2)
    assert first_half != all_images
    with pytest.raises(UsageError, match="stability_images"):
        COLT(stability_images=0.0)


@pytest.mark.parametrize("per_group", [True, False])
def test_the_medians_are_of_each_group_or_of_all(per_group):
    """At the third ReLU: before it at most one group is projected."""
    torch.manual_seed(0)
    net = nn.Sequential(
        Normalize([0.5], [0.25]), nn.Conv2d(1, 4, 5, 4), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(96, 20), nn.ReLU(), nn.Linear(20, 15), nn.ReLU(),
        nn.Linear(15, 10),
    )  # fmt: skip
    method = COLT(attack=SHORT, per_group=per_group)
    batch = batch_of(net, method, 2)
    found = method.outputs(batch).following

    def following(**knobs):
        chance = torch.Generator().manual_seed(1)
        bound = Cauchy(generator=chance, skip_stable=True, sampled=True, **knobs)
        out = bound(net[:7], Ball(batch.x, batch.eps))
        return out.lb, out.ub

    torch.testing.assert_close(found, following(per_group=per_group))
    assert not torch.allclose(found[1], following(per_group=not per_group)[1])
    assert not COLT().per_group  # what was measured before there was a choice


def test_the_last_stage_has_no_stability_term():
    net, method = network(), COLT(attack=SHORT)
    assert "stability" not in method.loss(batch_of(net, method, 2))
    assert "stability" not in COLT(attack=SHORT, stability=0.0).loss(
        batch_of(net, COLT(stability=0.0))
    )


def test_l1_counts_the_weights_that_the_stage_trains():
    net, method = network(), COLT(attack=SHORT, l1=0.01)
    trained = [net[1], net[3], net[6], net[8]]
    for stage, layers in ((0, trained), (1, trained[1:]), (2, trained[2:])):
        wanted = 0.01 * sum(layer.weight.abs().sum().item() for layer in layers)
        assert method.loss(batch_of(net, method, stage))["l1"].item() == pytest.approx(
            wanted, rel=1e-5
        )


def test_only_layers_behind_the_region_get_gradients():
    net, method = network(), MAAR(base=COLT(attack=SHORT, mix=2.0))
    sum(method.loss(batch_of(net, method, 2)).values()).backward()
    for index, layer in enumerate(net):
        for p in layer.parameters():
            assert (p.grad is not None and p.grad.any()) == (index >= 5)


def test_verified_error_is_attack_success_among_the_right_images():
    net, method = network(), COLT(attack=SHORT)
    y = answers()
    y[:3] = (y[:3] + 1) % 10
    batch = batch_of(net, method, y=y)
    out = method.outputs(batch)
    method.terms(batch, out)
    broken = out.worst[0][1].argmax(1) != y
    assert [v.item() for v in batch.notes["verified_error"]] == [broken[3:].sum().item(), 3]
    assert [v.item() for v in batch.notes["accuracy"]] == [3, 6]


def test_the_consistency_term_by_hand():
    nat = torch.tensor([[1.0, 0.0, -1.0]], dtype=torch.float64, requires_grad=True)
    worst = torch.tensor([[0.0, 0.5, 0.0]], dtype=torch.float64, requires_grad=True)
    p = [v / sum(map(torch.exp, nat[0])) for v in map(torch.exp, nat[0])]
    q = [v / sum(map(torch.exp, worst[0])) for v in map(torch.exp, worst[0])]
    kl = sum(a * (a / b).log() for a, b in zip(p, q, strict=True))
    found = consistency(nat, worst)
    assert found.item() == pytest.approx(kl.item(), rel=1e-12)
    grad_nat, grad_worst = torch.autograd.grad(found.sum(), (nat, worst))
    # d KL / d z_worst = q - p;  d KL / d z_nat_k = p_k (log(p_k / q_k) - KL)
    for k in range(3):
        assert grad_worst[0, k].item() == pytest.approx((q[k] - p[k]).item(), rel=1e-10)
        wanted = p[k] * ((p[k] / q[k]).log() - kl)
        assert grad_nat[0, k].item() == pytest.approx(wanted.item(), rel=1e-10)
    y = torch.tensor([1])
    assert image_weight("soft", nat, y).item() == pytest.approx(1 - p[1].item())


def test_hard_weights_are_soft_ones_where_the_network_is_certain():
    nat = torch.tensor([[200.0, 0.0, 0.0], [0.0, 200.0, 0.0]])
    y = torch.tensor([0, 0])
    soft, hard = image_weight("soft", nat, y), image_weight("hard", nat, y)
    assert soft.tolist() == hard.tolist() == [0.0, 1.0]
    assert image_weight("uniform", nat, y).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("weight", ["soft", "hard", "uniform"])
def test_the_whole_maar_objective_by_hand(weight):
    """CE(p(x), y) + CE(p(x'), y) + lam KL(p(x) || p(x')) w, on the logits that the base gave."""
    net = network()
    method = MAAR(lam=3.0, weight=weight, base=COLT(l1=0.0, stability=0.0, attack=SHORT))
    batch = batch_of(net, method)
    out = method.outputs(batch)
    total = sum(method.terms(batch, out).values())
    p, q = out.nat.double().softmax(1), out.worst[0][1].double().softmax(1)
    kl = (p * (p / q).log()).sum(1)
    right = p.gather(1, batch.y[:, None]).squeeze(1)
    w = {"soft": 1 - right, "hard": (p.argmax(1) != batch.y).double(), "uniform": right * 0 + 1}
    ce = -right.log().mean() - q.gather(1, batch.y[:, None]).log().mean()
    assert total.item() == pytest.approx((ce + 3 * (kl * w[weight]).mean()).item(), rel=1e-5)


@pytest.mark.parametrize("weight", ["soft", "hard", "uniform"])
def test_the_gradient_of_the_consistency_term_by_hand(weight):
    """Through both distributions and through w: with w' = -p_y (e_y - p) if soft, else 0,

    d / d z_nat = lam / n * sum over regions of share * (w p (log(p / q) - KL) + KL w')
    d / d z_worst = lam / n * share * w (q - p)
    """
    lam, shares, n = 3.0, (0.75, 0.25), 6
    method = MAAR(lam=lam, weight=weight, base=COLT(attack=SHORT))
    batch = batch_of(network(), method, n=n)
    chance = np.random.default_rng(0)
    logits = [chance.normal(scale=2.0, size=(n, 10)) for _ in range(3)]
    nat, *worst = (torch.tensor(z, requires_grad=True) for z in logits)
    y = batch.y = nat.argmax(1)
    y[: n // 2] = (y[: n // 2] + 1) % 10  # half of them misclassified
    out = LayerwiseOutputs(batch, list(zip(shares, worst, strict=True)), nat, label=y)
    found = torch.autograd.grad(method.terms(batch, out)["consistency"], (nat, *worst))

    p, *qs = (np.exp(z) / np.exp(z).sum(1, keepdims=True) for z in logits)
    e_y = np.eye(10)[y.numpy()]
    p_y, slope = (p * e_y).sum(1, keepdims=True), np.zeros_like(p)
    if weight == "soft":
        w, slope = 1 - p_y, -p_y * (e_y - p)
    else:
        w = np.ones((n, 1))
        w[n // 2 :] = weight == "uniform"
    by_hand = np.zeros_like(p)
    for share, q, grad in zip(shares, qs, found[1:], strict=True):
        kl = (p * np.log(p / q)).sum(1, keepdims=True)
        by_hand += lam / n * share * (w * p * (np.log(p / q) - kl) + kl * slope)
        np.testing.assert_allclose(grad.numpy(), lam / n * share * w * (q - p), atol=1e-13)
    np.testing.assert_allclose(found[0].numpy(), by_hand, atol=1e-13)


def test_maar_goes_around_any_method_with_a_worst_point():
    from maar.methods.pgd import PGDTraining

    net = network()
    method = MAAR(base=PGDTraining(attack=SHORT))
    terms = method.loss(batch_of(net, method))
    assert set(terms) == {"adversarial", "consistency"}
    assert method.score == "robust_accuracy"


def test_maar_around_itself_is_refused():
    with pytest.raises(UsageError, match="its own base"):
        MAAR(base=MAAR())


def test_maars_revision_is_its_own_and_its_bases(monkeypatch):
    """A correction of either makes another training; today's numbers are the bases' own."""
    for name in METHODS:
        base = METHODS[name]
        if base is not MAAR and base.has_worst:
            assert MAAR(base=base()).revision == base.revision
    monkeypatch.setattr(MAAR, "own_revision", 2)
    corrected = MAAR().revision
    assert corrected != COLT.revision
    monkeypatch.setattr(COLT, "revision", COLT.revision + 1)
    assert len({MAAR().revision, corrected, COLT.revision}) == 3


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_judge_counts_images_that_are_right_and_stay_right(stage):
    net, method = network(), COLT(attack=SHORT)
    batch = batch_of(net, method, stage, y=answers())
    net.eval()
    found = method.judge(batch)
    assert found["accuracy"].all()
    assert found["robust_accuracy"].dtype == torch.bool
    batch.eps = 1e-9
    assert method.judge(batch)["robust_accuracy"].all()


def test_outputs_compute_the_natural_logits_once():
    net = network()
    calls = []
    net.register_forward_hook(lambda *_: calls.append(1))
    out = Outputs(batch_of(net, COLT()))
    assert out.nat is out.nat
    assert len(calls) == 1
