"""The whole audit: a true folder passes, each planted lie is caught and named."""

import copy
import dataclasses
import hashlib

import numpy as np
import pytest
import torch

from maar.certification import VERIFIERS as VERIFIERS_OF_MAAR
from maar.certification.audit.folder import read_folder
from maar.certification.audit.run import Strength, audit
from maar.certification.run import make_plan, run
from maar.records.stores import key_of

VERIFIERS = ["misclassified", "quick_pgd", "crown", "alpha_crown"]


def content(path):
    files = sorted(p for p in path.rglob("*") if p.is_file())
    return [(p, hashlib.sha256(p.read_bytes()).digest()) for p in files]


def test_a_true_folder_passes_and_is_not_touched(store):
    before = content(store.path)
    report = store.audit()
    assert report.wrong == []
    assert all(report.checked.values())
    assert set(report.checked) == {
        *("facts", "lines", "summary", "weights", "data", "labels", "onnxruntime")
    }
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
    said = [text for text in store.said() if "cannot be: target" not in text]
    assert [text.startswith(f"image {line['index']}: the line ") for text in said] == [True]


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


TIMES = {"misclassified": 0.1, "quick_pgd": 0.1, "crown": 0.1, "alpha_crown": 0.1}


def lie(store, of, /, **change):
    """Call the first image of a verdict something else, and let everything else fit."""
    line = store.one(of)
    by = change.get("by") or "alpha_crown"
    times = {name: TIMES[name] for name in VERIFIERS[: VERIFIERS.index(by) + 1]}
    store.change(line["index"], times=times, seconds=sum(times.values()), **change)
    (store.path / "counterexamples" / f"{line['index']}.npz").unlink(missing_ok=True)
    store.recount()
    return line


def test_verified_that_is_not_robust(store):
    line = lie(store, "falsified", verdict="verified", by="crown", lb=0.5)
    (said,) = store.said()
    assert said.startswith(f"image {line['index']}: verified by crown, but class ")
    assert f"is ahead of {line['label']} by" in said
    assert store.audit(indices=[line["index"]]).refuted == {("verified", "crown"): 1}


def test_verified_that_is_misclassified(store):
    line = lie(store, "misclassified", verdict="verified", by="alpha_crown", lb=0.5)
    (said,) = store.said()
    assert said.startswith(f"image {line['index']}: verified by alpha_crown, but class ")


def test_misclassified_that_is_not(store):
    change = {"verdict": "misclassified", "by": "misclassified", "margin": -1.0}
    line = lie(store, "verified", target=(store.one("verified")["label"] + 1) % 10, **change)
    (said,) = store.said()
    expected = f"image {line['index']}: misclassified, but class {line['label']} is ahead by"
    assert said.startswith(expected)


def test_a_bound_above_the_truth(store):
    line = store.one("verified")
    store.change(line["index"], lb=line["lb"] + 30)
    (said,) = store.said()
    assert said.startswith(f"image {line['index']}: verified by {line['by']}, but its bound ")


@pytest.mark.parametrize("lb", [0, -1.0, None])
def test_verified_without_a_bound(store, lb):
    line = store.one("verified")
    store.change(line["index"], lb=lb)
    (said,) = store.said()
    assert "has no bound above zero" in said


def test_a_class_said_to_be_proved_that_is_not(store):
    line = store.one("falsified")
    left = [k for k in range(10) if k not in (line["label"], line["target"])]
    lie(store, "falsified", verdict="unknown", by=None, open=left)
    (said,) = store.said()
    assert said.startswith(f"image {line['index']}: class {line['target']} is said to be proved")


def test_an_open_image_that_the_attack_breaks_is_a_note(store):
    left = [k for k in range(10) if k != store.one("falsified")["label"]]
    line = lie(store, "falsified", verdict="unknown", by=None, open=left)
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

    def runner(x):
        with torch.no_grad():
            return other(torch.from_numpy(x)).numpy()

    report = audit(
        read_folder(store.path), store.net, store.data, runner, indices=[0, 1], name="small"
    )
    said = [str(line) for line in report.wrong]
    assert said == [
        f"image {i}: onnxruntime and float64 give different scores: not the same network"
        for i in (0, 1)
    ]


