"""`maar.certify` and `maar.radius` on tensors."""

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import maar
from maar.core.errors import UsageError
from maar.records.stores import VERDICT_LINES


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 12), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(12, 3)
    ).eval()


@pytest.fixture(scope="module")
def images(model):
    x = torch.rand(8, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        y = model(x).argmax(1)
    y[3] = (y[3] + 1) % 3
    return x, y


@pytest.fixture(scope="module")
def result(model, images):
    return maar.certify(model, *images, eps=0.02, timeout=20, workers=1)


def test_each_image_has_one_verdict(result, images):
    masks = [
        getattr(result, name) for name in ("verified", "falsified", "unknown", "misclassified")
    ]
    assert torch.stack(masks).sum(0).tolist() == [1] * len(images[0])
    assert result.misclassified.tolist() == [index == 3 for index in range(8)]
    assert result.verified.any()


def test_a_verified_image_withstands_an_attack(model, images, result):
    x, y = images
    attacked = maar.attack(model, x, y, 0.02, steps=30, restarts=3, targeted=True)
    assert not (attacked.success & result.verified).any()
    assert (attacked.x_adv - x).abs().max() <= 0.02


def test_a_counterexample_is_one(model, images):
    x, y = images
    result = maar.certify(model, x, y, eps=0.5, workers=1, timeout=20)
    assert result.falsified.any()
    for image in result:
        if image.verdict == "falsified":
            assert (image.counterexample - x[image.index]).abs().max() <= 0.5
            assert model(image.counterexample[None]).argmax(1) != y[image.index]
            assert image.margin < 0


def test_bounds_of_a_verified_image_are_positive(result):
    image = next(image for image in result if image.verdict == "verified")
    assert len(image.bounds) == 2
    assert min(image.bounds.values()) > 0


def test_shares_and_text(result):
    assert result.certified == result.verified.float().mean()
    assert result.accuracy == 7 / 8
    assert result.certified <= result.upper_bound <= 1
    assert "8 images at eps 0.02" in repr(result)
    assert "verified" in str(result)
    assert result._repr_html_().startswith("<pre>")


def test_save_writes_what_the_command_writes(result, tmp_path):
    folder = result.save(tmp_path / "certs")
    records = VERDICT_LINES.read(folder).lines
    assert [record["verdict"] for record in records] == [image.verdict for image in result]
    assert (folder / "summary.json").exists()
    result.save(folder)  # the same question again
    assert VERDICT_LINES.read(folder).lines == records


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"eps": -1}, ["eps = -1"]),
        ({"timeout": 0}, ["timeout = 0"]),
        ({"preset": "fats"}, ["preset", "fats", "fast"]),
        ({"y": torch.zeros(3)}, ["y", "whole numbers"]),
        ({"x": torch.rand(8, 1, 5, 5)}, ["25", "16"]),
        ({"x": torch.zeros(8, 1, 4, 4, dtype=torch.uint8)}, ["x", "uint8"]),
        ({"model": 3}, ["model", "int", "nn.Module"]),
    ],
)
def test_a_wrong_argument_is_named(model, images, arguments, words):
    given = {"model": model, "x": images[0], "y": images[1], "eps": 0.1, **arguments}
    with pytest.raises(maar.UsageError) as caught:
        maar.certify(**given)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "--" not in str(caught.value)


def test_radius(model, images):
    x, y = images
    radii = maar.radius(model, x[:4], y[:4], largest=0.2, tolerance=0.02, timeout=10, workers=1)
    assert radii.verdicts[3] == "misclassified"
    assert radii.lower[3] == 0
    assert bool((radii.lower <= radii.upper).all())
    sure = maar.certify(model, x[:3], y[:3], eps=float(radii.lower[:3].min()), workers=1)
    assert sure.verified.all()


SCRIPT = """
    import torch, maar
    from torch import nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    x = torch.rand(60, 1, 2, 2)
    y = net(x).argmax(1)
    print("begin")
    print(int(maar.certify(net, x, y, eps=0.001, workers=2).verified.sum()))
"""


@pytest.mark.parametrize("way", ["file", "stdin"])
def test_workers_need_no_main_guard(tmp_path, way):
    script = textwrap.dedent(SCRIPT)
    path = tmp_path / "script.py"
    path.write_text(script)
    command = [sys.executable, str(path)] if way == "file" else [sys.executable, "-"]
    done = subprocess.run(
        command,
        input=script if way == "stdin" else None,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, count = done.stdout.split()
    assert first == "begin"  # once: the workers did not run the script again
    assert int(count) > 50


def test_a_network_in_float64_is_refused_in_a_line():
    net = nn.Sequential(nn.Linear(2, 2)).double()
    with pytest.raises(UsageError, match=r"type torch.float64 \(accepted: torch.float32\)"):
        maar.certify(net, torch.full((1, 2), 0.5), [0], 0.1, workers=1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_images_that_are_no_numbers_are_refused(model, images, value):
    x, y = images[0].clone(), images[1]
    x[0, 0, 0, 0] = value
    with pytest.raises(UsageError, match="x has values that are NaN or infinite"):
        maar.certify(model, x, y, eps=0.02)
