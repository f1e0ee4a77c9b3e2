"""Runs with known numbers, and what the report says of them."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from maar.reporting.build import make_report
from maar.reporting.collect import collect
from maar.reporting.gallery import difference
from maar.reporting.model import Figure, Table
from maar.reporting.systems import systems


def block(report, id: str):
    for section in report.sections:
        for found in section.blocks:
            if found.id == id:
                return found
    raise AssertionError(f"no block {id}")


def column(table: Table, name: str) -> list[str]:
    place = [column.name for column in table.columns].index(name)
    return [row[place].text for row in table.rows]


@pytest.fixture
def seeds(tmp_path, make_run, make_store):
    """Two seeds of one system, and another lam; the first seed certified at both stages."""
    for seed in (0, 1):
        run = make_run(tmp_path / f"maar-seed{seed}", seed=seed)
        verdicts = {"verified": 5 + seed, "falsified": 2, "misclassified": 1, "unknown": 2 - seed}
        make_store(run / "certify" / "eps-0.1-aa", verdicts, network=run.name)
    make_store(
        tmp_path / "maar-seed0" / "certify" / "eps-0.1-bb",
        {"verified": 4, "falsified": 6},
        weights="stage-1-last",
    )
    make_store(
        tmp_path / "maar-seed0" / "certify" / "eps-0.2-cc", {"verified": 1, "unknown": 9}, eps=0.2
    )
    other = make_run(tmp_path / "maar-lam-2-seed0", lam=2.0)
    make_store(other / "certify" / "eps-0.1-dd", {"verified": 3, "unknown": 7}, network=other.name)
    return tmp_path


def test_results_are_means_over_seeds_with_their_evidence(seeds):
    report = make_report(collect([seeds]))
    table = block(report, "results")
    assert column(table, "system") == ["maar-lam-2", "maar", "maar"]
    assert column(table, "eps") == ["0.1", "0.1", "0.2"]
    assert column(table, "CR") == ["30.00", "55.00 ± 7.07", "10.00"]
    assert column(table, "ACC (all)") == ["90.00", "90.50 ± 0.71", "90.50 ± 0.71"]
    assert column(table, "ACC") == ["100.00", "90.00 ± 0.00", "100.00"]  # of those certified
    assert column(table, "upper bound") == ["100.00", "70.00 ± 0.00", "100.00"]
    assert len(set(column(table, "training"))) == 1  # of a run, however many seeds there are
    evidence = table.rows[1][6].evidence
    assert (evidence.images, evidence.of, evidence.seeds) == (10, 10_000, (0, 1))
    assert evidence.preset == "complete"
    assert evidence.verifiers == ("misclassified", "crown", "pgd")
    assert evidence.seconds == pytest.approx(27.0)
    assert "maar-seed1" in evidence.source


def test_the_same_seed_again_is_no_further_sample(tmp_path, make_run):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    table = block(make_report(collect([tmp_path])), "results")
    assert column(table, "seeds") == ["1", "1"]


def test_curves_have_the_stages_behind_them(seeds):
    figure = block(make_report(collect([seeds])), "curve-verified-error")
    assert [(band.start, band.end, band.label) for band in figure.bands] == [
        (0.5, 2.5, "stage 1"),
        (2.5, 4.5, "stage 2"),
    ]
    one = next(series for series in figure.series if series.name == "maar-seed1")
    assert one.x == (1, 2, 3, 4)
    assert one.y == pytest.approx((0.189, 0.179, 0.089, 0.079))
    assert "no verifier" in figure.caption


def test_a_short_stage_has_room_for_its_number_alone(tmp_path, make_run):
    make_run(tmp_path / "a", epochs=(20, 2, 1), done=23)
    figure = block(make_report(collect([tmp_path])), "curve-loss")
    assert [band.label for band in figure.bands] == ["stage 1", "2", "3"]


def test_stages_of_unequal_length_are_stretched(tmp_path, make_run):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", seed=1, lam=1.0, epochs=(1, 4), done=3)
    figure = block(make_report(collect([tmp_path])), "curve-loss")
    assert [band.end for band in figure.bands] == [1, 2]
    assert [series.x for series in figure.series] == [(0.5, 1, 1.5, 2), (1, 1.25, 1.5)]
    assert [series.is_dashed for series in figure.series] == [False, True]


def test_cr_over_eps(seeds):
    figure = block(make_report(collect([seeds])), "cr-over-eps")
    one = next(series for series in figure.series if series.name == "maar")
    assert one.x == ("0.1", "0.2")
    assert one.y == pytest.approx((0.55, 0.1))
    assert one.low == pytest.approx((0.55 - 0.0707, 0.1), abs=1e-4)
    # of a single certification, up to what is not disproved
    assert one.high == pytest.approx((0.55 + 0.0707, 1.0), abs=1e-4)


def test_over_lam(seeds):
    figure = block(make_report(collect([seeds])), "lambda")
    robust = figure.series[0]
    assert (robust.name, robust.x) == ("CR", (2.0, 6.0))
    assert robust.y == pytest.approx((0.3, 0.55))


def test_stages(seeds):
    report = make_report(collect([seeds]))
    table = block(report, "stages")
    rows = [row for row in table.rows if row[0].text == "maar"]
    assert [row[2].text for row in rows] == ["1", "2"]
    assert [row[7].text for row in rows] == ["40.00", "55.00 ± 7.07"]
    assert [row[5].text for row in rows] == ["17.95 ± 0.07", "7.95 ± 0.07"]
    figure = block(report, "stages-cr")
    assert [series.name for series in figure.series] == ["maar"]
    assert figure.series[0].y == pytest.approx((0.4, 0.55))


def test_without_validation_images_accuracy_is_of_training_images(tmp_path, make_run):
    make_run(tmp_path / "split-seed0")
    make_run(tmp_path / "all-seed0", lam=2.0, has_valid=False)
    report = make_report(collect([tmp_path]))
    for by in ("curve", "stages"):
        own, other = block(report, f"{by}-accuracy"), block(report, f"{by}-training-accuracy")
        assert ([s.group for s in own.series], [s.group for s in other.series]) == (
            ["split"],
            ["all"],
        )
        assert "training images" in other.title
        assert "no validation images" in other.caption
        assert other.y.label == "accuracy on training images"
    assert block(report, "curve-training-accuracy").series[0].y == pytest.approx(
        (0.76, 0.77, 0.86, 0.87)
    )
    assert block(report, "stages-training-accuracy").series[0].y == pytest.approx((0.77, 0.87))
    table = block(report, "stages")
    assert column(table, "accuracy") == ["", "", "82.00", "92.00"]
    assert column(table, "training accuracy") == ["77.00", "87.00", "", ""]


def test_with_validation_images_nothing_is_said_of_training_images(seeds):
    report = make_report(collect([seeds]))
    assert not any("training-accuracy" in figure.id for figure in report.figures())
    names = [column.name for column in block(report, "stages").columns]
    assert "training accuracy" not in names


def test_latent_robustness_of_a_stage(tmp_path, make_run):
    run = make_run(tmp_path / "a")
    content = {"weights": "stage-1-last", "images": 100, "of": 10_000, "split": "test"}
    content |= {"latent_robustness": {"0": 0.9, "3": 0.7, "4": 0.6}, "attack": {"steps": 150}}
    (run / "evaluate-stage-1-last.json").write_text(json.dumps(content))
    table = block(make_report(collect([tmp_path])), "stages")
    assert column(table, "LR") == ["70.00", ""]
    assert "ReLU 3" in table.rows[0][8].evidence.preset


@pytest.mark.parametrize("other", [{"eps": 0.3}, {"split": "train"}, {"data": "cifar10"}])
def test_latent_robustness_of_another_question_is_not_shown(tmp_path, make_run, other):
    run = make_run(tmp_path / "a")
    content = {"weights": "stage-1-last", "images": 100, "of": 10_000, "split": "test"}
    content |= {"latent_robustness": {"3": 0.7}, "eps": 0.1, "data": "mnist"}
    (run / "evaluate-stage-1-last.json").write_text(json.dumps(content))
    more = {**content, "images": 200, "latent_robustness": {"3": 0.2}, **other}
    (run / "evaluate-stage-1-last-more.json").write_text(json.dumps(more))
    table = block(make_report(collect([tmp_path])), "stages")
    assert column(table, "LR") == ["70.00", ""]


def test_runs_of_another_revision_of_their_method_are_another_system(tmp_path, make_run):
    for seed, revision in enumerate((1, 2, 2)):
        run = make_run(tmp_path / f"a-seed{seed}", seed=seed)
        (run / "env.json").write_text(json.dumps({"revision": revision}))
    assert [len(system.runs) for system in systems(collect([tmp_path]).runs)] == [1, 2]


def test_the_cascade_adds_up(seeds):
    figure = block(make_report(collect([seeds])), "cascade-images")
    for place in range(len(figure.series[0].x)):
        assert sum(series.y[place] for series in figure.series) == pytest.approx(1)
    assert [series.name for series in figure.series] == ["misclassified", "crown", "pgd", "nobody"]


def test_certifications_of_one_radius_do_not_share_a_bar(tmp_path, make_run, make_store):
    run = make_run(tmp_path / "maar-seed0")
    for key, preset in (("aa", ""), ("bb", ""), ("cc", "complete"), ("dd", "fast")):
        make_store(run / "certify" / f"eps-0.1-{key}", {"verified": 5}, preset=preset)
    report = make_report(collect([tmp_path]))
    figure = block(report, "cascade-images")
    own = "eps 0.1, misclassified+crown+pgd"
    assert list(figure.series[0].x) == [
        f"maar-seed0 ({own}, aa)",
        f"maar-seed0 ({own}, bb)",
        "maar-seed0 (eps 0.1)",
        "maar-seed0 (eps 0.1, fast)",
    ]
    assert set(column(block(report, "cascade"), "certification")) == set(figure.series[0].x)


def test_a_seed_that_was_not_certified_counts_for_accuracy_alone(seeds):
    table = block(make_report(collect([seeds])), "results")
    assert column(table, "seeds") == ["1", "2", "1 of 2"]


def test_settings_of_one_method_alone_are_not_unusual(tmp_path, make_run):
    for name, seed in (("a", 0), ("b", 1), ("c", 2)):
        run = make_run(tmp_path / name, seed=seed)
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("lam = 6.0", "alpha = 0.5"))
    table = block(make_report(collect([tmp_path])), "runs")
    place = [column.name for column in table.columns].index("differs in")
    assert [row[place].chips for row in table.rows] == [(), (), ()]


def test_counterexamples(seeds):
    gallery = block(make_report(collect([seeds])), "counterexamples")
    of_one = [item for item in gallery.items if item.evidence.source.endswith("bb")]
    assert [item.index for item in of_one] == [9, 8, 7, 6, 5, 4]  # the largest margins first
    item = of_one[0]
    assert item.label == "7"
    assert dict(item.facts) == {
        "answer": "9",
        "margin": "-0.1",
        "eps": "0.1",
        "found by": "pgd",
        "weights": "stage-1-last",
    }
    # the final weights come first
    assert "weights" not in dict(gallery.items[0].facts)
    assert [picture.caption for picture in item.pictures] == [
        "clean",
        "adversarial",
        "difference x10",
    ]
    assert all(picture.uri.startswith("data:image/png;base64,") for picture in item.pictures)
    assert (item.pictures[0].width, item.pictures[0].height) == (5, 4)


@pytest.mark.parametrize("harm", ["gone", "damaged", "pickle", "flat"])
def test_a_counterexample_that_cannot_be_shown(tmp_path, make_store, harm):
    path = make_store(tmp_path / "s", {"falsified": 2}) / "counterexamples" / "0.npz"
    if harm == "gone":
        path.unlink()
    elif harm == "damaged":
        path.write_bytes(path.read_bytes()[:50])
    elif harm == "pickle":
        np.savez(path, x=np.array([{}]), x_adv=np.array([{}]))
    else:
        np.savez(path, x=np.zeros(4), x_adv=np.zeros(4))
    report = make_report(collect([tmp_path]))
    assert [item.index for item in block(report, "counterexamples").items] == [1]
    assert any("0.npz" in notice.text for notice in report.notices)


def test_the_least_robust_come_first(tmp_path, make_radii):
    make_radii(tmp_path / "radius-aa", {0.3: 0.31, 0.00239: 0.00311, 0.5: None, 0.0: 0.001})
    report = make_report(collect([tmp_path]))
    items = block(report, "least-robust").items
    assert [item.index for item in items] == [1, 0]
    facts = dict(items[0].facts)
    # each rounded to its own side
    assert facts["proved up to"] == "0.0023 by crown"
    assert facts["broken at"] == "0.0032 by pgd"
    assert items[0].label == "cat (3)"
    proved, unbroken = block(report, "radii").series
    assert proved.y[0] == 1.0
    assert all(a <= b for a, b in zip(proved.y, unbroken.y, strict=True))


def test_runs_with_what_they_differ_in(seeds):
    report = make_report(collect([seeds]))
    table = block(report, "runs")
    place = [column.name for column in table.columns].index("differs in")
    # most runs have lam = 6
    assert [row[place].chips for row in table.rows] == [("method.lam = 2.0",), (), ()]
    assert column(table, "seed") == ["0", "0", "1"]
    differences = block(report, "config-differences")
    assert column(differences, "setting") == ["seed", "method.lam"]


def test_half_finished_runs_are_said_to_be_so(tmp_path, make_run, make_store):
    run = make_run(tmp_path / "half", done=3)
    make_store(run / "certify" / "eps-0.1-aa", {"verified": 1}, summary=False, split="valid")
    report = make_report(collect([tmp_path]))
    texts = " | ".join(notice.text for notice in report.notices)
    assert "half: not finished" in texts
    assert "certification in progress" in texts
    assert "validation images" in texts
    assert column(block(report, "runs"), "stage") == ["2 of 2"]


def test_stages_not_reached_have_no_row(tmp_path, make_run):
    make_run(tmp_path / "half", done=1)
    assert column(block(make_report(collect([tmp_path])), "stages"), "stage") == ["1"]


def test_bars_over_a_single_radius_are_left_out(tmp_path, make_store):
    make_store(tmp_path / "s", {"verified": 4})
    figures = make_report(collect([tmp_path])).figures()
    assert not [figure for figure in figures if figure.id.startswith("cr-over-eps")]


def test_a_part_of_the_images_is_said_to_be_one(tmp_path, make_store):
    make_store(tmp_path / "s", {"verified": 4})
    (notice,) = make_report(collect([tmp_path])).notices
    assert notice.level == "warning"
    assert "part of the images" in notice.text


def test_a_lone_configuration(tmp_path):
    (tmp_path / "config.toml").write_text("")
    report = make_report(collect([tmp_path]))
    assert column(block(report, "runs"), "state") == ["interrupted"]


def test_everything_is_data(seeds, make_radii):
    make_radii(seeds / "radius-aa", {0.3: 0.31})
    report = make_report(collect([seeds]))
    assert json.loads(json.dumps(asdict(report), allow_nan=False))["title"] == report.title
    ids = [found.id for section in report.sections for found in section.blocks]
    assert len({(type(b), b.id) for s in report.sections for b in s.blocks}) == len(ids)
    for figure in report.figures():
        assert isinstance(figure, Figure)
        for series in figure.series:
            for part in (series.y, series.low, series.high, series.texts):
                assert len(part) in (0, len(series.x))
    for table in report.tables():
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_the_difference_is_enlarged_ten_times():
    x = np.full((1, 1, 3), 0.5)
    x_adv = x + np.array([[[0.05, 0.0, -0.1]]])
    np.testing.assert_allclose(
        difference(x, x_adv)[:, 0].T, [[1, 0.5, 0.5], [1, 1, 1], [0, 0, 1]], atol=1e-9
    )
    colour = difference(np.repeat(x, 3, 0), np.repeat(x_adv, 3, 0))
    np.testing.assert_allclose(colour[0, 0], [0.75, 0.5, 0], atol=1e-9)
