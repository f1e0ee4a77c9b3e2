"""What is found below a path, and what becomes of files that are not whole."""

import json

import pytest

from maar.core.errors import UsageError
from maar.core.files import locked
from maar.core.seals import sealed
from maar.records.verdicts import wilson
from maar.reporting.build import make_report
from maar.reporting.collect import collect


def test_a_run_with_all_that_belongs_to_it(tmp_path, make_run, make_store, make_radii):
    run = make_run(tmp_path / "runs" / "a")
    make_store(run / "certify" / "eps-0.1-aa", {"verified": 6, "falsified": 2})
    make_radii(run / "radius-bb", {0.1: 0.11})
    (run / "evaluate-model.json").write_text('{"weights": "model", "images": 3}')
    (found,) = collect([tmp_path / "runs"]).runs
    assert (found.name, found.state, found.method) == ("a", "finished", "maar(colt)")
    assert (found.eps, found.seed, found.seconds) == (0.1, 0, 40.0)
    assert found.hardware == "AMD EPYC, 2 threads"
    (store,) = found.certifications
    assert (store.images, store.is_complete, store.weights) == (8, True, "model")
    assert len(found.radii) == len(found.evaluations) == 1


def test_states(tmp_path, make_run):
    make_run(tmp_path / "done")
    make_run(tmp_path / "half", done=1)
    make_run(tmp_path / "now", done=1)
    with locked(tmp_path / "now" / ".lock"):
        states = {run.name: run.state for run in collect([tmp_path]).runs}
    assert states == {"done": "finished", "half": "interrupted", "now": "running"}


def test_stores_without_a_run_are_put_together_by_their_weights(tmp_path, make_store):
    for eps in (0.1, 0.2):
        make_store(
            tmp_path / "certs" / "n" / f"eps-{eps}", {"verified": 1}, eps=eps, network="n.onnx"
        )
    make_store(tmp_path / "certs" / "m", {"verified": 1}, network="m.onnx")
    runs = {run.name: run for run in collect([tmp_path / "certs"]).runs}
    assert set(runs) == {"n.onnx", "m.onnx"}
    assert [store.eps for store in runs["n.onnx"].certifications] == [0.1, 0.2]
    assert runs["n.onnx"].state == ""


def test_the_same_folder_twice_is_one_run(tmp_path, make_run):
    run = make_run(tmp_path / "runs" / "a")
    assert len(collect([run, tmp_path / "runs", run]).runs) == 1


def test_equal_names_are_told_apart(tmp_path, make_run):
    for folder in ("one", "two"):
        make_run(tmp_path / folder / "a")
    make_run(tmp_path / "b")
    assert {run.name for run in collect([tmp_path]).runs} == {"one/a", "two/a", "b"}


def test_a_certification_in_progress_is_counted_from_its_lines(tmp_path, make_store):
    path = make_store(tmp_path / "s", {"verified": 3, "misclassified": 1}, summary=False)
    with open(path / "verdicts.jsonl", "a") as file:
        file.write('{"index": 99, "lab')  # being written
    found = collect([path])
    (store,) = found.runs[0].certifications
    assert not store.is_complete
    assert (store.images, store.summary["certified"], store.summary["accuracy"]) == (4, 0.75, 0.75)
    row = {"reached": 3, "falsified": 0, "verified": 3, "seconds": 3.0}
    assert store.summary["verifiers"]["crown"] == row
    assert not found.problems


def test_a_summary_that_the_verdicts_belie_is_not_believed(tmp_path, make_store):
    path = make_store(tmp_path / "s", {"verified": 3, "unknown": 1})
    text = (path / "summary.json").read_text()
    (path / "summary.json").write_text(text.replace('"verified": 3', '"verified": 4'))
    found = collect([path])
    assert found.runs[0].certifications[0].summary["verified"] == 3
    (problem,) = found.problems
    assert "summary.json is damaged: its seal does not fit: it was changed" in problem


def test_a_verdict_that_nobody_knows_is_told(tmp_path, make_store):
    path = make_store(tmp_path / "s", {"verified": 3})
    text = (path / "verdicts.jsonl").read_text()
    (path / "verdicts.jsonl").write_text(text.replace("verified", "approved", 1))
    changed, strange, left_out = collect([path]).problems
    assert "line 1 is no verdict: its seal does not fit: it, or a line before it" in changed
    assert "line 1 is no verdict: verdict is 'approved'" in strange
    assert "1 lines are no verdicts and are left out" in left_out
    assert collect([path]).certifications[0].images == 2


