import json

import numpy as np
import pytest

from maar.certify.store import FORMAT, key_of, open_store
from maar.errors import RunError, UsageError

SUBJECT = {"weights": "a" * 64, "data": "b" * 64, "eps": 0.1, "verifiers": ["Crown(x=1)", "Pgd()"]}


def verdict(index, verdict="verified"):
    return {
        "index": index,
        "label": 1,
        "verdict": verdict,
        "by": "crown",
        "seconds": 0.1,
        "times": {"crown": 0.1},
    }


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "new" / "store"
    with open_store(path, SUBJECT, {"maar": "0"}) as store:
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
        store.add(verdict(1, "unknown"), None)
    assert read(path)[1]["verdict"] == "unknown"
    assert len((path / "verdicts.jsonl").read_text().splitlines()) == 4


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


def test_equal_subjects_have_equal_keys():
    shuffled = dict(reversed(SUBJECT.items()))
    assert key_of(shuffled) == key_of(SUBJECT)
    assert key_of({**SUBJECT, "eps": 0.1 + 1e-18}) == key_of(SUBJECT)
    assert key_of({**SUBJECT, "eps": np.nextafter(0.1, 1)}) != key_of(SUBJECT)
