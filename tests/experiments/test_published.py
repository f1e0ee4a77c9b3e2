"""Published numbers: those of the paper to the digit, each with its source."""

import pytest

from maar.core.errors import UsageError
from maar.experiments.published import FILE, everything, published, read
from maar.experiments.tables import experiment, experiments, settings

# Table 1 and what was published since, as in the paper's source: system -> ACC / CR by setting.
KNOWN = {
    "maar": ("77.7 / 62.8", "47.6 / 29.8", "99.1 / 97.3"),
    "colt": ("80.0 / 58.6", "51.3 / 26.7", "99.2 / 97.1"),
    "crown_ibp": ("61.6 / 48.6", "48.5 / 26.3", "98.7 / 96.6"),
    "ibp": ("58.0 / 47.8", "47.8 / 24.9", "98.8 / 95.8"),
    "rs": ("61.1 / 45.9", "40.5 / 20.3", "99.0 / 95.6"),
    "diffai": ("62.3 / 45.5", "46.2 / 27.2", "98.7 / 96.8"),
    "ibp_shi": ("66.84 / 52.85", "48.94 / 34.97", "98.84 / 97.95"),
    "sabr": ("79.24 / 62.84", "52.38 / 35.13", "99.23 / 98.22"),
    "mtl_ibp": ("80.11 / 63.24", "53.35 / 35.44", "99.25 / 98.38"),
    "staps": ("79.76 / 62.98", "52.82 / 34.65", "99.15 / 98.37"),
    "cc_ibp": ("80.09 / 63.78", "53.71 / 35.27", "99.30 / 98.43"),
}
# CR / latent robustness after each stage, CIFAR-10 2/255.
STAGES = {
    "maar": ("54.1/58.3", "57.5/60.1", "60.7/62.0", "62.8/64.7"),
    "colt": ("40.0/47.5", "48.2/54.5", "57.7/60.8", "59.6/62.1"),
}
ORDER = ("cifar10-2_255", "cifar10-8_255", "mnist-0.1")
LATER = ("ibp_shi", "sabr", "mtl_ibp", "staps", "cc_ibp")


@pytest.mark.parametrize("system", KNOWN)
def test_accuracy_and_certified_robustness(system):
    for setting, text in zip(ORDER, KNOWN[system], strict=True):
        numbers = published(system, setting)[0].numbers
        assert [numbers.accuracy, numbers.certified] == [float(x) for x in text.split("/")]


@pytest.mark.parametrize("system", STAGES)
def test_stages(system):
    for stage, text in enumerate(STAGES[system], 1):
        (entry,) = published(system, "cifar10-2_255", stage)
        found = [entry.numbers.certified, entry.numbers.latent_robustness]
        assert found == [float(x) for x in text.split("/")]


def test_the_ablation():
    assert published("maar_uniform", "cifar10-2_255")[0].numbers.certified == 60.8
    assert published("maar", "cifar10-2_255")[0].numbers.certified == 62.8


def test_numbers_that_contradict_each_other_are_both_kept():
    first, second = published("colt", "cifar10-2_255")
    assert (first.numbers.certified, second.numbers.certified) == (58.6, 59.6)
    assert "58.6" in second.warning
    assert "58.6" in published("colt", "cifar10-2_255", 4)[0].warning


def test_other_networks_and_verifiers_say_so():
    for entry in everything():
        assert entry.source.title
        assert entry.source.comparable == (entry.source.caveat == "")
    for system in LATER:
        (entry,) = published(system, "mnist-0.1")
        assert not entry.source.comparable
        assert "CNN7" in entry.warning


def test_shares_are_parts_of_one():
    assert published("maar", "mnist-0.1")[0].shares == {"accuracy": 0.991, "certified": 0.973}


def test_what_experiments_refer_to_is_there():
    systems = {entry.system for entry in everything()}
    for each in map(experiment, experiments()):
        assert set(each.beside) <= systems
        for row in each.rows:
            # MAT is in the paper's figures only
            assert row.system in systems | {"", "mat"}


MISTAKES = [
    ('source = "table1"', 'source = "table2"', "unknown source 'table2'; did you mean 'table1'"),
    ("accuracy = 77.7", "accuracy = 777", "accuracy = 777 must be at least 0 and at most 100"),
    ("accuracy = 77.7", "acuracy = 77.7", "unknown key 'acuracy'; did you mean 'accuracy'"),
    ('"cifar10-2_255" = { acc', '"cifar10-3_255" = { acc', "unknown key 'cifar10-3_255'"),
    ('system = "maar"\n', "", "system is missing"),
    ("comparable = true", 'comparable = "yes"', "comparable = 'yes' is not true or false"),
]


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES)
def test_a_mistake_is_one_line(tmp_path, old, new, message):
    text = FILE.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "published.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as error:
        read(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_number_needs_a_setting(tmp_path):
    path = tmp_path / "published.toml"
    path.write_text(
        '[sources.s]\ntitle = "t"\nnetwork = "n"\nverifier = "v"\ncomparable = true\n'
        '[[numbers]]\nsystem = "maar"\nsource = "s"\n'
    )
    with pytest.raises(UsageError, match="no setting"):
        read(path)
    assert set(settings()) == {*ORDER, "mnist-0.3"}  # (of which the paper says nothing)
