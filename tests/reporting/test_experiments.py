"""The JSON of an experiment becomes a table with published numbers, figures and banners."""

import json

import pytest

from maar.reporting.build import make_report
from maar.reporting.collect import collect
from maar.reporting.view import brief, proofs

ROW = {
    "setting": "mnist-0.1",
    "setting_title": "MNIST, eps 0.1",
    "system": "MAAR",
    "metrics": {
        "accuracy": {"mean": 0.989, "std": 0.001},
        "certified": {"mean": 0.968, "std": 0.002},
        "certified_upper": {"mean": 0.97},
    },
    "published": {"accuracy": 0.991, "certified": 0.973},
    "source": "Table 1",
    "seeds": [0, 1, 2],
    "images": 1000,
    "of": 10_000,
    "split": "test",
    "preset": "complete",
    "verifiers": ["crown", "bab"],
    "seconds": 90.0,
    "commands": ["maar train x", "maar certify y"],
    "certify": ["runs/y/certify/eps-0.1-aa"],
}
TOP = {
    "name": "table1",
    "title": "Table",
    "kind": "table",
    "profile": "cpu",
    "reduced": True,
    "banner": "reduced profile cpu",
    "hardware": "AMD EPYC",
    "rows": [ROW],
}


@pytest.fixture
def report_on(tmp_path):
    def make(content):
        path = tmp_path / "table1.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return make_report(collect([path]))

    return make


def cells(report) -> dict[str, object]:
    table = report.tables()[0]
    names = [column.name.partition(" (")[0] for column in table.columns]
    return dict(zip(names, table.rows[0], strict=True))


def test_published_beside_ours_with_what_it_rests_on(report_on):
    report = report_on(TOP)
    found = cells(report)
    texts = {name: cell.text for name, cell in found.items()}
    assert texts["setting"] == "MNIST, eps 0.1"
    assert (texts["CR"], texts["CR published"], texts["CR difference"]) == (
        "96.80 ± 0.20",
        "97.3",
        "-0.50",
    )
    assert found["CR"].mark == (0.973, 0.968)
    assert found["upper bound"].text == "97.00"
    assert found["CR difference"].tone == "bad"
    evidence = found["CR"].evidence
    assert (evidence.profile, evidence.seeds, evidence.hardware) == ("cpu", (0, 1, 2), "AMD EPYC")
    assert evidence.verifiers == ("crown", "bab")
    assert evidence.command == "maar train x; maar certify y"
    assert [(notice.level, notice.text) for notice in report.notices] == [
        ("warning", "table1: reduced profile cpu")
    ]


def test_a_row_says_which_seeds_were_measured_before(report_on):
    report = report_on({**TOP, "rows": [{**ROW, "measured_before": [0, 2]}]})
    evidence = cells(report)["CR"].evidence
    assert dict(evidence.facts())["measured before"].startswith("seeds 0, 2, by runs")
    table = report.tables()[0]
    assert brief(proofs(table.rows[0], table)).endswith(" · measured before")
    fresh = cells(report_on(TOP))["CR"].evidence
    assert "measured before" not in dict(fresh.facts())


def test_a_caveat_about_our_own_number_stands_below_the_table(report_on):
    row = {**ROW, "measured_caveat": "of an older trainer"}
    table = report_on({**TOP, "rows": [row]}).tables()[0]
    assert "MAAR: measured here, but of an older trainer" in table.notes


def test_cr_was_measured_where_it_was_certified(report_on):
    row = {**ROW, "hardware": "one", "certified_on": "another"}
    found = cells(report_on({**TOP, "rows": [row]}))
    assert found["ACC"].evidence.hardware == "one"
    assert found["CR"].evidence.hardware == "another"


def test_an_interval_has_a_column(report_on):
    assert "CR 95 %" not in cells(report_on(TOP))
    few = {**ROW, "metrics": {"certified": {"mean": 0.3, "std": None, "interval95": [0.2, 0.41]}}}
    assert cells(report_on({**TOP, "rows": [few]}))["CR 95 %"].text == "20.0 to 41.0"


def test_no_spread_is_a_spread(report_on):
    still = {**ROW, "metrics": {"certified": {"mean": 0.3, "std": 0.0}}}
    assert cells(report_on({**TOP, "rows": [still]}))["CR"].text == "30.00 ± 0.00"


@pytest.mark.parametrize("epochs", [None, [], [{}], 3])
def test_curves_that_were_not_kept_are_said_to_be_missing(report_on, epochs):
    report = report_on({**TOP, "kind": "training", "rows": [{**ROW, "epochs": epochs}]})
    assert any("table1 has no curves" in notice.text for notice in report.notices)


