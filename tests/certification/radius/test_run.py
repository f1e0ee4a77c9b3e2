"""Radii of several images: what is written, how it continues."""

import json
import math

import numpy as np
import pytest

from maar.certification.display import Display
from maar.certification.radius.run import make_radius_plan, run_radius
from maar.certification.run import make_plan
from maar.core.errors import RunError, UsageError
from maar.records.radii import RadiusTally

VERIFIERS = ["misclassified", "quick_pgd", "crown"]
# z = x: the radius of (a, b) with label 0 is (a - b) / 2
PIXELS = [(0.75, 0.25), (0.5, 0.4), (0.2, 0.9), (1.0, 0.0), (0.6, 0.5)]


def lines(path):
    return [json.loads(line) for line in (path / "radii.jsonl").read_text().splitlines()]


def untimed(path):
    kept = []
    for record in lines(path):
        questions = [{**q, "seconds": 0} for q in record["questions"]]
        kept.append({**record, "seconds": 0, "questions": questions, "seal": ""})
    return sorted(kept, key=lambda record: record["index"])


@pytest.fixture
def make(two_pixels, tiny_data):
    data = tiny_data([[[pair]] for pair in PIXELS], [0] * len(PIXELS))

    def plan(**options):
        return make_radius_plan(two_pixels, data, **{"verifiers": VERIFIERS, **options})

    return plan


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_written(make, tmp_path, workers):
    tally, records = run_radius(make(), tmp_path, workers=workers)
    assert tally.counts == {"found": 4, "open": 0, "misclassified": 1, "error": 0}
    assert [record["index"] for record in records] == [0, 1, 2, 3, 4]
    for record, (a, b) in zip(records, PIXELS, strict=True):
        if a < b:
            assert (record["lower"], record["upper"], record["lower_by"]) == (0.0, 0.0, None)
            continue
        radius = (float(np.float32(a)) - float(np.float32(b))) / 2
        if radius == 0.5:  # never strictly broken within the largest radius that is looked for
            assert record["upper"] is None
            assert record["lower"] >= 0.499
            continue
        assert record["lower"] < radius < record["upper"] <= record["lower"] + 0.001
        assert record["lower_by"] == "crown"
        with np.load(tmp_path / f"counterexamples/{record['index']}.npz") as content:
            assert content["target"] == 1
            far = np.abs(content["x_adv"].astype(float) - content["x"].astype(float)).max()
        assert far == record["upper"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["lower"]["0"] == summary["upper"]["0"] == 0.0
    assert summary["lower"]["100"] >= 0.499
    assert summary["upper"]["100"] == 1.0
    assert summary["lower"]["mean"] == pytest.approx(np.mean([r["lower"] for r in records]))
    assert (summary["tolerance"], summary["largest"]) == (0.001, 0.5)
    assert (summary["complete"], summary["proved_by"]) == (True, {"crown": 4})


def test_an_interrupt_and_the_same_again(make, tmp_path):
    class Interrupt(Display):
        def add(self, record, tally):
            if tally.done == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_radius(make(), tmp_path / "a", workers=1, display=Interrupt())
    assert json.loads((tmp_path / "a/summary.json").read_text())["pending"] == 3
    run_radius(make(), tmp_path / "a", workers=1)
    run_radius(make(), tmp_path / "b", workers=1)
    assert untimed(tmp_path / "a") == untimed(tmp_path / "b")
    before = (tmp_path / "a/radii.jsonl").read_bytes()
    run_radius(make(), tmp_path / "a", workers=1)
    assert (tmp_path / "a/radii.jsonl").read_bytes() == before
    (tmp_path / "a/counterexamples/1.npz").unlink()
    run_radius(make(), tmp_path / "a", workers=1)
    assert [r["index"] for r in lines(tmp_path / "a")][5:] == [1]


def test_open_ones_are_taken_again_with_more_time(make, tmp_path):
    plan = make(verifiers=["quick_pgd"], timeout=5, indices=[0])
    tally, _ = run_radius(plan, tmp_path, workers=1)
    assert tally.counts["open"] == 1
    assert lines(tmp_path)[0]["limit"] == 5
    for timeout, count in ((5, 1), (1, 1), (9, 2), (math.inf, 3), (9, 3)):
        again = make(verifiers=["quick_pgd"], timeout=timeout, indices=[0])
        assert again.key == plan.key
        run_radius(again, tmp_path, workers=1)
        assert len(lines(tmp_path)) == count


def test_a_certification_is_another_subject(make, two_pixels, tiny_data, tmp_path):
    assert len({make().key, make(tolerance=0.01).key, make(largest=0.4).key}) == 3
    data = tiny_data([[[pair]] for pair in PIXELS], [0] * len(PIXELS))
    assert make_plan(two_pixels, data, 0.5, verifiers=VERIFIERS).key != make().key
    run_radius(make(), tmp_path)
    with pytest.raises(UsageError, match=r"tolerance: 0.001 there, 0.01 here"):
        run_radius(make(tolerance=0.01), tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tolerance": 0.0}, r"tolerance = 0 \(accepted: more than 0"),
        ({"tolerance": 0.5}, r"less than the largest radius, 0.5"),
        ({"tolerance": math.nan}, "tolerance = nan"),
        ({"largest": 0.0}, "tolerance"),
        ({"largest": 2}, "did you mean 2/255"),
        ({"timeout": -1}, "timeout"),
    ],
)
def test_requests_that_cannot_be(make, options, said):
    with pytest.raises(UsageError, match=said):
        make(**options)


def test_a_damaged_line(make, tmp_path):
    run_radius(make(), tmp_path)
    with open(tmp_path / "radii.jsonl", "a") as file:
        file.write('{"index": 1, "label": 0, "verdict": "verified"}\n')
    with pytest.raises(RunError, match=r"radii.jsonl is damaged: line 6"):
        run_radius(make(), tmp_path)


def test_quantiles_err_to_their_own_side():
    tally = RadiusTally(5, 50)
    for index, (lower, upper) in enumerate([(0, 0), (0.1, 0.2), (0.2, 0.25), (0.3, None)]):
        verdict = "misclassified" if upper == 0 else "found"
        record = {"index": index, "verdict": verdict, "lower": lower, "upper": upper}
        tally.add({**record, "lower_by": "crown" if lower else None, "seconds": 0.5})
    assert (tally.done, tally.seconds) == (4, 2.0)
    spread = tally.spread()
    assert spread["lower"] == [0, 0, 0, 0.1, 0.2, 0.2, 0.3, pytest.approx(0.15)]
    assert spread["upper"] == [0, 0.2, 0.2, 0.25, 1.0, 1.0, 1.0, pytest.approx(0.3625)]
    assert tally.summary()["pending"] == 1
    assert RadiusTally(1, 1).summary()["found"] == 0
