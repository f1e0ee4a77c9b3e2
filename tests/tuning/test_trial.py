"""A trial cannot look at test images, and leaves its score."""

import dataclasses

import pytest

from maar.config import load
from maar.core.errors import UsageError
from maar.core.unpacking import read_json
from maar.tuning.study import check
from maar.tuning.trial import Asked, carry_out, curve, data_of, lay_out, score_of

SMALL = dataclasses.replace(load("smoke"), threads=1, device="cpu")
ASKED = Asked(images=5, preset="fast", timeout=5)


def test_a_trial_has_no_test_images():
    data = data_of(SMALL)
    assert data.size("test") == 0
    assert (data.size("valid"), data.name) == (100, "mnist_mini")
    with pytest.raises(UsageError, match="no test images"):
        data.images("test")


def test_test_images_never_reach_training_or_certification(tmp_path, monkeypatch):
    """Every data set that anyone is handed is without them."""
    from maar.data import DataSet

    seen = []
    for name in ("images", "labels"):
        original = getattr(DataSet, name)

        def watched(self, split, index=None, original=original):
            seen.append((split, self.size("test")))
            return original(self, split, index)

        monkeypatch.setattr(DataSet, name, watched)
    lay_out(tmp_path, SMALL, ASKED)
    carry_out(tmp_path)
    assert {split for split, _ in seen} == {"train", "valid"}
    assert {size for _, size in seen} == {0}
    score = score_of(tmp_path)
    assert score["accuracy_images"] == 100
    assert score["certified_images"] == 5
    assert 0 <= score["certified"] <= score["certified_upper"] <= 1
    assert [part for part, _ in curve(tmp_path)] == [1.0]
    result = read_json(tmp_path / "run" / "result.json")
    assert (result["test"], result["valid"]["accuracy"]) == ({}, score["accuracy"])


def test_without_validation_images_there_is_nothing_to_tune_on():
    with pytest.raises(UsageError, match="valid = 0 leaves nothing"):
        check(dataclasses.replace(SMALL, valid=0), ASKED)
    with pytest.raises(UsageError, match="--images 5 is more than the 4"):
        check(dataclasses.replace(SMALL, valid=4), ASKED)
