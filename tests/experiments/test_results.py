"""Our numbers beside the published ones."""

import io
import json

import pytest
from rich.console import Console
from rich.table import Table

from maar.experiments.results import about_share, result
from maar.experiments.show import facts, markdown, spread, table_of, terminal

VERDICTS = ["verified"] * 4 + ["misclassified"]
MNIST = {"settings": ("mnist-0.1",)}


@pytest.fixture
def found(plan_of, files):
    """MAAR with two seeds of three, COLT with none."""
    plan = plan_of("table1", methods=("maar", "colt"), limit=5, **MNIST)
    (maar, _) = plan.points
    for (train, certify), accuracy in zip(maar.tasks[:2], (0.98, 1.0), strict=True):
        files.train(train.run, accuracy)
        files.certify(certify, VERDICTS, machine="a laptop")
    failed = {plan.points[1].tasks[0][0]: "it is broken"}
    return result(plan, "maar reproduce table1", failed)


def row_of(found, place=0):
    table = table_of(found)
    names = [column.name for column in table.columns]
    return {name: cell.text for name, cell in zip(names, table.rows[place], strict=True)}


def test_mean_and_spread_over_the_seeds(found):
    row = found["rows"][0]
    assert row["metrics"]["accuracy"]["mean"] == pytest.approx(0.99)
    assert row["metrics"]["accuracy"]["std"] == pytest.approx(0.02 / 2**0.5)
    certified = row["metrics"]["certified"]
    # (two seeds, and few images: 4 of 5)
    assert certified.pop("interval95") == pytest.approx([0.376, 0.964], abs=1e-3)
    assert certified == {"mean": 0.8, "std": 0.0, "values": [0.8, 0.8]}
    assert row["metrics"]["accuracy"]["interval95"] == pytest.approx([0.917, 1], abs=0.02)
    assert (row["seeds"], row["seeds_wanted"]) == ([0, 1], [0, 1, 2])


def test_an_interval_where_images_or_seeds_are_few():
    assert "interval95" not in about_share([0.5, 0.6, 0.7], 10_000)
    assert "interval95" in about_share([0.5, 0.6, 0.7], 9_999)
    assert "interval95" in about_share([0.5, 0.6], 10_000)
    assert "interval95" not in about_share([0.5], None)
    assert spread(about_share([0.5], 10_000)) == "50.00 [49.0, 51.0]"
    assert spread(about_share([0.5, 0.5, 0.5], 10_000)) == "50.00 ± 0.00"


def test_the_table_has_a_column_of_intervals(found):
    first = row_of(found)
    assert "37.6" in first["CR 95 %"]
    assert "96.4" in first["CR 95 %"]
    assert "37.6" in markdown(found)


def test_a_mix_that_does_not_end_is_said(found):
    """MNIST's recipe has stages of 14, 2 and 1 epochs and mixes over 4."""
    assert "the stages of MAAR end at kappa = 1.00, 0.50, 0.25: " in found["banner"]


def test_the_published_numbers_and_the_difference(found):
    row = found["rows"][0]
    assert row["published"] == {"accuracy": 0.991, "certified": 0.973}
    assert row["difference"] == pytest.approx({"accuracy": -0.001, "certified": -0.173})
    assert "Table 1" in row["source"]
    assert row["is_comparable"] is True


def test_what_was_measured_how(found):
    row = found["rows"][0]
    assert (row["images"], row["of"], row["preset"]) == (5, 50, "complete")
    assert row["verifiers"] == ["misclassified", "crown"]
    assert row["settled"][0] == {"misclassified": 1, "crown": 4}
    assert row["train_seconds"] == [60.0, 60.0]
    assert row["seconds"] == pytest.approx(2 * (60 + 5 * 0.5 + 4 * 1.5))
    assert row["commands"][0].startswith("maar train mnist-0.1-maar-cpu --seed 0")
    assert found["hardware"]
    assert row["certified_on"] == "a laptop"
    assert set(found["versions"]) == {"maar", "python", "torch"}
    assert "epochs" not in row  # (nothing is drawn of them in a table)
    json.dumps(found, allow_nan=False)


def test_the_banner_says_what_is_reduced(found):
    assert "reduced profile cpu" in found["banner"]
    assert "the first 5 of 50 test images" in found["banner"]
    assert "4 of 6 measurements are not there yet" in found["banner"]
    assert found["is_complete"] is False


def test_the_papers_protocol_in_full_has_no_banner(plan_of, files):
    plan = plan_of("table1", "paper", methods=("maar",), seeds=(0,), **MNIST)
    (train, certify) = plan.tasks
    files.train(train.run)
    files.certify(certify, VERDICTS * 10)
    found = result(plan, "maar reproduce table1", {})
    assert (found["banner"], found["reduced"], found["is_complete"]) == ("", False, True)
    assert "Not the paper's" not in markdown(found)


def test_rows_that_are_not_there_yet_are_empty(found):
    row = found["rows"][1]
    assert row["metrics"] == row["difference"] == {}
    assert row["published"]
    assert found["failed"][0]["reason"] == "it is broken"


def test_numbers_that_contradict_each_other_are_both_shown(plan_of):
    plan = plan_of("table1", methods=("colt",), settings=("cifar10-2_255",))
    found = result(plan, "", {})
    (row,) = found["rows"]
    assert row["also_published"][0]["published"] == {"certified": 0.596}
    assert "also published: CR 59.6" in "".join(table_of(found).notes)


