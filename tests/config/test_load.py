"""From TOML to a configuration, and each mistake in one line that says where it is."""

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from maar.attacks.pgd import PGD
from maar.config import Config, load, recipes
from maar.config.load import line_of
from maar.core.errors import UsageError
from maar.methods.base import Method
from maar.methods.pgd import PGDTraining
from maar.methods.standard import Standard


@dataclass(frozen=True)
class Wrapper(Method):
    """A method around another, as MAAR is around COLT."""

    name: ClassVar[str] = "wrapper"
    lam: float = 6.0
    base: Method = field(default_factory=lambda: PGDTraining(attack=PGD(steps=40)))


@dataclass(frozen=True)
class Bare(Method):
    """A method around another that has no default."""

    base: Method
    name: ClassVar[str] = "bare"


@pytest.fixture(autouse=True)
def wrappers(monkeypatch):
    """Both methods under their names, without a module."""
    from maar.core.registry import Registry
    from maar.methods import METHODS

    monkeypatch.setitem(METHODS._entries, "wrapper", "")
    monkeypatch.setitem(METHODS._entries, "bare", "")
    own = {"wrapper": Wrapper, "bare": Bare}
    get = Registry.__getitem__
    monkeypatch.setattr(
        Registry, "__getitem__", lambda self, name: own.get(name) or get(self, name)
    )


def written(tmp_path, text):
    path = tmp_path / "my.toml"
    path.write_text(text)
    return path


def test_every_recipe_loads():
    assert {"demo", "standard"} <= set(recipes())
    for name in recipes():
        load(name)


def test_what_is_absent_keeps_its_default(tmp_path):
    config = load(written(tmp_path, 'eps = "2/255"\n[train]\nlr = 1\n'))
    assert config == dataclasses.replace(
        Config(), eps=config.eps, train=dataclasses.replace(Config().train, lr=1.0)
    )
    assert str(config.eps) == "2/255"


def test_knobs_and_groups_of_a_method(tmp_path):
    text = '[method]\nname = "pgd"\nramp = 3\n[method.attack]\nsteps = 4\n'
    assert load(written(tmp_path, text)).method == PGDTraining(ramp=3.0, attack=PGD(steps=4))


def test_methods_nest(tmp_path):
    text = '[method]\nname = "wrapper"\nlam = 2\n[method.base]\nname = "standard"\n'
    assert load(written(tmp_path, text)).method == Wrapper(lam=2.0, base=Standard())


def test_part_of_a_nested_group_changes_that_part_of_its_default(tmp_path):
    """The default here is not the class's own: 40 steps, and step_size is to stay."""
    text = '[method]\nname = "wrapper"\n[method.base.attack]\nstep_size = 0.1\n'
    expected = Wrapper(base=PGDTraining(attack=PGD(steps=40, step_size=0.1)))
    assert load(written(tmp_path, text)).method == expected
    # Named anew it is the same default, since it is the same method.
    text = '[method]\nname = "wrapper"\n[method.base]\nname = "pgd"\nramp = 1\n'
    assert load(written(tmp_path, text)).method == Wrapper(
        base=PGDTraining(ramp=1.0, attack=PGD(steps=40))
    )


