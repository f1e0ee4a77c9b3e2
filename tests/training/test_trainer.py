"""The loop: stages, frozen prefix, schedules, metrics, and what it refuses."""

import dataclasses
import json

import pytest
import torch
from torch import nn

from maar.config import TrainConfig
from maar.core.errors import RunError, UsageError
from maar.data import load as load_data
from maar.methods.standard import Standard
from maar.networks import make
from maar.records.runs import read_run
from maar.training.checkpoint import load_weights
from maar.training.run import load_network
from maar.training.seeds import derive
from maar.training.trainer import train


def replaced(config, **values):
    """The configuration with settings of its `train` table changed."""
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **values))


def test_a_run_leaves_everything_that_describes_it(tiny_pgd, tmp_path):
    result = train(tiny_pgd, tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        ".lock",
        "checkpoints",
        "config.toml",
        "env.json",
        "log.txt",
        "metrics.jsonl",
        "model.safetensors",
        "result.json",
    }
    env = json.loads((tmp_path / "run" / "env.json").read_text())
    assert env["threads"] == 1
    assert env["torch"] == torch.__version__
    assert {"maar", "python", "numpy", "commit", "seed", "device", "cpu", "started"} <= set(env)
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    assert set(result["test"]) == {"accuracy", "robust_accuracy"}
    assert 0 <= result["test"]["robust_accuracy"] <= result["test"]["accuracy"] <= 1


def test_metrics_have_a_line_per_epoch_with_stage_terms_and_schedules(tiny, tmp_path):
    train(tiny, tmp_path / "run")
    lines = read_run(tmp_path / "run").metrics
    assert [(line["stage"], line["epoch"], line["step"]) for line in lines] == [
        (1, 1, 6),
        (1, 2, 12),
        (2, 1, 18),
        (2, 2, 24),
    ]
    for line in lines:
        loss = line["loss"]
        assert set(loss) == {"total", "noisy", "clean", "scale"}
        assert loss["total"] == pytest.approx(loss["noisy"] + loss["clean"] + loss["scale"])
        assert set(line["train"]) == {"accuracy"}
        assert set(line["valid"]) == {"accuracy"}
    # The scheduled numbers of the last step of an epoch: t = 5/6 and 1 + 5/6.
    assert lines[0]["eps"] == pytest.approx(0.1 * 5 / 6)
    assert lines[1]["eps"] == 0.1
    assert "kappa" not in lines[0]
    assert lines[2]["kappa"] == pytest.approx(5 / 6)
    assert lines[3]["kappa"] == 1


def test_a_stage_scales_the_learning_rate(tiny, tmp_path):
    train(replaced(tiny, lr_schedule="constant"), tmp_path / "run")
    assert [line["lr"] for line in read_run(tmp_path / "run").metrics] == [1e-2, 1e-2, 5e-3, 5e-3]


def test_the_frozen_prefix_does_not_move_by_one_bit(tiny, tmp_path):
    train(replaced(tiny, weight_decay=0.1), tmp_path / "run")
    first, _ = load_weights(tmp_path / "run" / "checkpoints" / "stage-1-last.safetensors")
    last, _ = load_weights(tmp_path / "run" / "checkpoints" / "stage-2-last.safetensors")
    net, _ = load_network(tmp_path / "run")
    frozen = next(i for i, layer in enumerate(net) if isinstance(layer, nn.ReLU)) + 1
    prefix = [key for key in first if int(key.split(".")[0]) < frozen]
    weights = [key for key in prefix if key.endswith("weight")]
    assert weights
    assert all(torch.equal(first[key], last[key]) for key in prefix)
    moved = [key for key in first if key not in prefix]
    assert all(not torch.equal(first[key], last[key]) for key in moved)


