"""Reading a folder, and its sums."""

import json

import pytest

from maar.certification.audit.counts import recount
from maar.certification.audit.folder import read_folder
from maar.core.errors import RunError, UsageError
from maar.records.stores import key_of


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
    assert "manifest.json: its seal does not fit, so it was changed" in said(store)
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
    other = {**store.one("falsified"), "index": line["index"], "label": line["label"]}
    other["target"] = (line["label"] + 1) % 10
    store.write([other, *lines])
    place = 2 + [x["index"] for x in lines].index(line["index"])
    expected = f"image {line['index']}: falsified in line 1 and verified in line {place} of"
    (found,) = said(store)
    assert found.startswith(expected)


def test_an_open_image_settled_later_is_a_note(store):
    line = store.one("verified")
    earlier = {**store.one("unknown"), "index": line["index"], "label": line["label"]}
    earlier["open"] = [(line["label"] + 1) % 10]
    store.write([earlier, *store.lines])
    assert said(store) == []
    (note,) = read_folder(store.path).notes
    assert note == f"1 images have several lines, the last counts: {line['index']}"


@pytest.mark.parametrize("line", ["", "{}", "no", '{"index": 1}', "[1]", '{"index": "1"}'])
def test_a_line_that_is_none(store, line):
    text = (store.path / "verdicts.jsonl").read_text()
    (store.path / "verdicts.jsonl").write_text(line + "\n" + text)
    assert sum(each.startswith("line 1 of verdicts.jsonl is no verdict (") for each in said(store))
    assert "line 1 of verdicts.jsonl has no seal" in said(store)


def test_a_seal_that_does_not_fit(store):
    path = store.path / "verdicts.jsonl"
    lines = path.read_text().splitlines()
    lines[3] = lines[3].replace('"seconds": ', '"seconds":  ')  # not even a number is another
    path.write_text("\n".join(lines) + "\n")
    (line,) = said(store)
    assert "line 4 of verdicts.jsonl does not fit its seal" in line


@pytest.mark.parametrize("gone", [[0], [5], [31, 32]])
def test_lines_that_were_cut_out(store, gone):
    path = store.path / "verdicts.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for n, line in enumerate(lines) if n not in gone))
    (store.path / "summary.json").write_text((store.path / "summary.json").read_text())
    texts = said(store)
    assert f"summary.json counts 33 lines, verdicts.jsonl has {33 - len(gone)}" in texts
    assert any(" does not fit its seal" in text for text in texts) == (gone[-1] < 32)


def test_which_images_the_folder_has(store):
    store.write([line for line in store.lines if line["index"] not in (3, 4)])
    store.recount()
    assert said(store) == []
    asked, choice = read_folder(store.path).notes
    assert asked == "2 of the 33 images that were asked for have no line: 3, 4"
    assert choice.startswith("the folder has a choice of 31 images (0, 1, 2, 5, ")


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


def earlier(store):
    """Write the folder as format 2 has it."""
    manifest = {k: v for k, v in store.manifest.items() if k not in ("seal", "asked")}
    manifest |= {"format": 2, "key": key_of(manifest["subject"], 2)}
    (store.path / "manifest.json").write_text(json.dumps(manifest))
    lines = [
        {k: v for k, v in x.items() if k not in ("seal", "counterexample")} for x in store.lines
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (store.path / "verdicts.jsonl").write_text(text)
    store.change_summary(key=manifest["key"])


def test_a_summary_of_an_earlier_version(store):
    earlier(store)
    (note,) = read_folder(store.path).notes
    assert note.startswith("format 2 has no seals")
    path = store.path / "summary.json"
    summary = json.loads(path.read_text())
    del summary["indices"]
    path.write_text(json.dumps(summary))
    assert said(store) == []
    store.change_summary(images=3)
    assert said(store) == ["summary.json does not say which images it is about"]
