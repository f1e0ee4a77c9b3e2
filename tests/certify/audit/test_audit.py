"""The whole audit: a true folder passes, each planted lie is caught and named."""

import copy
import dataclasses
import hashlib

import numpy as np
import pytest
import torch

from maar.certify.audit.run import Strength


def content(path):
    files = sorted(p for p in path.rglob("*") if p.is_file())
    return [(p, hashlib.sha256(p.read_bytes()).digest()) for p in files]


def test_a_true_folder_passes_and_is_not_touched(store):
    before = content(store.path)
    report = store.audit()
    assert report.wrong == []
    assert all(report.checked.values())
    assert set(report.checked) == {"lines", "summary", "weights", "data", "labels", "onnxruntime"}
    by_verdict = {}
    for (verdict, _, level), count in report.levels.items():
        by_verdict.setdefault(verdict, {})[level] = count
    lines = store.lines
    for verdict, levels in by_verdict.items():
        assert sum(levels.values()) == sum(line["verdict"] == verdict for line in lines)
    assert set(by_verdict["falsified"]) == set(by_verdict["misclassified"]) == {"replayed"}
    # what the certifier proved by CROWN the auditor's own CROWN proves too
    crown = sum(line["by"] == "crown" for line in lines)
    assert report.levels["verified", "crown", "crown"] == crown > 0
    assert content(store.path) == before


def test_in_two_processes_the_same(store):
    indices = range(12)
    one, two = store.audit(indices=indices), store.audit(indices=indices, workers=2)
    assert (one.levels, one.wrong) == (two.levels, two.wrong)


def test_a_counterexample_outside_the_ball(store):
    line = store.one("falsified")
    point = np.load(store.path / "counterexamples" / f"{line['index']}.npz")["x_adv"].copy()
    point.flat[300] += 0.15 if point.flat[300] < 0.5 else -0.15
    store.change_file(line["index"], x_adv=point)
    said = store.said()
    assert any(f"image {line['index']}: the counterexample is 0." in text for text in said)
    assert all(f"image {line['index']}:" in text for text in said)


def test_a_counterexample_outside_the_pixel_range(store):
    line = store.one("falsified")
    point = np.load(store.path / "counterexamples" / f"{line['index']}.npz")["x_adv"].copy()
    point.flat[0] = -0.001
    store.change_file(line["index"], x_adv=point)
    assert any("outside [0, 1]" in text for text in store.said())


def test_a_counterexample_of_the_right_class(store, mnist_mini):
    line = store.one("falsified")
    store.change_file(line["index"], x_adv=mnist_mini.images("test", [line["index"]])[0].numpy())
    (said,) = store.said()
    assert said.startswith(
        f"image {line['index']}: the counterexample is none: class {line['label']}"
    )


def test_a_counterexample_of_another_image(store, mnist_mini):
    line = store.one("falsified")
    store.change_file(line["index"], x=mnist_mini.images("test", [line["index"] + 1])[0].numpy())
    (said,) = store.said()
    assert said == f"image {line['index']}: x in {line['index']}.npz is not the image"


@pytest.mark.parametrize("change", [{"margin": -5.0}, {"target": 0}, {"target": None}])
def test_a_line_that_does_not_fit_its_counterexample(store, change):
    line = next(x for x in store.lines if x["verdict"] == "falsified" and x["target"] != 0)
    store.change(line["index"], **change)
    (said,) = store.said()
    assert said.startswith(f"image {line['index']}: the line ")


def test_a_counterexample_that_is_missing(store):
    index = store.one("falsified")["index"]
    store.touched = [index]
    (store.path / "counterexamples" / f"{index}.npz").unlink()
    assert store.said() == [f"image {index}: falsified, but counterexamples/{index}.npz is missing"]


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 and so on", None])
def test_a_counterexample_that_is_damaged(store, damage):
    index = store.one("falsified")["index"]
    store.touched = [index]
    path = store.path / "counterexamples" / f"{index}.npz"
    path.write_bytes(path.read_bytes()[:500] if damage is None else damage)
    (said,) = store.said()
    assert said.startswith(f"image {index}: falsified, but counterexamples/{index}.npz is damaged")


def test_no_pickle_is_opened(store):
    index = store.one("falsified")["index"]
    store.change_file(index, target=np.array([{"a": "pickle"}], dtype=object))
    (said,) = store.said()
    assert "is damaged" in said