def own_network(folder):
    """A network with BatchNorm in a file of the user's own."""
    (folder / "mine.py").write_text(
        "from torch import nn\n"
        "from maar.networks import Normalize\n"
        "def net(shape, classes, mean, std):\n"
        "    return nn.Sequential(Normalize(mean, std), nn.Conv2d(shape[0], 4, 3),\n"
        "        nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, classes))\n"
    )
    return f"{folder / 'mine.py'}:net"


def test_a_frozen_batchnorm_keeps_its_statistics(tiny, tmp_path):
    train(dataclasses.replace(tiny, network=own_network(tmp_path)), tmp_path / "run")
    first, _ = load_weights(tmp_path / "run" / "checkpoints" / "stage-1-last.safetensors")
    last, _ = load_weights(tmp_path / "run" / "checkpoints" / "stage-2-last.safetensors")
    statistics = [key for key in first if "running" in key]
    assert statistics
    assert all(torch.equal(first[key], last[key]) for key in statistics)
    # In the first stage they did move: 12 batches, two forward passes each.
    assert int(first["2.num_batches_tracked"]) == 24


def test_an_attack_leaves_batchnorm_alone(tiny_pgd, tmp_path):
    train(dataclasses.replace(tiny_pgd, network=own_network(tmp_path)), tmp_path / "run")
    last, _ = load_weights(tmp_path / "run" / "model.safetensors")
    assert int(last["2.num_batches_tracked"]) == 12  # one pass per step, none for the attack


def test_convolutions_train_with_the_channels_innermost_and_are_saved_as_usual(
    tiny, tmp_path, monkeypatch
):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def net(shape, classes, mean, std):\n"
        "    return nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.Conv2d(4, 4, 3), nn.ReLU(),\n"
        "        nn.Flatten(), nn.Linear(16, classes))\n"
    )
    seen, loss = [], type(tiny.method).loss

    def watched(self, batch):
        seen.append(batch.net[1].weight.stride())
        assert batch.x.is_contiguous(memory_format=torch.channels_last)
        return loss(self, batch)

    monkeypatch.setattr(type(tiny.method), "loss", watched)
    config = dataclasses.replace(tiny, network=f"{tmp_path / 'mine.py'}:net")
    train(config, tmp_path / "run")
    there = torch.empty(4, 4, 3, 3).contiguous(memory_format=torch.channels_last).stride()
    assert set(seen) == {there}
    weights, _ = load_weights(tmp_path / "run" / "model.safetensors")
    assert weights["1.weight"].is_contiguous()
    net, _ = load_network(tmp_path / "run")
    assert torch.equal(net[1].weight, weights["1.weight"])


def test_a_users_own_network_is_kept_in_the_run(tiny_pgd, tmp_path):
    config = dataclasses.replace(tiny_pgd, network=own_network(tmp_path))
    train(config, tmp_path / "run")
    (tmp_path / "mine.py").unlink()
    net, loaded = load_network(tmp_path / "run")
    assert isinstance(net[1], nn.Conv2d)
    assert loaded.network == config.network


def test_load_network_gives_the_trained_function(tiny_pgd, tmp_path):
    result = train(tiny_pgd, tmp_path / "run")
    net, config = load_network(tmp_path / "run")
    assert not net.training
    assert config.train == tiny_pgd.train
    data = load_data(tiny_pgd.data)
    right = (net(data.images("test")).argmax(1) == data.labels("test")).float().mean()
    assert float(right) == pytest.approx(result["test"]["accuracy"])


def test_load_network_needs_no_data(tiny_pgd, tmp_path):
    train(tiny_pgd, tmp_path / "run")
    text = (tmp_path / "run" / "config.toml").read_text()
    (tmp_path / "run" / "config.toml").write_text(text.replace("tiny.npz", "gone.npz"))
    load_network(tmp_path / "run")


