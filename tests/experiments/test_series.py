"""Epochs in few numbers."""

from maar.experiments.series import series


def line(**parts):
    return {"stage": 1, "epoch": 1, **parts}


def test_numbers_are_short_and_gaps_stay_gaps():
    lines = [
        line(train={"verified_error": 1 / 3, "accuracy": 0.5}, valid={"accuracy": 2 / 3}),
        line(train={"verified_error": "NaN"}, valid=None),
    ]
    assert series(lines) == {
        "stage": [1, 1],
        "epoch": [1, 1],
        "verified_error": [0.33333, None],
        "accuracy": [0.66667, None],
        "accuracy_of": "valid",
    }


def test_without_validation_images_accuracy_is_of_training_images():
    found = series([line(train={"accuracy": 0.5})])
    assert (found["accuracy"], found["accuracy_of"]) == ([0.5], "train")


def test_accuracy_is_of_the_test_images_where_every_epoch_has_noted_it():
    lines = [
        line(valid={"accuracy": 0.5}, test={"accuracy": 0.4}),
        line(valid={"accuracy": 0.6}, test={"accuracy": 0.45}),
    ]
    found = series(lines)
    assert (found["accuracy"], found["accuracy_of"]) == ([0.4, 0.45], "test")
    del lines[0]["test"]
    found = series(lines)
    assert (found["accuracy"], found["accuracy_of"]) == ([0.5, 0.6], "valid")


def test_without_an_epoch_there_is_nothing():
    assert series([]) == {}
