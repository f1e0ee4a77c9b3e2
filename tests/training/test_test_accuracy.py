"""Accuracy on the test images by epoch: noted if asked for, and never chosen by."""

import dataclasses

from maar.config import config_hash, load
from maar.records.runs import read_run
from maar.training.trainer import train


def test_it_is_noted_for_each_epoch_and_changes_nothing(tmp_path):
    plain = dataclasses.replace(load("smoke"), threads=1, device="cpu")
    plain = dataclasses.replace(plain, train=dataclasses.replace(plain.train, epochs=2))
    noted = dataclasses.replace(plain, train=dataclasses.replace(plain.train, test_accuracy=True))
    assert config_hash(noted) == config_hash(plain)
    results = [train(config, tmp_path / name) for config, name in ((plain, "a"), (noted, "b"))]
    assert results[0]["model_sha256"] == results[1]["model_sha256"]
    without, lines = (read_run(tmp_path / name).metrics for name in "ab")
    assert not any("test" in line for line in without)
    assert len(lines) == 2
    # (the last epoch's is that of the finished network)
    assert lines[-1]["test"]["accuracy"] == results[1]["test"]["accuracy"]
    # the best weights of a stage are still chosen on validation images
    assert (tmp_path / "b" / "checkpoints" / "stage-1-best.safetensors").read_bytes() == (
        tmp_path / "a" / "checkpoints" / "stage-1-best.safetensors"
    ).read_bytes()
