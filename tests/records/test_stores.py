import json

import numpy as np
import pytest

from maar.core.errors import RunError, UsageError
from maar.core.seals import seal_line, sealed
from maar.records.checks import indices_of
from maar.records.stores import FORMAT, VERDICT_LINES, key_of
from maar.records.writing import open_store

SUBJECT = {"weights": "a" * 64, "data": "b" * 64, "eps": 0.1, "verifiers": ["Crown(x=1)", "Pgd()"]}
NAMES = ["crown", "pgd"]
FACTS = {"network": "n", "data": "d", "split": "test", "images": 50, "verifiers": NAMES}
MORE = {
    "verified": {"by": "crown", "lb": 0.5},
    "unknown": {"by": None, "open": [0], "limit": 9.0},
    "falsified": {"by": "crown", "margin": -0.5, "target": 0},
}


def verdict(index, verdict="verified"):
    line = {"index": index, "label": 1, "verdict": verdict, "seconds": 0.1, "times": {"crown": 0.1}}
    return {**line, **MORE[verdict]}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "new" / "store"
    with open_store(path, SUBJECT, FACTS) as store:
        store.ask(range(10))
        for index in range(3):
            store.add(verdict(index), None)
    return path


def read(path, subject=SUBJECT):
    with open_store(path, subject, {}) as store:
        return store.records


def test_what_was_added_is_there(path):
    assert read(path) == {index: verdict(index) for index in range(3)}
    assert json.loads((path / "manifest.json").read_text())["key"] == key_of(SUBJECT)


def test_a_later_line_counts(path):
    with open_store(path, SUBJECT, {}) as store:
        store.add(verdict(5, "unknown"), None)
        store.add(verdict(5), None)
    assert read(path)[5]["verdict"] == "verified"
    assert len((path / "verdicts.jsonl").read_text().splitlines()) == 5


@pytest.mark.parametrize("later", ["unknown", "falsified", "verified"])
def test_no_line_follows_a_proof(path, later):
    with (
        open_store(path, SUBJECT, {}) as store,
        pytest.raises(RunError, match=r"verdicts\.jsonl: image 1 "),
    ):
        store.add(verdict(1, later), None)
    assert len(read(path)) == 3


@pytest.mark.parametrize("cut", [1, 2, 30, 60])
def test_a_torn_last_line_is_dropped(path, cut):
    file = path / "verdicts.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    assert sorted(read(path)) == [0, 1]
    with open_store(path, SUBJECT, {}) as store:
        store.add(verdict(2), None)
    assert file.read_bytes() == whole


def test_a_damaged_line_is_not_skipped_over(path):
    file = path / "verdicts.jsonl"
    lines = file.read_text().splitlines()
    for bad in ("", "{", "[]", "7", '{"index": 1}', "\0\0"):
        file.write_text("\n".join([lines[0], bad, lines[2]]) + "\n")
        with pytest.raises(RunError, match="line 2 is no verdict"):
            read(path)


def test_a_number_that_no_float_holds_is_a_damaged_line(path):
    manifest = json.loads((path / "manifest.json").read_text())
    seal, lines = manifest["key"], b""
    for index in range(3):
        line, seal = seal_line(seal, {**verdict(index), "lb": int("9" * 400)})
        lines += line + b"\n"
    (path / "verdicts.jsonl").write_bytes(lines)
    with pytest.raises(RunError, match="line 1 is no verdict: lb is 999"):
        VERDICT_LINES.read(path)


def test_a_reader_that_is_told_gets_what_is_whole(path):
    file = path / "verdicts.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], "{", lines[2]]) + "\n")
    faults = []
    assert sorted(VERDICT_LINES.read(path, faults.append).records) == [0, 2]
    assert ["line 2" in fault for fault in faults] == [True, True, False]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"eps": 0.2}, "eps: 0.1 there, 0.2 here"),
        ({"weights": "c" * 64}, "weights: aaaaaaaa there, cccccccc here"),
        ({"data": "c" * 64}, "data: bbbbbbbb there, cccccccc here"),
        ({"verifiers": ["Pgd()"]}, "verifiers: Crown.x=1. only there"),
        ({"verifiers": ["Crown(x=2)", "Pgd()"]}, "verifiers: "),
    ],
)
def test_another_subject_is_refused(path, change, said):
    with pytest.raises(UsageError, match=said) as error:
        read(path, {**SUBJECT, **change})
    assert "\n" not in str(error.value)
    assert len(read(path)) == 3


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", f'{{"key": 1, "format": {FORMAT}, "subject": {{}}}}']
)
def test_a_damaged_manifest(path, content):
    (path / "manifest.json").write_text(content)
    with pytest.raises(RunError, match=r"manifest.json is damaged"):
        read(path)


