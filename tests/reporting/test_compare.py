"""Two certifications side by side: counts, what is refused, and what open images leave open."""

import json

import pytest

from maar.core.errors import RunError, UsageError
from maar.core.seals import seal_line, sealed
from maar.records.checks import spans
from maar.records.stores import key_of
from maar.reporting.compare import compare

BROKEN = {"target": 1, "margin": -0.5}
OPEN = {"by": None, "open": [1], "limit": None}
WORDS = {
    "v": {"verdict": "verified", "by": "crown", "lb": 0.5},
    "f": {"verdict": "falsified", "by": "crown", **BROKEN},
    "m": {"verdict": "misclassified", "by": "misclassified", **BROKEN},
    "u": {"verdict": "unknown", **OPEN},
    "e": {"verdict": "error", **OPEN, "error": "why"},
}


def times(verdict):
    return dict.fromkeys(["misclassified"] if verdict == "m" else ["misclassified", "crown"], 0.0)


def store(path, verdicts, eps=0.1, data="d" * 64, weights="w" * 64, split="test", **facts):
    """A certification of images 0, 1, ... with these verdicts, one letter each; `-`: none."""
    path.mkdir(parents=True)
    subject = {"weights": weights, "data": data, "split": split, "eps": eps, "verifiers": []}
    manifest = {
        "subject": subject,
        "network": path.parts[-2],
        "data": "mnist",
        "split": split.partition(" ")[0],
        "images": 10_000,
        "verifiers": ["misclassified", "crown"],
        "asked": spans(range(len(verdicts))),
        **facts,
    }
    manifest |= {"key": key_of(subject), "format": 3}
    (path / "manifest.json").write_text(json.dumps(sealed(manifest)))
    lines = [
        {"index": i, "label": 0, "seconds": 0, "times": times(v), **WORDS[v]}
        for i, v in enumerate(verdicts)
        if v != "-"
    ]
    content, seal = b"", key_of(subject)
    for line in lines:
        text, seal = seal_line(seal, line)
        content += text + b"\n"
    (path / "verdicts.jsonl").write_bytes(content)
    return path


def run(path, verdicts, config="", **about):
    """The folder of a run with one certification."""
    store(path / "certify" / "eps-1", verdicts, weights=path.name * 32, **about)
    (path / "config.toml").write_text(f"seed = 0\n{config}")
    return path


def test_the_four_counts(tmp_path):
    one = run(tmp_path / "a", "vvvvfuvm")
    other = run(tmp_path / "b", "vvufvuve")
    [pair] = compare((one, other)).comparisons
    assert (pair.certified.b, pair.certified.c, pair.certified.n) == (2, 1, 8)
    assert pair.only(pair.a, pair.b) == [2, 3]
    assert pair.only(pair.b, pair.a) == [4]
    assert pair.pairs()["certified", "certified"] == 3
    assert (pair.open(pair.a), pair.open(pair.b)) == (1, 3)
    found = pair.to_json()
    assert (found["a"]["certified"], found["b"]["certified"]) == (5 / 8, 4 / 8)
    assert found["a"]["certified_upper"] == 6 / 8
    assert found["certified_test"]["p_exact"] == 1.0
    json.dumps(found, allow_nan=False)


def test_a_radius_without_common_images_does_not_hide_the_others(tmp_path):
    one, other = run(tmp_path / "a", "vv"), run(tmp_path / "b", "vf")
    for path, verdicts in ((one, "v--"), (other, "--v")):
        store(path / "certify" / "eps-2", verdicts, eps=0.2, weights=path.name * 32)
    found = compare((one, other))
    assert [pair.a.eps for pair in found.comparisons] == [0.1]
    assert "have no image in common" in found.problems[0]


def test_open_images_from_both_ends(tmp_path):
    one, other = run(tmp_path / "a", "vvufu"), run(tmp_path / "b", "vfvvu")
    best_for_b, best_for_a = compare((one, other)).comparisons[0].extremes
    # B's open image is robust and A's are not: only A has 1; only B has 2, 3 and 4
    assert (best_for_b.b, best_for_b.c) == (1, 3)
    # and the other way round: only A has 1 and 4; only B has 3
    assert (best_for_a.b, best_for_a.c) == (2, 1)


def test_every_eps_that_both_have(tmp_path):
    one, other = run(tmp_path / "a", "vv"), run(tmp_path / "b", "vf")
    store(one / "certify" / "eps-2", "uf", eps=0.2, weights="a" * 32)
    store(other / "certify" / "eps-2", "uu", eps=0.2, weights="b" * 32)
    store(other / "certify" / "eps-3", "uu", eps=0.3, weights="b" * 32)
    assert [pair.a.eps for pair in compare((one, other)).comparisons] == [0.1, 0.2]


