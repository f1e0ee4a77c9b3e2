"""The folder of a report: whole, linked, brought up to date, and nobody else's."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from maar.core.errors import RunError, UsageError
from maar.reporting import static, write
from maar.reporting.write import save, write_report


def test_every_file_that_the_page_links_to_is_there(tmp_path, example):
    save(example, tmp_path / "out")
    blocks = [*example.tables(), *example.figures()]
    wanted = {name for block in blocks for name in block.files.values()}
    there = {
        str(path.relative_to(tmp_path / "out"))
        for folder in ("tables", "figures")
        for path in (tmp_path / "out" / folder).iterdir()
    }
    assert there == wanted
    content = json.loads((tmp_path / "out" / "data" / "report.json").read_text())
    assert content["title"] == example.title


def test_a_report_is_replaced(tmp_path, make_run):
    runs, out = tmp_path / "runs", tmp_path / "out"
    make_run(runs / "a")
    make_run(runs / "b", lam=2.0)
    page = write_report([runs], out, title="First")
    assert (out / "tables" / "config-differences.md").exists()
    (out / "mine.txt").write_text("kept")
    assert write_report([runs / "a"], out, title="Second") == page
    assert not (out / "tables" / "config-differences.md").exists()
    assert (out / "mine.txt").exists()
    assert "Second" in page.read_text()


def test_only_figures_that_changed_are_drawn_again(tmp_path, example, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        static, "draw", lambda figure: drawn.append(figure.id) or {"svg": b"s", "pdf": b"p"}
    )
    ids = [figure.id for figure in example.figures()]
    save(example, tmp_path)
    assert drawn == ids
    save(example, tmp_path)
    assert drawn == ids
    assert (tmp_path / "figures" / f"{ids[0]}.svg").read_bytes() == b"s"
    (tmp_path / "figures" / f"{ids[1]}.pdf").unlink()
    save(example, tmp_path)
    assert drawn == [*ids, ids[1]]
    save(replace(example, sections=example.sections[:2], version="0"), tmp_path)
    save(example, tmp_path)
    assert drawn == [*ids, ids[1], *ids]


def test_only_what_a_report_writes_is_ever_removed(tmp_path, example):
    (tmp_path / "out" / "data").mkdir(parents=True)
    (tmp_path / "mine.csv").write_text("kept")
    content = {"files": ["../mine.csv", "tables/../../mine.csv", 3]}
    (tmp_path / "out" / "data" / "report.json").write_text(json.dumps(content))
    save(example, tmp_path / "out")
    assert (tmp_path / "mine.csv").exists()


def test_folders_of_something_else_are_refused(tmp_path, make_run):
    run = make_run(tmp_path / "a")
    with pytest.raises(UsageError, match="holds something else"):
        write_report([run], run)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is not a folder"):
        write_report([run], tmp_path / "file")


def test_without_the_extra(tmp_path, make_run, monkeypatch):
    run = make_run(tmp_path / "a")
    monkeypatch.setattr(write, "NEEDED", ("jinja2", "nothing_of_this_name"))
    with pytest.raises(RunError, match=r"needs nothing_of_this_name: pip install 'maar\[report\]'"):
        write_report([run], tmp_path / "out")


def test_without_scripts_there_are_pictures(tmp_path, example):
    save(example, tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert page.count('src="data:image/svg+xml;base64,') == len(example.figures())


def test_a_folder_need_not_be_named_in_utf8(tmp_path, make_run, make_store):
    runs = tmp_path / "runs"
    make_run(runs / "cafe")
    odd = make_run(Path(os.fsdecode(os.fsencode(runs) + b"/caf\xe9")), seed=1)
    make_store(odd / "certify" / "s", {"verified": 3, "falsified": 1})
    assert "caf\ufffd" in write_report([runs], tmp_path / "report").read_text()