MISTAKES = [
    (
        "[train]\nepoch = 3\n",
        r":2: unknown key 'train.epoch'; did you mean 'epochs'\? \(accepted: ",
    ),
    ("esp = 0.1\n", r":1: unknown key 'esp'; did you mean 'eps'\? \(accepted: name, data, "),
    ('\ndata = "mnits"\n', r":2: unknown data set 'mnits'; did you mean 'mnist'\?"),
    ('network = "cnn8"\n', r":1: unknown network 'cnn8'; did you mean 'cnn\d'\?.*FILE.py:FUNCTION"),
    ('method = "pgd"\n', r':1: method = \'pgd\': is a table.*\[method\] name = "pgd"'),
    ('[method]\nname = "pgf"\n', r":2: unknown method 'pgf'; did you mean 'pgd'\?"),
    ("[method]\nname = 3\n", r":2: method.name = 3: is not text"),
    ('[method]\nname = ["ibp"]\n', r":2: method.name = \['ibp'\]: is not text"),
    ('[method]\nname = "pgd"\nlam = 3\n', r":3: unknown key 'method.lam'"),
    (
        '[method]\nname = "pgd"\nattack = {steps = "4"}\n',
        r":3: method.attack.steps = '4': is not a",
    ),
    ('[method]\nname = "pgd"\n[method.attack]\nsteps = -1\n', r":3: method.attack: steps = -1"),
    (
        '[method]\nname = "pgd"\n[method.attack]\nstep = 1\n',
        r":4: unknown key 'method.attack.step'",
    ),
    ('[method]\nname = "bare"\n', r":1: method.base is missing"),
    ('[method]\nname = "bare"\n[method.base]\nramp = 1\n', r":3: method.base.name is missing"),
    ("eps = 2\n", r":1: eps = 2 is larger .* did you mean 2/255\?"),
    ('eps = "8/0"\n', r":1: eps = '8/0' divides by zero"),
    ("eps = -1\n", r":1: eps = -1 is not a radius"),
    ("eps = true\n", r":1: eps = True is not a number"),
    ("seed = 1.5\n", r":1: seed = 1.5: is not a whole number"),
    ("seed = true\n", r":1: seed = true: is not a whole number"),
    ("seed = -1\n", r":1: seed = -1: must be at least 0"),
    ("train = 3\n", r":1: train = 3: is a table, not a value"),
    ("[train]\nbatch = 0\n", r":2: train.batch = 0: must be at least 1"),
    ("train.batch = 0\n", r":1: train.batch = 0: must be at least 1"),
    ("[train]\nlr = 0.0\n", r":2: train.lr = 0.0: must be above 0"),
    (
        '[train]\noptimizer = "sdg"\n',
        r":2: train.optimizer = 'sdg': is not accepted; did you mean 's",
    ),
    ("[train]\nlr_decay_epochs = 3\n", r":2: train.lr_decay_epochs = 3: is not a list"),
    ('[train]\naugment = "crop"\n', r":2: unknown augmentation 'crop'; did you mean 'crop_flip'"),
    ('name = "a/b"\n', r":1: name = 'a/b' is not a folder name"),
    ('name = "../x"\n', r":1: name = '../x' is not a folder name"),
    ('device = "gpu"\n', r":1: device = 'gpu' is unknown; did you mean 'cpu'\?"),
    ("eps = \n", r" is not valid TOML: .*line 1"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_mistake_is_one_line_with_file_line_key_and_what_is_accepted(tmp_path, text, message):
    with pytest.raises(UsageError, match=r"my\.toml" + message) as caught:
        load(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_names_that_lead_nowhere(tmp_path):
    with pytest.raises(UsageError, match=r"unknown recipe 'demoo'; did you mean 'demo'\?"):
        load("demoo")
    with pytest.raises(UsageError, match=r"no such file: nope\.toml"):
        load("nope.toml")
    with pytest.raises(UsageError, match=r"is not a run: it has no config\.toml"):
        load(tmp_path)
    binary = tmp_path / "x.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not a text file in UTF-8"):
        load(binary)


def test_line_of_a_key():
    text = "# eps = 1\na = 1\n[t]\nb = 2\n  [t.u]\nc.d = 3\ne = { f = 4 }\n"
    assert line_of(text, ("a",)) == 2
    assert line_of(text, ("t", "b")) == 4
    assert line_of(text, ("t", "u", "c", "d")) == 6
    assert line_of(text, ("t", "u", "e", "f")) == 7
    assert line_of(text, ("t", "u", "missing")) == 5
    assert line_of(text, ("eps",)) is None