def test_several_certifications_of_one_network_are_taken_together(tmp_path):
    one, other = run(tmp_path / "a", "vu-u"), run(tmp_path / "b", "uuuu")
    store(
        one / "certify" / "eps-2",
        "uvfu",
        weights="a" * 32,
        verifiers=["misclassified", "crown", "bab"],
    )
    [pair] = compare((one, other)).comparisons
    assert list(pair.a.verdicts.values()) == ["verified", "verified", "falsified", "unknown"]
    assert pair.a.verifiers == ("misclassified", "crown", "bab")
    store(one / "certify" / "eps-3", "f", weights="a" * 32)
    with pytest.raises(RunError, match="image 0 is both verified and falsified"):
        compare((one, other))


def test_only_images_that_both_have_count(tmp_path):
    one, other = run(tmp_path / "a", "vvvv"), run(tmp_path / "b", "-fv-")
    [pair] = compare((one, other)).comparisons
    assert pair.images == (1, 2)


def test_settings_that_differ_but_not_the_machine(tmp_path):
    one = run(tmp_path / "a", "v", "threads = 1\n[method]\nname = 'maar'\nlam = 6.0\n")
    other = run(tmp_path / "b", "v", "threads = 2\n[method]\nname = 'pgd'\n")
    expected = (("method.name", "maar", "pgd"), ("method.lam", "6.0", ""))
    assert compare((one, other)).settings == expected


def test_a_method_around_another_is_compared_with_that(tmp_path):
    base = "eps_factor = {}\nlam = 3.0\n"
    maar = "[method]\nname = 'maar'\nlam = 6.0\n[method.base]\nname = 'sabr'\n" + base.format(1.0)
    one = run(tmp_path / "a", "v", maar)
    other = run(tmp_path / "b", "v", "[method]\nname = 'sabr'\n" + base.format(1.2))
    rows = {key: values for key, *values in compare((one, other)).settings}
    assert rows == {
        "method.name": ["maar", "sabr"],
        "method.lam": ["6.0", "3.0"],
        "method.base.lam": ["3.0", ""],
        "method.eps_factor": ["1.0", "1.2"],
    }
    third = run(tmp_path / "c", "v", maar.replace("1.0", "1.1"))
    assert compare((one, third)).settings == (("method.base.eps_factor", "1.0", "1.1"),)


def test_a_bare_certification_and_a_network_without_a_run(tmp_path):
    one = run(tmp_path / "a", "vv")
    bare = run(tmp_path / "b", "vf") / "certify" / "eps-1"
    store(tmp_path / "certs" / "zoo-x" / "eps-1", "fv", weights="z" * 32)
    assert compare((one, bare)).comparisons[0].certified.b == 1
    zoo = compare((one, tmp_path / "certs" / "zoo-x"))
    assert (zoo.comparisons[0].certified.b, zoo.settings) == (1, ())


def test_the_weights_of_a_stage(tmp_path):
    one, other = run(tmp_path / "a", "v"), run(tmp_path / "b", "v")
    for path in (one, other):
        source = {"weights": "stage-1-last"}
        store(path / "certify" / "eps-9", "u", weights="s" * 32, source=source)
    assert compare((one, other)).comparisons[0].a.verdicts == {0: "verified"}
    assert compare((one, other), "stage-1-last").comparisons[0].a.verdicts == {0: "unknown"}
    with pytest.raises(UsageError, match="no certification of stage-2-last; there are some of"):
        compare((one, other), "stage-2-last")


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"data": "e" * 64}, "different images: mnist test with hash dddddddd, .* eeeeeeee"),
        ({"eps": 0.2}, "nothing to compare: a was certified on mnist test at eps 0.1, b on .*0.2"),
        ({"split": "valid 5000"}, "nothing to compare: .*, b on mnist valid 5000 at eps 0.1"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, about, message):
    one, other = run(tmp_path / "a", "v"), run(tmp_path / "b", "v", **about)
    with pytest.raises(UsageError, match=message):
        compare((one, other))


def test_no_image_in_common(tmp_path):
    one, other = run(tmp_path / "a", "v-"), run(tmp_path / "b", "-v")
    with pytest.raises(UsageError, match="no image in common"):
        compare((one, other))


def test_a_folder_of_several_runs_is_not_one(tmp_path):
    run(tmp_path / "runs" / "a", "v")
    one = run(tmp_path / "runs" / "b", "v")
    with pytest.raises(UsageError, match="holds 2 runs or networks"):
        compare((one, tmp_path / "runs"))
