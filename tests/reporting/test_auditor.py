"""The report for auditors: what it says first, and what it says of the checks."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from maar.core.errors import RunError, UsageError
from maar.core.seals import sealed
from maar.records.audits import AuditOutcome
from maar.records.reading import Reader
from maar.records.stores import VERDICT_LINES, read_manifest
from maar.reporting.auditor import make_audit_report
from maar.reporting.collect import collect
from maar.reporting.model import LEAST_SPAN, Axis, Figure, Series
from maar.reporting.page import render
from maar.reporting.pdf import write_pdf
from maar.reporting.write import read_report

VERDICTS = {"misclassified": 1, "falsified": 2, "verified": 6, "unknown": 1}


@pytest.fixture
def store(tmp_path, make_store):
    return make_store(tmp_path / "store", VERDICTS, network="net <b>.onnx")


def report(store):
    return make_audit_report(collect([store]))


def section(made, id):
    return next(section for section in made.sections if section.id == id)


def said(made, id):
    return " ".join((*section(made, id).lead, *section(made, id).points))


def outcome(store, **changes):
    audit = AuditOutcome(
        key=read_manifest(store).key,
        lines=10,
        last_seal=VERDICT_LINES.read(store).seals[-1],
        images=10,
        of=10,
        verified=6,
        on_trust=2,
        checks={"CROWN": 4, "replayed": 3},
        disagreements=0,
        wrong=[],
        notes=["a note"],
        made="2026-11-18 12:00 UTC",
        maar="0.1",
        machine="a machine",
    )
    return replace(audit, **changes)


def test_it_begins_with_the_claim_in_numbers(store):
    made = report(store)
    assert made.sections[0].id == "claim"
    text = said(made, "claim")
    assert "6 of 10 images (60.0 %) are verified: the network net <b>.onnx answers" in text
    assert "no change of at most 0.1 in every pixel" in text
    assert "so 0.1 is 25.5 of 255 steps" in text
    assert "2 images are falsified (20.0 %)" in text
    assert "1 image is misclassified (10.0 %)" in text
    assert "1 image is unknown (10.0 %)" in text
    assert "The images are 0-9, counted from 0, of the 10,000 test images of mnist." in text
    (counts,) = section(made, "claim").blocks
    assert [row[1].value for row in counts.rows] == [6, 2, 1, 1]
    assert dict(made.facts) == {"verified": "60.0 %", "images": "10", "radius": "0.1"}


def test_another_region_is_never_called_a_radius(store):
    content = json.loads((store / "manifest.json").read_text())
    moves = "eps 1 to 3 in 4 places (0123abcd)"
    (store / "manifest.json").write_text(json.dumps(sealed({**content, "moves": moves})))
    made = report(store)
    text = said(made, "claim")
    assert f"no change of its inputs within {moves} changes the answer" in text
    assert "255 steps" not in text
    assert "maar certify" not in said(made, "repeat")  # flags alone do not repeat it


def test_the_file_of_weights_is_named(store):
    content = json.loads((store / "manifest.json").read_text())
    content["source"] = {"network": "net.py:Net", "weights": "/a/my weights.pt"}
    (store / "manifest.json").write_text(json.dumps(sealed(content)))
    assert read_manifest(store).weights == "model"  # its only ones
    made = report(store)
    assert "--weights '/a/my weights.pt'" in said(made, "repeat")
    facts = {row[0].text: row[1].text for row in section(made, "subject").blocks[0].rows}
    assert facts["weights"] == "/a/my weights.pt"


def test_no_section_is_empty_and_names_are_text(store):
    made = report(store)
    assert all(part.blocks or part.lead or part.points for part in made.sections)
    page = render(made)
    assert "net &lt;b&gt;.onnx" in page
    assert "net <b>" not in page


def test_what_it_is_about_has_both_hashes(store):
    made = report(store)
    facts = {row[0].text: row[1].text for row in section(made, "subject").blocks[0].rows}
    assert facts["hash of the weights"] == read_manifest(store).hash
    assert facts["verifiers"] == "misclassified, crown, pgd (preset complete)"


def test_without_an_audit_it_says_so(store):
    text = said(report(store), "checks")
    assert "No audit is kept beside these verdicts" in text
    assert f"`maar audit {store}`" in text


def test_an_audit_that_agrees(store):
    outcome(store).write(store)
    made = report(store)
    text = said(made, "checks")
    assert "The audit agrees with every line that it checked" in text
    assert "Of 6 verified images it proved 4 again; 2 withstood its attack" in text
    audit, _ = section(made, "checks").blocks
    assert [row[1].value for row in audit.rows] == [4, 3]
    assert audit.notes == ("a note",)


def test_an_audit_that_disagrees(store):
    outcome(store, disagreements=3, wrong=["image 4: its bound is too large"]).write(store)
    text = said(report(store), "checks")
    assert "The audit does NOT agree" in text
    assert "3 disagreements on 10 of 10 images. The first: image 4" in text
    assert "agrees with" not in text


def test_an_audit_of_something_else_counts_nothing(store):
    outcome(store, key="0" * 64).write(store)
    text = said(report(store), "checks")
    assert "about another certification: it counts nothing" in text
    assert "agrees" not in text


def test_an_audit_of_an_earlier_state_does_not_count(store):
    outcome(store, last_seal="0" * 16).write(store)
    text = said(report(store), "checks")
    assert "is of an earlier state: verdicts were added or changed since" in text
    assert "agrees" not in text


@pytest.mark.parametrize("change", [{"lines": "x"}, {"wrong": [1]}, {"checks": {"a": 1.5}}])
def test_a_damaged_audit_is_a_problem(store, change):
    outcome(store).write(store)
    content = json.loads((store / "audit.json").read_text())
    (store / "audit.json").write_text(json.dumps({**content, **change}))
    made = report(store)
    (problem,) = [notice.text for notice in made.notices]
    assert "audit.json is damaged" in problem
    assert "No audit is kept" in said(made, "checks")


@pytest.mark.parametrize(("holds", "words"), [(True, "every claim"), (False, "NOT every claim")])
def test_the_checker_has_its_say(store, holds, words):
    (store / "check.json").write_text(json.dumps({"holds": holds, "checked": 8}))
    text = said(report(store), "checks")
    assert words in text
    assert "(8 certificates checked)" in text
    assert "python -m maar_check" in said(report(store), "repeat")


def test_classes_add_up(store):
    (classes,) = section(report(store), "classes").blocks
    assert [cell.text for cell in classes.rows[0]] == ["7", "60.0", "10", "1", "2", "6", "1"]


def test_several_certifications_have_sections_of_their_own(tmp_path, make_store):
    for eps in (0.1, 0.2):
        make_store(tmp_path / f"eps-{eps}", {"verified": 2}, eps=eps)
    made = make_audit_report(collect([tmp_path]))
    ids = [part.id for part in made.sections]
    assert len(set(ids)) == len(ids)
    blocks = [block.id for part in made.sections for block in part.blocks]
    assert len(set(blocks)) == len(blocks)
    assert made.sections[0].title == "The claim: x, eps 0.1"


def test_runs_without_certifications_are_refused(tmp_path, make_run):
    make_run(tmp_path / "a")
    with pytest.raises(UsageError, match="takes certifications, and there are none"):
        make_audit_report(collect([tmp_path]))


def test_an_unknown_audience(store, tmp_path):
    with pytest.raises(UsageError, match="unknown audience 'audits'; did you mean 'audit'"):
        read_report([store], tmp_path / "out", audience="audits")


def test_without_a_browser_there_is_no_pdf(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "index.html").write_text("x")
    with pytest.raises(RunError, match=r"needs Chromium or Chrome.*index\.html and print it"):
        write_pdf(tmp_path / "index.html", tmp_path / "out.pdf")


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the browser")
def test_a_browser_that_fails_leaves_no_pdf(tmp_path, monkeypatch):
    (tmp_path / "chromium").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "chromium").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    (tmp_path / "index.html").write_text("x")
    with pytest.raises(RunError, match="could not print"):
        write_pdf(tmp_path / "index.html", tmp_path / "out.pdf")
    assert not (tmp_path / "out.pdf").exists()
    assert subprocess.run([str(tmp_path / "chromium")]).returncode == 3


@pytest.mark.parametrize(
    "values", [(0.981, 0.984), (0.999, 1.0), (0.0, 0.001), (0.5, 0.5), (0.1, 0.9), (1.0,)]
)
def test_an_axis_of_shares_does_not_zoom_into_an_image(values):
    x = tuple(map(float, range(len(values))))
    figure = Figure(
        "a", "a", "lines", Axis("x"), Axis("y", is_share=True), (Series("s", x, values),)
    )
    low, high = figure.range
    assert high - low >= LEAST_SPAN * 0.99
    assert low <= min(values)
    assert high >= max(values)
    assert low >= -0.02
    assert high <= 1.02


def test_the_reader_of_audits_has_nothing_to_say_of_an_empty_folder(tmp_path):
    from maar.records.audits import read_audit

    reader = Reader()
    assert read_audit(tmp_path, reader) is None
    assert not reader.problems