def test_images_that_the_data_set_does_not_have(store):
    store.change(store.one("verified")["index"], index=5000)
    said = [text for text in store.said() if "is no verdict" in text]
    assert [text.endswith("(index is 5000, the split has 1000 images)") for text in said] == [True]


def complete(store):
    """Rewrite the store as one of a cascade that ends with milp, keys and seals included."""
    subject = {**store.manifest["subject"]}
    subject["verifiers"] = [*subject["verifiers"], repr(VERIFIERS_OF_MAAR["milp"]())]
    names = [*VERIFIERS, "milp"]
    store.change_manifest(subject=subject, key=key_of(subject), verifiers=names)
    store.change_summary(key=key_of(subject))
    store.recount()


def test_an_open_image_called_verified_is_on_trust_or_refuted(store):
    open_ = [line["index"] for line in store.lines if line["verdict"] == "unknown"][:3]
    complete(store)
    times = {**TIMES, "milp": 1.0}
    for index in open_:
        more = {"times": times, "seconds": sum(times.values()), "lb": 1e-9}
        store.change(index, verdict="verified", by="milp", **more)
    store.recount()
    trusting = store.audit(indices=open_)
    # nothing that the audit does by itself proves them, and it says so
    assert trusting.on_trust + len(trusting.wrong) == trusting.verified == len(open_)
    assert trusting.on_trust >= 1
    report = store.audit(indices=open_, strength=Strength(restarts=1, complete=60.0))
    assert report.levels["verified", "milp", "complete"] >= 1
    # branch and bound settles each of them: what it does not prove it breaks
    assert report.on_trust == 0
    assert sum(report.levels.values()) + len(report.wrong) == len(open_)


@pytest.mark.parametrize("by", ["crown", "alpha_crown"])
def test_a_proof_by_a_bound_that_proves_nothing(store, by):
    line = lie(store, "unknown", verdict="verified", by=by, lb=1e-9)
    (said,) = store.said()
    assert said.startswith(f"image {line['index']}: ")
    assert "is said to be proved, but crown" in said


@pytest.mark.parametrize(("by", "factor"), [("crown", 1.01), ("crown", 1.1), ("alpha_crown", 1.1)])
def test_a_raised_bound(store, by, factor):
    line = next(x for x in store.lines if (x["verdict"], x["by"]) == ("verified", by))
    store.change(line["index"], lb=factor * line["lb"])
    (said,) = store.said()
    assert said.startswith(f"image {line['index']}: its bound ")
    assert said.endswith("which its verifiers give")


def test_fewer_open_classes(store):
    line = store.one("unknown")
    store.change(line["index"], open=line["open"][1:] or [(line["label"] + 1) % 10])
    (said,) = store.said()
    assert f"class {line['open'][0]} is said to be proved, but crown" in said


def test_a_counterexample_of_an_image_that_is_called_open(store):
    line = store.one("falsified")
    file = (store.path / "counterexamples" / f"{line['index']}.npz").read_bytes()
    left = [k for k in range(10) if k != line["label"]]
    lie(store, "falsified", verdict="unknown", by=None, open=left)
    (store.path / "counterexamples" / f"{line['index']}.npz").write_bytes(file)
    (said,) = store.said()
    assert said.endswith(f"unknown, but counterexamples/{line['index']}.npz breaks it")


def test_a_network_without_a_relu(two_pixels, tiny_data, tmp_path):
    """CROWN is exact there, and a margin below what the audit asks for has nothing to improve."""
    data = tiny_data([[[(0.75, 0.25)]]], [0])
    plan = make_plan(two_pixels, data, 0.25 - 1e-8, verifiers=["crown"])
    assert run(plan, tmp_path, workers=1).certified == 1

    def runner(x):
        with torch.no_grad():
            return two_pixels(torch.from_numpy(x)).numpy()

    report = audit(read_folder(tmp_path), two_pixels, data, runner, name="")
    assert report.wrong == []
    assert report.levels == {("verified", "crown", "repeated"): 1}