def test_a_manifest_that_was_edited(path):
    there = json.loads((path / "manifest.json").read_text())
    there["subject"]["eps"] = 0.2
    (path / "manifest.json").write_text(json.dumps(there))
    with pytest.raises(RunError, match="damaged"):
        read(path)


@pytest.mark.parametrize("change", [{"network": "better"}, {"preset": "complete"}, {"asked": "0"}])
def test_a_manifest_whose_facts_were_edited(path, change):
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(RunError, match=r"manifest\.json is damaged \(its seal does not fit"):
        read(path)


@pytest.mark.parametrize("change", [{"images": 60}, {"verifiers": ["crown", "bab"]}])
def test_facts_that_follow_from_the_subject_are_not_believed(path, change):
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(sealed({**manifest, **change})))
    (name,) = change
    with (
        pytest.raises(RunError, match=rf"manifest\.json is damaged: {name} is "),
        open_store(path, SUBJECT, FACTS),
    ):
        pass


def test_an_earlier_format_is_read_but_not_continued(path):
    manifest = json.loads((path / "manifest.json").read_text())
    earlier = {k: v for k, v in manifest.items() if k not in ("seal", "asked")}
    earlier |= {"format": 2, "key": key_of(SUBJECT, 2)}
    (path / "manifest.json").write_text(json.dumps(earlier))
    lines = "".join(json.dumps(verdict(index)) + "\n" for index in range(3))
    (path / "verdicts.jsonl").write_text(lines)
    assert VERDICT_LINES.read(path).lines == [verdict(index) for index in range(3)]
    with pytest.raises(UsageError, match=f"format 2 there, {FORMAT} here"):
        read(path)


def test_asked_for_is_what_any_call_asked_for(path):
    with open_store(path, SUBJECT, {}) as store:
        store.ask([12, 11, 3])
    with open_store(path, SUBJECT, {}) as store:
        assert store.manifest.content["asked"] == "0-9,11-12"
        assert store.asked == {*range(10), 11, 12}


@pytest.mark.parametrize("text", ["0-", "-1", "a", "1-0", "0-50", "0-9,3-60", "0,0-49", None, 3])
def test_a_list_of_images_that_is_none(text):
    with pytest.raises(ValueError, match="image"):
        indices_of(text, 50)


def test_somebody_elses_folder_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="holds something else"):
        read(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(UsageError, match="is not a folder"):
        read(tmp_path / "mine.txt")


def test_two_at_once_are_refused(path):
    with (
        open_store(path, SUBJECT, {}),
        pytest.raises(RunError, match="in use by another maar process"),
        open_store(path, SUBJECT, {}),
    ):
        pass
    assert len(read(path)) == 3


def test_counterexamples_are_plain_arrays(path):
    x = np.random.RandomState(0).rand(1, 4, 4).astype(np.float32)
    with open_store(path, SUBJECT, {}) as store:
        store.add(verdict(7, "falsified"), {"x_adv": x, "label": np.int64(3)})
        with np.load(store.counterexample(7), allow_pickle=False) as file:
            assert (file["x_adv"] == x).all()
            assert file["label"] == 3
        assert store.whole(7) is not None
        # another file in its place is none
        np.savez(store.counterexample(7), x_adv=x, label=np.int64(4))
        assert store.whole(7) is None


def test_equal_subjects_have_equal_keys():
    shuffled = dict(reversed(SUBJECT.items()))
    assert key_of(shuffled) == key_of(SUBJECT)
    assert key_of({**SUBJECT, "eps": 0.1 + 1e-18}) == key_of(SUBJECT)
    assert key_of({**SUBJECT, "eps": np.nextafter(0.1, 1)}) != key_of(SUBJECT)