def test_the_best_weights_of_a_stage_are_kept(tiny_pgd, tmp_path):
    """They are those of the best epoch: a run of constant lr that is stopped there has them."""
    config = replaced(tiny_pgd, epochs=4, lr=3e-3, lr_schedule="constant", checkpoint_every=4)
    train(config, tmp_path / "whole")
    scores = [line["valid"]["robust_accuracy"] for line in read_run(tmp_path / "whole").metrics]
    best = scores.index(max(scores)) + 1
    assert best < 4  # else the last weights would do
    train(replaced(config, epochs=best), tmp_path / "stopped")
    kept, _ = load_weights(tmp_path / "whole" / "checkpoints" / "stage-1-best.safetensors")
    there, _ = load_weights(tmp_path / "stopped" / "model.safetensors")
    assert all(torch.equal(kept[key], there[key]) for key in kept)


def test_without_validation_there_is_no_best(tiny_pgd, tmp_path):
    train(dataclasses.replace(tiny_pgd, valid=0), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints" / "stage-1-best.safetensors").exists()
    assert all("valid" not in line for line in read_run(tmp_path / "run").metrics)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(tiny_pgd, tmp_path):
    def weights(name, seed):
        train(dataclasses.replace(tiny_pgd, seed=seed), tmp_path / name)
        return (tmp_path / name / "model.safetensors").read_bytes()

    one = weights("one", 3)
    assert weights("two", 3) == one
    assert weights("three", 4) != one


def test_training_leaves_torchs_own_random_state_and_threads_alone(tiny, tmp_path, monkeypatch):
    before, threads, asked = torch.random.get_rng_state(), torch.get_num_threads(), []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    train(dataclasses.replace(tiny, threads=3), tmp_path / "run")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert asked == [3, threads]


def test_one_step_is_what_it_says(images, tmp_path, tiny):
    """A whole run of one step against the same step by hand."""
    config = dataclasses.replace(
        tiny,
        valid=0,
        method=Standard(),
        train=TrainConfig(
            epochs=1, batch=120, optimizer="sgd", lr=0.5, lr_schedule="constant", clip=0.01
        ),
    )
    train(config, tmp_path / "run")
    data = load_data(images)
    info = data.info
    net = make("mlp", info.shape, 3, info.mean, info.std, seed=derive(0, "network"))
    nn.functional.cross_entropy(net(data.images("train")), data.labels("train")).backward()
    norm = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None]).norm()
    assert norm > 0.01
    trained, _ = load_network(tmp_path / "run")
    for before, after in zip(net.parameters(), trained.parameters(), strict=True):
        assert before.grad is not None
        expected = before - 0.5 * 0.01 / norm * before.grad
        assert torch.allclose(after, expected, atol=1e-6)


def test_a_loss_that_is_not_finite_stops_the_run_with_one_line(tiny_pgd, tmp_path):
    with pytest.raises(RunError, match=r"not finite in stage 1, epoch \d, step \d+ .*--lr"):
        train(replaced(tiny_pgd, lr=1e30, lr_schedule="constant"), tmp_path / "run")


def test_a_batch_larger_than_the_data_is_refused_and_leaves_no_folder(tiny_pgd, tmp_path):
    with pytest.raises(UsageError, match="batch = 101 is more than the 100 training images"):
        train(replaced(tiny_pgd, batch=101), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_device_that_is_not_there_is_refused(tiny_pgd, tmp_path):
    with pytest.raises(UsageError, match="device 'cuda:99' is not there"):
        train(dataclasses.replace(tiny_pgd, device="cuda:99"), tmp_path / "run")


def test_data_without_test_images_can_be_trained_on(tiny_pgd, tmp_path):
    import numpy as np

    with np.load(tiny_pgd.data.removeprefix("npz:")) as file:
        np.savez(
            tmp_path / "t.npz", x_train=file["x_train"], y_train=file["y_train"], layout="NCHW"
        )
    result = train(
        dataclasses.replace(tiny_pgd, data=f"npz:{tmp_path / 't.npz'}"), tmp_path / "run"
    )
    assert result["test"] == {}