def test_a_store_without_seals_is_told(tmp_path, make_store):
    path = make_store(tmp_path / "s", {"verified": 3})
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format": 2}))
    (problem,) = collect([path]).problems
    assert problem.endswith("s is of a format without seals: an edit by hand would not show here")
    assert collect([path]).certifications[0].images == 3


@pytest.mark.parametrize("change", [{"network": "y"}, {"data": "x"}, {"preset": ""}, {"images": 9}])
def test_facts_that_were_changed_are_told(tmp_path, make_store, change):
    path = make_store(tmp_path / "s", {"verified": 3})
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, **change}))
    (problem,) = collect([path]).problems
    assert "manifest.json is damaged (its seal does not fit: it was changed)" in problem
    assert collect([path]).certifications[0].images == 3


def test_a_manifest_of_nothing_is_told(tmp_path, make_store):
    path = make_store(tmp_path / "s", {"verified": 3})
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "network": 7}))
    (problem,) = collect([path]).problems
    assert "manifest.json is damaged (network is 7" in problem


def test_a_short_look_does_not_hide_the_other_verdicts(tmp_path, make_store):
    path = make_store(tmp_path / "s", {"misclassified": 1, "verified": 3})
    everything = json.loads((path / "summary.json").read_text())
    few = {**everything, "images": 1, "indices": "0-0", "verified": 0, "certified": 0.0}
    few["certified_interval95"] = [0.0, 0.5]
    (path / "summary.json").write_text(json.dumps(sealed(few)))
    found = collect([path])
    store = found.runs[0].certifications[0]
    assert (store.images, store.summary["certified"], store.is_complete) == (4, 0.75, True)
    assert store.summary["certified_interval95"] == (wilson(3, 4)[0], wilson(3, 4)[1])
    assert not found.problems


DAMAGED = [
    (file, content)
    for file in ("config.toml", "metrics.jsonl", "result.json", "env.json")
    for content in (b"{[\n", b"\xff\xfe\n", b"[1]\n")
    if (file, content) != ("config.toml", b"[1]\n")  # a table of TOML
]


@pytest.mark.parametrize(("file", "content"), DAMAGED)
def test_a_damaged_file_is_a_problem_and_no_crash(tmp_path, make_run, file, content):
    run = make_run(tmp_path / "a")
    (run / file).write_bytes(content)
    found = collect([run])
    assert file in found.problems[0]
    assert found.runs[0].state == "damaged"


@pytest.mark.parametrize("file", ["manifest.json", "verdicts.jsonl", "summary.json"])
def test_a_damaged_store_is_a_problem_and_no_crash(tmp_path, make_store, file):
    path = make_store(tmp_path / "s", {"verified": 3})
    (path / file).write_text("{[\n")
    assert any(file in problem for problem in collect([tmp_path]).problems)


def test_where_nothing_is(tmp_path):
    with pytest.raises(UsageError, match="nothing to report on"):
        collect([tmp_path])
    with pytest.raises(UsageError, match="neither a folder nor"):
        collect([tmp_path / "absent"])


@pytest.mark.parametrize("junk", ["{}", "1e999", "9" * 400])
def test_a_value_of_another_kind_does_no_harm(tmp_path, make_run, make_store, make_radii, junk):
    run = make_run(tmp_path / "a")
    store = make_store(run / "certify" / "eps-0.1-aa", {"verified": 1, "falsified": 1})
    radii = make_radii(run / "radius-bb", {0.1: 0.2})
    files = {
        run / "metrics.jsonl": (
            '"stages": 2',
            '"stage": 2',
            '"epochs": 2',
            '"verified_error": 0.1',
        ),
        run / "env.json": ('"threads": 2',),
        store / "verdicts.jsonl": (
            '"index": 0',
            '"margin": -0.02',
            '"label": 7',
            '"verdict": "falsified"',
        ),
        radii / "radii.jsonl": ('"lower": 0.1', '"upper": 0.2', '"index": 0'),
        radii / "manifest.json": ('"images": 10000', '"largest": 0.5'),
        store / "manifest.json": ('"images": 10000', '"eps": 0.1'),
    }
    for path, words in files.items():
        whole = path.read_text()
        for word in words:
            key = word.partition(":")[0]
            assert word in whole
            path.write_text(whole.replace(word, f"{key}: {junk}"))
            make_report(collect([tmp_path]))
        path.write_text(whole)
