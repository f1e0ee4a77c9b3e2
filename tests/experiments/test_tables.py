"""Experiments as data: complete, and mistakes told in one line."""

import pytest

from maar.certification.presets import PRESETS
from maar.core.errors import UsageError
from maar.experiments.tables import experiment, experiments, profiles, settings

NAMES = {
    *("table1", "fig2", "fig-eps", "fig-lambda", "fig-stages", "table-stages"),
    *("ablation-weights", "beyond-1", "methods", "mnist-0.3"),
}
GOOD = """
title = "mine"
of = "mine"
about = "mine"
kind = "table"
settings = ["mnist-0.1"]
[[rows]]
label = "IBP"
method = "ibp"
"""


def test_every_table_and_figure_is_there():
    assert set(experiments()) == NAMES
    for name in experiments():
        found = experiment(name)
        assert found.name == name
        assert set(found.settings) <= set(settings())


def test_table1_is_the_papers_six_systems_and_mat():
    rows = experiment("table1").rows
    methods = [row.method for row in rows]
    assert methods == ["maar", "colt", "mat", "crown_ibp", "ibp", "rs", "diffai"]
    assert [row.seeds for row in rows[:3]] == [(0, 1, 2)] * 3
    assert len(experiment("table1").settings) == 3


def test_lambda_is_the_papers():
    assert [row.flags["lam"] for row in experiment("fig-lambda").rows] == [2, 4, 6, 8, 10]


def test_profiles():
    assert list(profiles()) == ["smoke", "cpu", "small", "long", "gpu", "paper"]
    assert [profile.reduced for profile in profiles().values()] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]
    assert all(profile.preset in PRESETS for profile in profiles().values())
    assert profiles()["paper"].limit is None


def test_ones_own_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert experiment(str(path)).rows[0].label == "IBP"


MISTAKES = [
    ('kind = "table"', 'kind = "tabel"', "did you mean 'table'"),
    ('title = "mine"', "", "title is missing"),
    ('method = "ibp"', 'methd = "ibp"', "row 1: unknown key 'methd'; did you mean 'method'"),
    ('"mnist-0.1"', '"mnist-0.2"', "unknown setting 'mnist-0.2'; did you mean 'mnist-0.3'"),
    ('method = "ibp"', 'method = "ibp"\nflags = 3', "flags = 3 is not a table"),
    ('method = "ibp"', 'method = "ibp"\nseeds = ["a"]', "is not a whole number"),
    ('title = "mine"', "title = ", "is not valid TOML"),
    ('method = "ibp"', 'method = "ibq"', "unknown method 'ibq'; did you mean 'ibp'"),
    ('method = "ibp"', 'method = "ibp"\nseeds = []', "row 'IBP': seeds = []"),
    ('method = "ibp"', 'method = "ibp"\npublished = "ibq"', "unknown published system 'ibq'"),
    ('kind = "table"', 'kind = "table"\nbeside = ["sab"]', "unknown published system 'sab'"),
]


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES)
def test_a_mistake_is_one_line(tmp_path, old, new, message):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(UsageError) as error:
        experiment(str(path))
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_a_name_that_is_none():
    with pytest.raises(UsageError, match="did you mean 'table1'"):
        experiment("table2")
    with pytest.raises(UsageError, match=r"nowhere\.toml cannot be read"):
        experiment("nowhere.toml")
    with pytest.raises(UsageError, match="unknown experiment 'published'"):
        experiment("published")