def test_other_networks_stand_apart(found):
    systems = {entry["system"] for entry in found["beside"]}
    assert "SABR" in systems
    assert not systems & {row["system"] for row in found["rows"]}
    assert "not to be ranked with the above" in markdown(found)


def test_other_radii_have_nothing_published_beside_them(plan_of):
    plan = plan_of("fig-eps", methods=("maar",), settings=("cifar10-2_255",))
    rows = result(plan, "", {})["rows"]
    assert [row["x"] for row in rows if row["published"]] == ["2/255"]


def test_a_row_of_its_own_radius_is_not_compared_with_the_settings(plan_of, tmp_path):
    own = tmp_path / "own.toml"
    own.write_text(
        'title = "t"\nof = "o"\nabout = "a"\nkind = "table"\nsettings = ["mnist-0.1"]\n'
        '[[rows]]\nlabel = "COLT"\nmethod = "colt"\n'
        '[[rows]]\nlabel = "COLT"\nmethod = "colt"\nflags = { eps = "0.2" }\n'
    )
    rows = result(plan_of(str(own)), "", {})["rows"]
    assert [row["eps"] for row in rows] == ["0.1", "0.2"]
    assert [bool(row["published"]) for row in rows] == [True, False]


def test_stages_have_their_own_published_numbers(plan_of):
    plan = plan_of("table-stages", "paper", methods=("maar",), settings=("cifar10-2_255",))
    rows = result(plan, "", {})["rows"]
    assert [row["published"]["latent_robustness"] for row in rows] == [0.583, 0.601, 0.62, 0.647]
    assert not any("stages, measured of" in row["caveat"] for row in rows)
    del plan.points[-1]
    rows = result(plan, "", {})["rows"]
    assert rows[0]["caveat"] == "published of 4 stages, measured of 3"


def test_a_number_of_another_network_is_not_compared(plan_of, files):
    plan = plan_of("table1", methods=("ibp", "maar"), limit=5, **MNIST)
    rows = {row["method"]: row for row in result(plan, "", {})["rows"]}
    assert rows["maar"]["is_comparable"] is True
    assert rows["ibp"]["is_comparable"] is False
    assert rows["ibp"]["caveat"] == "measured on convmed_2_2_100_bn, published on convmed_2_2_100"


def test_the_table(found):
    found["rows"][0]["train_seconds"] = [600.0, 960.0]
    first = row_of(found)
    heads = ["setting", "system", "ACC (all)", "ACC 95 %", "ACC published"]
    assert list(first)[:5] == heads
    assert (first["setting"], first["system"]) == ("MNIST, eps 0.1", "MAAR")
    assert (first["ACC (all)"], first["ACC published"]) == ("99.00 ± 1.41", "99.1")
    assert (first["seeds"], first["images"], first["train min"]) == ("2 of 3", "5 of 50", "13")
    page = markdown(found)
    assert "| MNIST, eps 0.1 | MAAR | 99.00 ± 1.41 | " in page
    assert "> **Not the paper's protocol:**" in page
    assert "`maar reproduce table1`" in page
    assert dict(facts(found))["seeds"].startswith("0, 1;")


def test_a_few_images_are_not_compared_with_published_numbers(found):
    assert "ACC difference" not in row_of(found)  # of five images
    for row in found["rows"]:
        row |= {"images": 500, "of": 500}
    assert row_of(found)["ACC difference"] == "-0.10"


def test_what_cannot_be_compared_stands_in_parentheses(found):
    found["rows"][0]["is_comparable"] = False
    assert row_of(found)["ACC published"] == "(99.1)"
    assert "ACC difference" not in row_of(found)
    assert "In parentheses" in markdown(found)


def test_rows_of_several_networks_say_so(found):
    assert "network" not in row_of(found)
    found["rows"][1]["network"] = "cnn7"
    assert [row_of(found, place)["network"] for place in (0, 1)] == ["convmed_2_2_100", "cnn7"]


@pytest.mark.parametrize(("width", "columns"), [(200, 12), (70, 6), (50, 5)])
def test_a_narrow_terminal_gets_fewer_columns(found, width, columns):
    console = Console(width=width, file=io.StringIO())
    page = terminal(found, width)
    (table,) = [part for part in page.renderables if isinstance(part, Table)]
    assert len(table.columns) == columns
    console.print(table)
    lines = console.file.getvalue().splitlines()
    assert lines[1].strip() == "MNIST, eps 0.1"
    assert lines[2].startswith("MAAR")
    assert "…" not in "".join(lines)


def test_curves_come_with_the_last_epochs_numbers(plan_of, files):
    plan = plan_of("fig2", "smoke")
    for task in plan.tasks:
        files.train(task.run)
    found = result(plan, "", {})
    row = found["rows"][0]
    assert row["metrics"]["verified_error"]["mean"] == 0.25
    assert row["epochs"] == [
        {
            "stage": [1, 1, 2, 2],
            "epoch": [1, 2, 1, 2],
            "verified_error": [0.5, 0.25, 0.25, 0.125],
            "accuracy": [0.82346, 0.76173, 0.76173, 0.73086],
            "accuracy_of": "valid",
        }
    ]
    assert "VE" in row_of(found)
    assert "an attack's result, not a verifier's" in markdown(found)