def test_a_folder_of_results_is_what_is_in_it(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(TOP))
    (tmp_path / "b.json").write_text(json.dumps({"something": "else"}))
    assert [path.name for path, _ in collect([tmp_path]).experiments] == ["a.json"]


def test_what_is_not_comparable_is_not_compared(report_on):
    row = {**ROW, "is_comparable": False, "published_network": "CNN7"}
    found = cells(report_on({**TOP, "rows": [row]}))
    assert "CR difference" not in found
    assert "CNN7" in found["CR published"].note
    assert "not to be ranked" in found["CR published"].note


def test_numbers_published_elsewhere_have_a_table_of_their_own(report_on):
    beside = {"setting": "mnist-0.1", "system": "SABR", "published": {"certified": 0.9822}}
    ours, other = report_on({**TOP, "beside": [beside]}).tables()
    assert len(ours.rows) == len(other.rows) == 1
    assert [cell.text for cell in other.rows[0][:3]] == ["MNIST, eps 0.1", "SABR", "98.22"]


def test_contradicting_numbers_are_both_said(report_on):
    also = {"published": {"certified": 0.596}, "source": "the text"}
    also["caveat"] = "58.6 in the table"
    table = report_on({**TOP, "rows": [{**ROW, "also_published": [also]}]}).tables()[0]
    assert table.notes == (
        "MAAR: published in Table 1",
        "MAAR: also published: CR 59.6; the text; 58.6 in the table",
    )


@pytest.mark.parametrize(
    ("kind", "shape"), [("eps", "bars"), ("lam", "lines"), ("stages", "lines")]
)
def test_rows_over_something_are_drawn(report_on, kind, shape):
    rows = [{**ROW, "x": x, "published": {"certified": 0.9}} for x in (2, 4)]
    figures = {
        figure.id: figure for figure in report_on({**TOP, "kind": kind, "rows": rows}).figures()
    }
    figure = figures["table1-certified"]
    assert figure.kind == shape
    ours, published = figure.series
    assert ours.x == ((2.0, 4.0) if kind == "lam" else ("2", "4"))
    assert ours.low == pytest.approx((0.966, 0.966))
    assert published.is_dashed
    assert published.group == ours.group


def test_what_failed_and_what_is_to_come(report_on):
    failed = [{"row": "cifar10", "reason": "no images"}]
    report = report_on({**TOP, "is_complete": False, "failed": failed})
    levels = {notice.level: notice.text for notice in report.notices}
    assert "no images" in levels["error"]
    assert "not finished" in levels["info"]


@pytest.mark.parametrize(
    "content",
    [
        "{[",
        "[]",
        "{}",
        '{"rows": 3}',
        '{"rows": [3]}',
        '{"rows": [{}]}',
        '{"rows": [{"metrics": 1, "published": [], "seeds": "x", "x": {}}], "kind": "lam"}',
    ],
)
def test_a_file_of_something_else_does_no_harm(report_on, content):
    report_on(content)


def test_two_files_of_one_experiment_are_two_tables(tmp_path, make_run):
    content = {**TOP, "kind": "eps", "rows": [{**ROW, "x": "0.1"}]}
    for folder, name in (("a", "runs"), ("b", "runs"), ("a", "table1-mnist")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{name}.json").write_text(json.dumps(content))
    files = [*tmp_path.glob("*/*.json")]
    report = make_report(collect([*files, make_run(tmp_path / "run")]))
    ids = [block.id for section in report.sections for block in section.blocks]
    assert len(set(ids)) == len(ids)
    assert {"runs", "runs-2", "runs-2-certified", "runs-3-accuracy", "table1-mnist"} < set(ids)
    sections = [section.id for section in report.sections]
    assert len(set(sections)) == len(sections)


def test_shares_of_different_images_say_so(report_on):
    names = [column.name for column in report_on(TOP).tables()[0].columns]
    assert {"ACC (all)", "CR (1,000)"} <= set(names)
    whole = {**TOP, "rows": [{**ROW, "of": ROW["images"]}]}
    assert {"ACC", "CR"} <= {column.name for column in report_on(whole).tables()[0].columns}


def test_accuracy_is_of_all_images_but_for_stages(report_on):
    assert cells(report_on(TOP))["ACC"].evidence.images is None
    assert cells(report_on(TOP))["CR"].evidence.images == 1000
    assert cells(report_on({**TOP, "kind": "stages"}))["ACC"].evidence.images == 1000