def lie(store, of, /, **change):
    """Call the first image of a verdict something else, and let the sums fit."""
    line = store.one(of)
    store.change(line["index"], **change)
    (store.path / "summary.json").unlink()
    return line


def test_verified_that_is_not_robust(store):
    line = lie(store, "falsified", verdict="verified", by="crown", lb=0.5)
    (said,) = store.said()
    assert said.startswith(f"image {line['index']}: verified by crown, but class ")
    assert f"is ahead of {line['label']} by" in said
    assert store.audit(indices=[line["index"]]).refuted == {("verified", "crown"): 1}


def test_verified_that_is_misclassified(store):
    line = lie(store, "misclassified", verdict="verified", by="bab", lb=0.5)
    (said,) = store.said()
    assert said.startswith(f"image {line['index']}: verified by bab, but class ")


def test_misclassified_that_is_not(store):
    line = lie(store, "verified", verdict="misclassified", by="misclassified")
    (said,) = store.said()
    expected = f"image {line['index']}: misclassified, but class {line['label']} is ahead by"
    assert said.startswith(expected)


def test_a_bound_above_the_truth(store):
    line = store.one("verified")
    store.change(line["index"], lb=line["lb"] + 30)
    (said,) = store.said()
    assert said.startswith(f"image {line['index']}: verified by {line['by']}, but its bound ")


@pytest.mark.parametrize("lb", [0, -1.0, None, "2"])
def test_verified_without_a_bound(store, lb):
    line = store.one("verified")
    store.change(line["index"], lb=lb)
    (said,) = store.said()
    assert "has no bound above zero" in said


def test_a_class_said_to_be_proved_that_is_not(store):
    line = lie(store, "falsified", verdict="unknown", by=None, open=[])
    (said,) = store.said()
    assert said.startswith(f"image {line['index']}: class {line['target']} is said to be proved")


def test_an_open_image_that_the_attack_breaks_is_a_note(store):
    line = lie(store, "falsified", verdict="unknown", by=None, open=list(range(10)))
    report = store.audit(indices=[line["index"]])
    assert report.wrong == []
    assert any(f"open images: {line['index']}" in note for note in report.notes)


def test_swapped_labels(store):
    one, two = [line for line in store.lines if line["verdict"] == "verified"][:2]
    assert one["label"] != two["label"]
    store.change(one["index"], label=two["label"])
    store.change(two["index"], label=one["label"])
    said = store.said()
    for line, other in ((one, two), (two, one)):
        expected = f"the line has label {other['label']}, the data set {line['label']}"
        assert f"image {line['index']}: {expected}" in said


def test_changed_weights(store):
    store.net = copy.deepcopy(store.net)
    with torch.no_grad():
        store.net[1].weight[0, 0, 0, 0] += 1e-4
    (said,) = store.said()
    assert said.startswith("weights: the folder is about ")


def test_other_data(store, mnist_mini):
    store.data = dataclasses.replace(mnist_mini, sha256="0" * 64)
    (said,) = store.said()
    assert said.startswith("data: the folder is about ")


def test_another_program_that_computes_another_network(store):
    other = copy.deepcopy(store.net)
    with torch.no_grad():
        other[6].bias[0] += 0.1
    from maar.certify.audit.folder import read_folder
    from maar.certify.audit.run import audit

    def runner(x):
        with torch.no_grad():
            return other(torch.from_numpy(x)).numpy()

    report = audit(read_folder(store.path), store.net, store.data, runner, indices=[0, 1])
    said = [str(line) for line in report.wrong]
    assert said == [
        f"image {i}: onnxruntime and float64 give different scores: not the same network"
        for i in (0, 1)
    ]


def test_images_that_the_data_set_does_not_have(store):
    store.change(store.one("verified")["index"], index=5000)
    said = store.said()
    assert "image 5000: mnist_mini has no such test image (0 to 999)" in said


def test_another_complete_verifier_on_request(store):
    open_ = [line["index"] for line in store.lines if line["verdict"] == "unknown"][:3]
    # as if a complete verifier had proved them, with bounds too small to be wrong
    for index in open_:
        store.change(index, verdict="verified", by="milp", lb=1e-9)
    (store.path / "summary.json").unlink()
    report = store.audit(indices=open_, strength=Strength(restarts=1, complete=60.0))
    assert report.levels["verified", "milp", "complete"] >= 1
    # branch and bound settles each of them: what it does not prove it breaks
    assert report.levels["verified", "milp", "attacked"] == 0
    assert sum(report.levels.values()) + len(report.wrong) == len(open_)
