"""Reading a folder, and its sums."""

import json

import pytest

from maar.certify.audit.counts import recount
from maar.certify.audit.folder import read_folder
from maar.errors import RunError, UsageError


def said(store):
    folder = read_folder(store.path)
    return [str(line) for line in [*folder.wrong, *recount(folder)]]


def test_the_sums_of_a_true_folder(store):
    assert said(store) == []


def test_not_a_folder(tmp_path):
    with pytest.raises(UsageError, match=r"it has no manifest\.json"):
        read_folder(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key": 1, "subject": {}}', "\0"])
def test_a_damaged_manifest(store, text):
    (store.path / "manifest.json").write_text(text)
    with pytest.raises(RunError, match=r"manifest\.json is damaged"):
        read_folder(store.path)


def test_a_changed_manifest(store):
    path = store.path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["subject"]["eps"] = 0.4
    path.write_text(json.dumps(manifest))
    assert "manifest.json: its key is not that of its subject" in said(store)
    assert "summary.json: eps is 0.06, the lines say 0.4" in said(store)


@pytest.mark.parametrize(
    "name", ["verified", "falsified", "misclassified", "unknown", "images", "pending", "certified"]
)
def test_edited_counts(store, name):
    there = json.loads((store.path / "summary.json").read_text())[name]
    store.change_summary(**{name: there + 1})
    (line,) = said(store)
    assert line.startswith(f"summary.json: {name} is ")


def test_edited_counts_of_a_verifier(store):
    there = json.loads((store.path / "summary.json").read_text())["verifiers"]
    there["crown"]["verified"] += 1
    store.change_summary(verifiers=there)
    (line,) = said(store)
    assert line.startswith("summary.json: crown verified is ")


def test_an_edited_line(store):
    index = store.one("unknown")["index"]
    store.change(index, verdict="verified", by="crown", lb=0.1)
    lines = said(store)
    assert any(line.startswith("summary.json: verified is ") for line in lines)
    assert any(line.startswith("summary.json: unknown is ") for line in lines)


def test_a_missing_line(store):
    index = store.one("verified")["index"]
    store.write([line for line in store.lines if line["index"] != index])
    assert f"image {index}: summary.json counts it, verdicts.jsonl has no line of it" in said(store)


def test_a_settled_image_settled_otherwise(store):
    lines = store.lines
    line = store.one("verified")
    other = {**line, "verdict": "falsified", "by": "pgd"}
    store.write([other, *lines])
    place = 2 + [x["index"] for x in lines].index(line["index"])
    expected = f"image {line['index']}: falsified in line 1 and verified in line {place} of"
    (found,) = said(store)
    assert found.startswith(expected)


def test_an_open_image_settled_later_is_a_note(store):
    line = store.one("verified")
    store.write([{**line, "verdict": "unknown", "by": None}, *store.lines])
    assert said(store) == []
    (note,) = read_folder(store.path).notes
    assert note == f"1 images have several lines, the last counts: {line['index']}"


@pytest.mark.parametrize("line", ["", "{}", "no", '{"index": 1}', "[1]", '{"index": "1"}'])
def test_a_line_that_is_none(store, line):
    text = (store.path / "verdicts.jsonl").read_text()
    (store.path / "verdicts.jsonl").write_text(line + "\n" + text)
    assert said(store) == ["line 1 of verdicts.jsonl is no verdict"]


def test_a_torn_line_is_left_where_it_is(store):
    with open(store.path / "verdicts.jsonl", "a") as file:
        file.write('{"index": 7')
    before = (store.path / "verdicts.jsonl").read_bytes()
    assert read_folder(store.path).notes == ["the last line of verdicts.jsonl is torn: left out"]
    assert (store.path / "verdicts.jsonl").read_bytes() == before


def test_a_damaged_summary(store):
    (store.path / "summary.json").write_text("{")
    assert said(store) == ["summary.json is damaged"]


def test_no_summary_is_a_note(store):
    (store.path / "summary.json").unlink()
    assert said(store) == []
    assert read_folder(store.path).notes == ["no summary.json: the certification has not ended"]


def test_a_summary_of_an_earlier_version(store):
    path = store.path / "summary.json"
    summary = json.loads(path.read_text())
    del summary["indices"]
    path.write_text(json.dumps(summary))
    assert said(store) == []
    store.change_summary(images=3)
    assert said(store) == ["summary.json does not say which images it is about"]
