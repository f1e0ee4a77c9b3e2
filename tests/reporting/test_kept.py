"""What an experiment's file has kept of epochs, in whatever condition."""

import json

import pytest

from maar.reporting.build import make_report
from maar.reporting.collect import collect

SERIES = {
    "stage": [1, 1, 2],
    "epoch": [1, 2, 1],
    "verified_error": [0.3, None, 0.1],
    "accuracy": [0.7, 0.8, 0.9],
    "accuracy_of": "train",
}
ROW = {
    "setting": "mnist-0.1",
    "system": "COLT",
    "data": "mnist",
    "eps": "0.1",
    "seeds": [0],
    "runs": ["runs/colt-seed0"],
    "epochs": [SERIES],
}


@pytest.fixture
def figures_of(tmp_path):
    def make(**changes):
        path = tmp_path / "fig2.json"
        path.write_text(json.dumps({"kind": "training", "rows": [{**ROW, **changes}]}))
        return {figure.id: figure for figure in make_report(collect([path])).figures()}

    return make


def test_curves_with_stages_behind_them(figures_of):
    found = figures_of()
    figure = found["fig2-curve-verified-error"]
    assert figure.title == "Verified error (mnist, eps 0.1, 2 stages)"
    assert [(band.start, band.end) for band in figure.bands] == [(0.5, 2.5), (2.5, 3.5)]
    (one,) = figure.series
    assert (one.name, one.group, one.x) == ("colt-seed0", "COLT", (1, 2, 3))
    assert one.y == (0.3, None, 0.1)
    assert found["fig2-stages-training-accuracy"].series[0].y == (0.8, 0.9)


def test_accuracy_says_of_which_images_it_is(figures_of):
    assert "fig2-curve-training-accuracy" in figures_of()
    of_valid = figures_of(epochs=[{**SERIES, "accuracy_of": "valid"}])
    assert "fig2-curve-accuracy" in of_valid
    assert "fig2-curve-training-accuracy" not in of_valid


@pytest.mark.parametrize(
    "epochs",
    [
        None,
        3,
        [],
        [None],
        [{}],
        [{**SERIES, "stage": [1, 1]}],
        [{**SERIES, "stage": "xyz"}],
        [{**SERIES, "epoch": [None] * 3}],
        [{**SERIES, "accuracy": [0.5]}],
    ],
)
def test_what_does_not_fit_together_is_not_drawn(figures_of, epochs):
    assert figures_of(epochs=epochs) == {}
