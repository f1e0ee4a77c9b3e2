import pytest

from maar.records.verdicts import Tally, wilson


def record(index, verdict, by=None, **times):
    return {"index": index, "verdict": verdict, "by": by, "times": times, "error": "why"}


@pytest.fixture
def tally():
    tally = Tally(10, 40, ["misclassified", "crown", "pgd"])
    tally.add(record(0, "misclassified", "misclassified", misclassified=0.1))
    for index in range(1, 7):
        tally.add(record(index, "verified", "crown", misclassified=0.1, crown=0.5))
    tally.add(record(7, "falsified", "pgd", misclassified=0.1, crown=0.5, pgd=1.0))
    tally.add(record(8, "unknown", misclassified=0.1, crown=0.5, pgd=1.0))
    return tally


def test_half_done(tally):
    assert (tally.done, tally.accuracy, tally.interval) == (9, None, None)
    # what is not yet done counts as open: both bounds hold already
    assert tally.certified == 0.6
    assert tally.certified_upper == pytest.approx(0.8)
    assert tally.summary()["complete"] is False
    assert tally.summary()["pending"] == 1


def test_all_done(tally):
    tally.add(record(9, "error", "pgd", misclassified=0.1, crown=0.5, pgd=1.0))
    assert tally.accuracy == pytest.approx(0.9)
    assert tally.certified == 0.6  # an error is never certified
    assert tally.certified_upper == pytest.approx(0.8)
    assert tally.interval == (wilson(6, 10)[0], wilson(8, 10)[1])
    assert tally.last_error == "image 9: why"
    summary = tally.summary()
    assert summary["verifiers"]["crown"] == {
        "reached": 9,
        "falsified": 0,
        "verified": 6,
        "seconds": 4.5,
    }
    assert summary["verifiers"]["pgd"]["falsified"] == 1
    assert [summary[k] for k in ("misclassified", "falsified", "verified")] == [1, 1, 6]
    assert [summary[k] for k in ("unknown", "error", "images", "of")] == [1, 1, 10, 40]


def test_no_interval_for_the_whole_set():
    tally = Tally(1, 1, ["crown"])
    tally.add(record(0, "verified", "crown", crown=0.1))
    assert tally.interval is None
    assert tally.accuracy is None  # nobody looked for misclassified images


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    # Agresti and Coull 1998; R: prop.test(correct = FALSE)
    [
        (0, 10, 0.0, 0.2775),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0),
        (95, 100, 0.8882, 0.9785),
    ],
)
def test_wilson(hits, trials, low, high):
    assert wilson(hits, trials) == pytest.approx((low, high), abs=5e-5)
