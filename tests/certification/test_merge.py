"""Joining stores: what is known is kept, what contradicts is told, what is theirs is left."""

import json

import numpy as np
import pytest

from maar.certification.compare import require_agreement
from maar.certification.merge import merge
from maar.core.errors import RunError, UsageError
from maar.records.writing import open_store

SUBJECT = {"weights": "a" * 64, "data": "b" * 64, "split": "test", "eps": 0.1, "verifiers": ["P()"]}
RADIUS = {"weights": "a" * 64, "data": "b" * 64, "split": "test", "largest": 0.5}
FACTS = {"network": "n", "data": "d", "split": "test", "images": 50, "verifiers": ["pgd", "crown"]}


MORE = {
    "verified": {"lb": 0.5},
    "misclassified": {"margin": -1.0, "target": 3},
    "falsified": {"margin": -1.0, "target": 3},
    "unknown": {"open": [2], "limit": None},
    "error": {"open": [], "limit": None},
}


def verdict(index, verdict="verified", **more):
    by = None if verdict == "unknown" else "crown"
    times = {"pgd": 0.25, "crown": 0.5}
    known = {"index": index, "label": 1, "verdict": verdict, "by": by, "seconds": 0.75}
    return {**known, "times": times, **MORE[verdict], **more}


@pytest.fixture
def make(tmp_path):
    def store(name, *records, subject=SUBJECT, facts=FACTS):
        with open_store(tmp_path / name, subject, facts) as store:
            store.ask(record["index"] for record in records)
            for record in records:
                point = {"x_adv": np.full(3, float(name[1:]))}
                store.add(record, point if record["verdict"] == "falsified" else None)
        return tmp_path / name

    return store


def read(path):
    with open_store(path, SUBJECT, {}) as store:
        return {i: (r["verdict"], r.get("limit")) for i, r in sorted(store.records.items())}


def test_parts_become_a_whole(make, tmp_path):
    one = make("s1", verdict(0), verdict(2, "falsified", margin=-1.0, target=3))
    two = make("s2", verdict(5, "unknown", limit=9.0), verdict(1, "misclassified"))
    out = tmp_path / "new" / "out"
    tally = merge(out, [one, two])
    found = {0: "verified", 1: "misclassified", 2: "falsified", 5: "unknown"}
    assert {i: v for i, (v, _) in read(out).items()} == found
    assert (out / "counterexamples/2.npz").read_bytes() == (
        one / "counterexamples/2.npz"
    ).read_bytes()
    summary = json.loads((out / "summary.json").read_text())
    assert [summary[k] for k in ("images", "of", "verified", "falsified", "unknown")] == [
        *(4, 50, 1, 1, 1)
    ]
    assert (summary["complete"], summary["indices"], summary["eps"]) == (True, "0-2,5", 0.1)
    assert tally.certified == 0.25
    assert summary["verifiers"]["crown"]["verified"] == 1
    # and what was joined can be continued, or joined again, which adds nothing
    before = (out / "verdicts.jsonl").read_bytes()
    merge(out, [two, one, out, one])
    assert (out / "verdicts.jsonl").read_bytes() == before
    assert sorted(one.iterdir()) == sorted(make("s1").iterdir())


@pytest.mark.parametrize("turned", [False, True])
def test_the_verdict_that_says_more_counts(make, tmp_path, turned):
    one = make(
        "s1",
        verdict(0, "unknown", limit=5.0),
        verdict(1, "error", error="x", limit=60.0),
        verdict(2, "unknown", limit=5.0),
        verdict(3, "unknown", limit=None),
        verdict(4, "error", error="x", limit=9.0),
        verdict(5, "falsified"),
    )
    two = make(
        "s2",
        verdict(0),
        verdict(1, "unknown", limit=1.0),
        verdict(2, "unknown", limit=60.0),
        verdict(3, "unknown", limit=60.0),
        verdict(4, "falsified"),
        verdict(5, "falsified"),
    )
    merge(tmp_path / "out", [two, one] if turned else [one, two])
    assert read(tmp_path / "out") == {
        0: ("verified", None),
        1: ("unknown", 1.0),
        2: ("unknown", 60.0),
        3: ("unknown", None),
        4: ("falsified", None),
        5: ("falsified", None),
    }
    points = {i: np.load(tmp_path / f"out/counterexamples/{i}.npz")["x_adv"][0] for i in (4, 5)}
    assert points == {4: 2.0, 5: 2.0 if turned else 1.0}


@pytest.mark.parametrize("broken", ["falsified", "misclassified"])
def test_a_contradiction_is_told_and_nothing_is_written(make, tmp_path, broken):
    one = make("s1", verdict(0), verdict(7))
    two = make("s2", verdict(7, broken))
    with pytest.raises(RunError, match=rf"image 7 is verified at eps 0.1 and {broken} at eps 0.1"):
        merge(tmp_path / "out", [one, two])
    assert not (tmp_path / "out").exists()
    out = make("s3", verdict(7, broken))
    before = (out / "verdicts.jsonl").read_bytes()
    with pytest.raises(RunError, match="image 7"):
        merge(out, [one])
    assert (out / "verdicts.jsonl").read_bytes() == before
    # within one store as well: a later line does not hide it
    with pytest.raises(RunError, match="image 7"):
        make("s4", verdict(7, broken), verdict(7))


def test_what_cannot_be_joined(make, tmp_path):
    one = make("s1", verdict(0))
    other = make("s2", verdict(0), subject={**SUBJECT, "eps": 0.2})
    for stores, kind, said in [
        ([other, one], UsageError, r"s1 is about something else than .*s2 \(eps: 0.2 there, 0.1"),
        ([], UsageError, "nothing to merge"),
        ([tmp_path / "no"], UsageError, "no is not a folder of results: it has no manifest.json"),
        ([make("s5", subject=RADIUS)], UsageError, "is not a folder of `maar certify`"),
    ]:
        with pytest.raises(kind, match=said):
            merge(tmp_path / "out", stores)
        assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="nothing to merge"):
        merge(one, [one])
    (one / "manifest.json").write_text("{}")
    with pytest.raises(RunError, match="is damaged"):
        merge(tmp_path / "out", [one])


def test_a_counterexample_that_is_gone(make, tmp_path):
    one = make("s1", verdict(0), verdict(4, "falsified"))
    (one / "counterexamples" / "4.npz").unlink()
    with pytest.raises(RunError, match=r"4.npz is gone, so image 4 of .*certify it again"):
        merge(tmp_path / "out", [one])
    # what OUT has lost itself, another may have
    merge(one, [make("s2", verdict(4, "falsified"))])
    assert (one / "counterexamples" / "4.npz").exists()


def test_stores_at_work_are_left_alone(make, tmp_path):
    one, two = make("s1", verdict(0)), make("s2", verdict(1))
    for busy in (one, two):
        with (
            open_store(busy, SUBJECT, FACTS),
            pytest.raises(RunError, match=f"{busy.name} is in use by another maar process"),
        ):
            merge(one, [two])


def test_a_larger_ball_holds_the_smaller_one():
    fine = {0.1: [verdict(0), verdict(1, "unknown")], 0.2: [verdict(0, "falsified"), verdict(1)]}
    require_agreement(fine)
    with pytest.raises(RunError, match=r"image 1 is verified at eps 0.2 and falsified at eps 0.05"):
        require_agreement({0.05: [verdict(1, "falsified")], **fine})
