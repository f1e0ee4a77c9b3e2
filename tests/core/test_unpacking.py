"""JSON, TOML and whole files: too large, too deep or damaged is a `ValueError` or one line."""

import time

import pytest

from maar.config.load import load
from maar.core import limits
from maar.core.errors import MaarError, RunError, UsageError
from maar.core.unpacking import parse_json, parse_toml, read_json, read_limited
from maar.records.reading import Reader
from maar.records.runs import read_run
from maar.records.stores import VERDICT_LINES, read_manifest
from maar.training.checkpoint import load_weights

DEEP = {"[": "[" * 100_000, "{": '{"a":' * 100_000}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_deep_json(text):
    with pytest.raises(ValueError, match="brackets"):
        parse_json(text)


def test_json_and_toml_are_read():
    assert parse_json('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert parse_toml("a = [1, 2]\n[b.c]\nd = 'x'") == {"a": [1, 2], "b": {"c": {"d": "x"}}}


def test_large_json_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # (takes no room on the disk)
    with pytest.raises(ValueError, match=r"x\.json has 1099511627776 bytes .* up to 67108864"):
        read_json(path)
    with pytest.raises(UsageError, match=r"x\.json: bytes: 1099511627776 .* up to 1000"):
        read_limited(path, 1000)
    monkeypatch.setattr(limits, "JSON_BYTES", 10)
    with pytest.raises(ValueError, match=r"JSON of 11 bytes \(accepted: up to 10\)"):
        parse_json(" " * 11)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + "[" * 3000, "brackets"),
        (".".join("a" * 100_000) + " = 1", "a line of TOML of 200003 characters"),
        ("a = 1\n" * 50_000, "TOML of 300000 characters"),
        ("a = ", "Invalid value"),
    ],
)
def test_toml_of_no_use(tmp_path, text, words):
    begin = time.process_time()
    with pytest.raises(ValueError, match=words):
        parse_toml(text)
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"config\.toml"):
        load(path)
    assert read_run(tmp_path).state == "damaged"
    reader = Reader()
    assert reader.toml(path) == {}
    assert len(reader.problems) == 1
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_stores_and_runs_with_deep_json(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(RunError, match=r"manifest\.json is damaged"):
        read_manifest(tmp_path)
    (tmp_path / "verdicts.jsonl").write_text(f"{text}\n")
    with pytest.raises(RunError, match=r"manifest\.json is damaged"):
        VERDICT_LINES.read(tmp_path)
    reader = Reader()
    assert reader.json(tmp_path / "manifest.json") == {}
    assert reader.lines(tmp_path / "verdicts.jsonl") == []
    assert len(reader.problems) == 2


def test_large_files_of_stores_and_runs(tmp_path):
    for name in ("verdicts.jsonl", "model.safetensors"):
        with open(tmp_path / name, "wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(UsageError, match=r"verdicts\.jsonl: bytes: 1099511627776"):
        VERDICT_LINES.read(tmp_path)
    with pytest.raises(UsageError, match=r"model\.safetensors: bytes: 1099511627776"):
        load_weights(tmp_path / "model.safetensors")
    reader = Reader()
    assert reader.lines(tmp_path / "verdicts.jsonl") == []
    assert "1099511627776 bytes" in reader.problems[0]


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_weights_with_a_deep_header(tmp_path, text):
    head = text.encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(head).to_bytes(8, "little") + head)
    with pytest.raises(MaarError, match="cut or damaged"):
        load_weights(path)
