"""VNNLIB 2.0 through its package: the same properties as the same files of version 1.0."""

import sys
from fractions import Fraction

import numpy as np
import pytest

from maar.core.errors import RunError, UsageError
from maar.exchange import vnnlib1, vnnlib2

HEAD = """(vnnlib-version <2.0>)
(declare-network net
    (declare-input X float32 [2,2])
    (declare-output Y float32 [1,3])
)
"""
BOX = """(assert (>= X[0,0] 0.0)) (assert (<= X[0,0] 1.0))
(assert (and (>= X[0,1] 0.0) (<= X[0,1] 1.0)))
(assert (>= X[1,0] -0.1)) (assert (<= X[1,0] 0.30000000000000001))
(assert (== X[1,1] 0.5))
"""


def read(text):
    pytest.importorskip("vnnlib")
    return vnnlib2.parse(text, "p.vnnlib")


OLD = {f"X[{i},{j}]": f"X_{2 * i + j}" for i in range(2) for j in range(2)}
OLD |= {f"Y[0,{k}]": f"Y_{k}" for k in range(3)}


def old(text):
    """The same sentence in version 1.0."""
    for new, name in {**OLD, "(==": "(="}.items():
        text = text.replace(new, name)
    declared = "".join(f"(declare-const {name} Real)" for name in OLD.values())
    return vnnlib1.parse(declared + text, "p.vnnlib")


@pytest.mark.parametrize(
    "text",
    [
        "(<= Y[0,0] Y[0,1])",
        "(< (- Y[0,0] Y[0,1] 2.5) (* 2.0 Y[0,2]))",
        "(>= (+ Y[0,0] (* -1.0 Y[0,1])) 0.1)",
        "(> (- Y[0,0]) -3.0)",
        "(== Y[0,0] 3.0)",
        "(or (<= Y[0,0] 1.0) (and (>= X[0,0] 0.5) (or (<= Y[0,1] 0.0) (<= Y[0,2] 0.0))))",
        "(and (<= X[0,0] 0.75) (<= Y[0,0] 1.0))",
    ],
)
def test_the_same_as_version_1(text):
    mine, theirs = read(f"{HEAD}{BOX}(assert {text})"), old(f"{BOX}(assert {text})")
    assert (mine.inputs, mine.outputs) == (theirs.inputs, theirs.outputs) == (4, 3)
    for a, b in zip(mine.cases, theirs.cases, strict=True):
        assert (a.low, a.high) == (b.low, b.high)
        assert np.array_equal(a.lb, b.lb)
        assert np.array_equal(a.ub, b.ub)
        for c, d in zip(a.conditions, b.conditions, strict=True):
            assert np.array_equal(c.A, d.A)
            assert np.array_equal(c.b, d.b)


def test_numbers_are_exact():
    (case,) = read(f"{HEAD}{BOX}(assert (<= Y[0,0] 0.0))").cases
    assert case.high[2] == Fraction("0.30000000000000001")


def test_unequal():
    (case,) = read(f"{HEAD}{BOX}(assert (!= Y[0,0] 1.0))").cases
    assert [condition.b.tolist() for condition in case.conditions] == [[1], [-1]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{HEAD}(assert (<= X[0,0] 1.0)", ["p.vnnlib:6:", "syntax error"]),
        (f"{HEAD}(assert (<= Z[0,0] 1.0))", ["p.vnnlib:6: Undeclared variable: Z"]),
        (f"{HEAD}(assert (<= X[0,7] 1.0))", ["p.vnnlib:6: Index out of bounds", "X[0,7]"]),
        (HEAD.replace("2.0", "1.0") + BOX, ["p.vnnlib:1: ", "<1.0>"]),
        (f"{HEAD}{BOX}(assert (<= (* Y[0,0] Y[0,1]) 1.0))", ["p.vnnlib:10: ", "not linear"]),
        (f"{HEAD}{BOX}(assert (<= X[0,0] Y[0,1]))", ["p.vnnlib:10: X_0 and Y_1"]),
        (f"{HEAD}(assert (<= Y[0,0] 1.0))", ["p.vnnlib: input X_0 has no lower bound"]),
        (
            HEAD
            + HEAD.partition("\n")[2].replace("net\n", "b\n").replace("X", "U").replace("Y", "V")
            + BOX,
            ["about 2 networks"],
        ),
        (
            HEAD.replace("(declare-output", "(declare-input Z float32 [1])\n (declare-output")
            + BOX,
            ["2 inputs"],
        ),
    ],
)
def test_a_mistake_is_one_line(text, words):
    with pytest.raises(UsageError) as error:
        read(text)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "vnnlib", None)
    with pytest.raises(
        RunError, match=r"p\.vnnlib is of VNNLIB 2\.0.*pip install 'maar\[vnnlib\]'"
    ):
        vnnlib2.parse(HEAD, "p.vnnlib")
