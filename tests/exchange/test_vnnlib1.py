"""The parser of VNNLIB 1.0: what a file means, exactly, and one line with a place for mistakes."""

import contextlib
import itertools
import math
import re
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from maar.core.errors import UsageError
from maar.exchange.vnnlib1 import parse

HEAD = """; a comment (with parentheses)
(declare-const X_0 Real)
(declare-fun X_1 () Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
"""
BOX = "(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (>= X_1 -1)) (assert (<= X_1 0.5))"


def read(text):
    return parse(HEAD + text, "p.vnnlib")


def only(text):
    """The only case of a property about the usual box."""
    (case,) = read(BOX + text).cases
    return case


def rows(condition):
    return [(*row, b) for row, b in zip(condition.A.tolist(), condition.b.tolist(), strict=True)]


def test_a_box_and_a_condition():
    case = only("(assert (<= Y_0 Y_1))")
    assert case.lb.tolist() == [0, -1]
    assert case.ub.tolist() == [1, 0.5]
    assert [rows(condition) for condition in case.conditions] == [[(1, -1, 0)]]


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("(<= Y_0 1.5)", (1, 0, 1.5)),
        ("(>= Y_0 1.5)", (-1, 0, -1.5)),
        ("(< Y_0 (- 1.5))", (1, 0, -1.5)),
        ("(> 2e0 Y_1)", (0, 1, 2)),
        ("(<= (+ Y_0 Y_1 1) 3)", (1, 1, 2)),
        ("(<= (- Y_0 Y_1 1) 3)", (1, -1, 4)),
        ("(<= (* 2 (+ Y_0 (* -0.5 Y_1))) +1.E+1)", (2, -1, 10)),
        ("(<= (* Y_0 2 3) .5)", (6, 0, 0.5)),
        ("(<= (/ Y_0 4) (/ 1 8))", (0.25, 0, 0.125)),
        ("(<= (- Y_0) Y_0)", (-2, 0, 0)),
        ("(<= (+ Y_0 (* 0 X_0)) 1)", (1, 0, 1)),
        ("(<= (+ (* 0.1 Y_0) (* 0.3 Y_1)) 0.7)", (1, 3, 7)),  # a multiple that is exact
    ],
)
def test_linear_terms(text, row):
    (condition,) = only(f"(assert {text})").conditions
    assert rows(condition) == [row]


def test_disjuncts_over_inputs_and_outputs():
    prop = read(
        """(assert (or
             (and (>= X_0 0) (<= X_0 1) (<= Y_0 1))
             (and (>= X_0 2) (<= X_0 3) (or (<= Y_0 2) (<= Y_1 2)))
             (and (>= X_0 0) (<= X_0 1.0) (<= Y_0 3) (<= Y_1 3))))
           (assert (and (>= X_1 0) (<= X_1 1)))
           (assert (or (<= Y_1 7) (<= Y_1 8)))"""
    )
    first, second = prop.cases
    assert (first.lb.tolist(), first.ub.tolist()) == ([0, 0], [1, 1])
    assert (second.lb.tolist(), second.ub.tolist()) == ([2, 0], [3, 1])
    assert [len(condition.b) for condition in first.conditions] == [2, 2, 3, 3]
    assert len(second.conditions) == 4


def test_an_equation():
    case = only("(assert (= X_0 0.5)) (assert (= Y_0 1))")
    assert case.lb[0] == case.ub[0] == 0.5
    assert rows(case.conditions[0]) == [(1, 0, 1), (-1, 0, -1)]


def test_the_tighter_bound_counts():
    case = only("(assert (<= X_0 0.75)) (assert (<= X_0 2)) (assert (> X_0 0)) (assert (<= Y_0 0))")
    assert case.ub[0] == 0.75
    assert case.lb[0] == 0
    assert case.low[0] == Fraction(5e-324)  # above zero


@pytest.mark.parametrize(
    "text",
    [
        "(assert (<= X_0 -0.5)) (assert (<= Y_0 0))",
        "(assert (< X_0 0)) (assert (<= Y_0 0))",
        "(assert (<= 1 0))",
        "(assert (or))",
        "(assert (or (and (<= Y_0 0) (< 1 1))))",
    ],
)
def test_nothing_is_unsafe(text):
    assert read(BOX + text).cases == ()


@pytest.mark.parametrize("text", ["", "(assert (<= 0 1))", "(assert (and))"])
def test_everything_is_unsafe(text):
    (condition,) = only(text).conditions
    assert condition.A.shape == (0, 2)


def test_rounding_never_helps_a_proof():
    case = only("(assert (<= 0.1 X_0)) (assert (<= X_0 0.3)) (assert (<= Y_0 0.1))")
    assert Fraction(float(case.lb[0])) <= Fraction("0.1") < Fraction(np.nextafter(case.lb[0], 1))
    assert Fraction(np.nextafter(case.ub[0], 0)) < Fraction("0.3") <= Fraction(float(case.ub[0]))
    assert case.low[0] == Fraction("0.1")
    assert case.high[0] == Fraction("0.3")
    (condition,) = case.conditions
    assert Fraction(condition.b_in[0]) < Fraction("0.1") < Fraction(condition.b[0])


def test_commands_without_a_meaning_here():
    text = '(set-logic QF_LRA)(set-info :source "a ( b")'
    assert only(f"{text}(assert (<= Y_0 0))(check-sat)(exit)").conditions


MISTAKES = {
    "(assert (<= X_0 1)": ("7:19", "ends"),
    "(assert <= X_0 1)": ("7:9", "'('"),
    "(assert (<= X_0 1 2))": ("7:19", "')'"),
    "(assert (<= X_0))": ("7:16", "a variable or a number"),
    ")": ("7:1", "'('"),
    "(asert (<= X_0 1))": ("7:2", "did you mean 'assert'"),
    "(assert (=> X_0 1))": ("7:10", "'=>'"),
    "(assert (not (<= X_0 1)))": ("7:10", "'not'"),
    "(assert (<= X_7 1))": ("7:13", "'X_7' is not declared"),
    "(assert (<= foo 1))": ("7:13", "'foo'"),
    "(assert (<= X_0 1.2.3))": ("7:17", "'1.2.3'"),
    "(assert (<= X_0 nan))": ("7:17", "'nan'"),
    "(assert (<= X_0 1e999999999))": ("7:17", "out of range"),
    "(assert (<= X_0 1e-99999999999999))": ("7:17", "'1e-99999999999999'"),
    "(assert (<= X_0 1e350))": ("7:10", "too large"),
    "(assert (<= Y_0 1e350))": ("7:10", "digits"),
    '(assert (<= Y_0 "1"))': ("7:17", "a variable or a number"),
    '(assert (<= Y_0 "1))': ("7:17", "a variable or a number"),
    "(assert (<= (* Y_0 Y_1) 1))": ("7:14", "not linear"),
    "(assert (<= (/ 1 Y_1) 1))": ("7:14", "not linear"),
    "(assert (<= (/ Y_1 0) 1))": ("7:14", "zero"),
    "(assert (<= (/ Y_1) 1))": ("7:14", "1 terms"),
    "(assert (<= (+) 1))": ("7:14", "0 terms"),
    "(assert (<= (max Y_0 Y_1) 1))": ("7:14", "'max'"),
    "(assert (<= X_0 Y_0))": ("7:10", "inputs and outputs"),
    "(assert (<= X_0 X_1))": ("7:10", "several inputs"),
    "(declare-const X_0 Real)": ("7:16", "twice"),
    "(declare-const Z_0 Real)": ("7:16", "'Z_0'"),
    "(declare-const X_02 Real)": ("7:16", "'X_02'"),
    "(declare-const X_2 Int)": ("7:20", "'Int'"),
    "(declare-const X_5 Real)": ("", "not X_2"),
    "(assert (<= (* 0.1234567890123456789 Y_0) (* 0.3 Y_1)))": ("7:10", "digits"),
    "(assert " + 200 * "(and " + "(<= Y_0 1)" + 200 * ")" + ")": ("7:", "100 parentheses"),
    "(assert (<= " + 200 * "(+ " + "Y_0" + 200 * ")" + " 1))": ("7:", "100 parentheses"),
    "\x00(assert": ("7:1", "'('"),
}


@pytest.mark.parametrize("text", MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_one_line_with_its_place(text):
    where, words = MISTAKES[text]
    with pytest.raises(UsageError) as error:
        read(f"{BOX}\n{text}")
    told = str(error.value)
    assert told.startswith(f"p.vnnlib:{where}" if where else "p.vnnlib: ")
    assert words in told
    assert told.isprintable()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "declares no input"),
        ("(declare-const X_0 Real)", "declares no output"),
        (HEAD, "X_0 has no lower bound"),
        (HEAD + "(assert (>= X_0 0))(assert (>= X_1 0))", "X_0 has no upper bound"),
        (HEAD + BOX.replace("(<= X_1 0.5)", "(or (<= X_1 0.5) (<= Y_0 1))"), "X_1 has no upper"),
    ],
)
def test_what_is_missing(text, words):
    with pytest.raises(UsageError, match=words):
        parse(text, "p.vnnlib")


def test_too_many_disjuncts():
    choice = "(assert (or (<= Y_0 1) (<= Y_1 1)))"
    with pytest.raises(UsageError, match="1048576 disjuncts"):
        read(BOX + 20 * choice)
    inner = "(<= Y_0 1)"
    for _ in range(20):
        inner = f"(and (or {inner} (<= Y_1 1)) (or (<= Y_0 2) (<= Y_1 2)))"
    with pytest.raises(UsageError, match="disjuncts"):
        read(f"{BOX}(assert (or {inner}))")


@settings(max_examples=300)
@given(st.text(alphabet="()<=>+-*/ \nXY_01.e;asertndo", max_size=60))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(UsageError):  # anything else is a failure
        read(f"{BOX}\n(assert (<= Y_0 1)) {text}")


# What a file means: a point meets the formula exactly where it is in the property.

NUMBERS = st.sampled_from(["0", "1", "-1", "0.5", "2e-1", "-1.5"])
OF_X = st.builds(
    "({} X_{} {})".format, st.sampled_from(["<=", ">=", "<", ">"]), st.integers(0, 1), NUMBERS
)
OF_Y = st.builds(
    "({} (+ (* {} Y_0) (* {} Y_1)) {})".format,
    st.sampled_from(["<=", ">=", "<", ">", "="]),
    NUMBERS,
    NUMBERS,
    NUMBERS,
)
FORMULA = st.recursive(
    OF_X | OF_Y,
    lambda inner: st.builds(
        lambda word, parts: f"({word} {' '.join(parts)})",
        st.sampled_from(["and", "or"]),
        st.lists(inner, max_size=3),
    ),
    max_leaves=8,
)
VALUES = [Fraction(n, 4) for n in range(-6, 7)]


def holds(text, point):
    """Evaluate by Python itself: the sentence turned into one of its expressions."""
    tokens = text.replace("(", " ( ").replace(")", " ) ").split()
    stack = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            word, *args = stack.pop()
            stack[-1].append(
                {
                    "and": lambda *a: all(a),
                    "or": lambda *a: any(a),
                    "+": lambda *a: sum(a),
                    "*": lambda a, b: a * b,
                    "<=": lambda a, b: a <= b,
                    ">=": lambda a, b: a >= b,
                    "<": lambda a, b: a < b,
                    ">": lambda a, b: a > b,
                    "=": lambda a, b: a == b,
                }[word](*args)
            )
        elif token in point:
            stack[-1].append(point[token])
        elif token[0] in "-.0123456789":
            stack[-1].append(Fraction(token))
        else:
            stack[-1].append(token)
    return stack[0][0]


def exact(A):
    return [[Fraction(a) for a in row] for row in A.tolist()]


def is_unsafe(prop, x, y, *, inner):
    """Whether a point is in the property, as a proof (outer) or a witness (inner) sees it."""
    for case in prop.cases:
        low, high = (case.low, case.high) if inner else (case.lb.tolist(), case.ub.tolist())
        if all(a <= v <= b for a, v, b in zip(low, x, high, strict=True)):
            for condition in case.conditions:
                pairs = zip(
                    condition.A.tolist(), (condition.b_in if inner else condition.b), strict=True
                )
                values = [
                    (sum(Fraction(a) * v for a, v in zip(row, y, strict=True)), b)
                    for row, b in pairs
                ]
                if all(v < b if inner else v <= b for v, b in values):
                    return True
    return False


@settings(max_examples=150, deadline=None)
@given(formulas=st.lists(FORMULA, min_size=1, max_size=3), data=st.data())
def test_the_property_is_what_the_file_says(formulas, data):
    prop = read(BOX + "".join(f"(assert {formula})" for formula in formulas))
    for _ in range(20):
        values = [data.draw(st.sampled_from(VALUES)) for _ in range(4)]
        point = dict(zip(("X_0", "X_1", "Y_0", "Y_1"), values, strict=True))
        true = all(holds(f, point) for f in formulas) and 0 <= values[0] <= 1
        true = true and -1 <= values[1] <= 0.5
        if true:
            assert is_unsafe(prop, values[:2], values[2:], inner=False)
        if is_unsafe(prop, values[:2], values[2:], inner=True):
            assert true


# The same again, written down in the simplest way: every combination, one comparison at a time.


def nested(text):
    """The sentence as lists of words."""
    stack = [[]]
    for token in text.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            stack.append([])
        elif token == ")":
            inner = stack.pop()
            stack[-1].append(inner)
        else:
            stack[-1].append(token)
    return stack[0]


def combinations(formula):
    """All conjunctions of comparisons, of which at least one is true where the formula is."""
    word, *parts = formula
    if word == "or":
        return [each for part in parts for each in combinations(part)]
    if word == "and":
        # First the comparisons that always hold, as the order of a condition's rows has it.
        flat, choices = flattened(parts)
        return [
            [*flat, *itertools.chain(*chosen)]
            for chosen in itertools.product(*map(combinations, choices))
        ]
    return [[formula]]


def flattened(parts):
    flat, choices = [], []
    for part in parts:
        if part[0] == "and":
            inner = flattened(part[1:])
            flat += inner[0]
            choices += inner[1]
        else:
            (choices if part[0] == "or" else flat).append(part)
    return flat, choices


def reference(formulas):
    """{box: rows of each condition}, with boxes in order and those without a point left out."""
    boxes = {}
    for together in combinations(["and", *nested(BOX.replace("assert ", "and "))[0:], *formulas]):
        low, high, rows = {}, {}, []
        for sign, left, right in together:
            if sign == "=":
                rows += [row("<=", left, right), row(">=", left, right)]
            elif isinstance(left, list):
                rows.append(row(sign, left, right))
            else:
                i, value, strict = int(left[2:]), Fraction(right), len(sign) == 1
                if sign[0] == ">":
                    low[i] = max(low.get(i, (value, strict)), (value, strict))
                else:
                    high[i] = min(high.get(i, (value, not strict)), (value, not strict))
        bounds = tuple((*low[i], high[i][0], not high[i][1]) for i in range(2))
        boxes.setdefault(bounds, []).append(rows)
    return {
        bounds: rows
        for bounds, rows in boxes.items()
        if all(a < b or (a == b and not (p or q)) for a, p, b, q in bounds)
    }


def row(sign, left, right):
    """(a, b, c) of a * Y_0 + b * Y_1 <= c."""
    factors = [Fraction(part[1]) for part in left[1:]]
    flip = -1 if sign[0] == ">" else 1
    return (*(flip * factor for factor in factors), flip * Fraction(right))


def normal_form(prop):
    """The same of a property; a box that no disjunct narrows may stand there twice."""
    form = {}
    for case in prop.cases:
        bounds = tuple(
            (Fraction(lb), low != Fraction(lb), Fraction(ub), high != Fraction(ub))
            for lb, ub, low, high in zip(case.lb, case.ub, case.low, case.high, strict=True)
        )
        form.setdefault(bounds, []).extend(map(rows, case.conditions))
    return in_order(form)


def in_order(boxes):
    return {
        bounds: sorted([tuple(map(float, row)) for row in rows] for rows in conditions)
        for bounds, conditions in boxes.items()
    }


QUARTERS = st.sampled_from(["0", "1", "-1", "0.5", "25e-2", "-1.5", "0.0", "00.50"])
PLAIN = st.builds(
    "({} X_{} {})".format, st.sampled_from(["<=", ">=", "<", ">"]), st.integers(0, 1), QUARTERS
) | st.builds(
    "({} (+ (* {} Y_0) (* {} Y_1)) {})".format,
    st.sampled_from(["<=", ">=", "="]),
    st.sampled_from(["1", "-2", "0.5"]),
    st.sampled_from(["1", "-2", "0.5"]),
    QUARTERS,
)
PLAIN_FORMULA = st.recursive(
    PLAIN,
    lambda inner: st.builds(
        lambda word, parts: f"({word} {' '.join(parts)})",
        st.sampled_from(["and", "and", "or"]),
        st.lists(inner, min_size=1, max_size=5),
    ),
    max_leaves=25,
)


@settings(max_examples=200, deadline=None)
@given(formulas=st.lists(PLAIN_FORMULA, min_size=1, max_size=3))
def test_the_normal_form_is_that_of_every_combination(formulas):
    sentences = [nested(formula)[0] for formula in formulas]
    assume(math.prod(count(sentence) for sentence in sentences) <= 2000)
    text = BOX + "".join(f"(assert {formula})" for formula in formulas)
    expected = in_order(reference(sentences))
    form = normal_form(read(text))
    assert form == expected
    assert list(form) == list(expected)
    # With a space behind the parenthesis, bounds are not read many at a time.
    assert normal_form(read(text.replace("(<= X", "( <= X").replace("(>= X", "( >= X"))) == form


def count(formula):
    """How many combinations there are."""
    if formula[0] == "or":
        return sum(map(count, formula[1:]))
    return math.prod(map(count, formula[1:])) if formula[0] == "and" else 1


def test_3072_inputs_in_well_under_a_second():
    names = itertools.chain((f"X_{i}" for i in range(3072)), (f"Y_{k}" for k in range(10)))
    lines = [f"(declare-const {name} Real)" for name in names]
    for i in range(3072):
        lines += [f"(assert (<= X_{i} 0.{i}5))", f"(assert (>= X_{i} -{i}.25e-3))"]
    lines.append(f"(assert (or {' '.join(f'(and (>= Y_{k} Y_0))' for k in range(1, 10))}))")
    start = time.process_time()
    (case,) = parse("\n".join(lines), "big").cases
    assert time.process_time() - start < 1
    assert len(case.lb) == 3072
    assert len(case.conditions) == 9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # To SMT-LIB, one command that says nothing: a proof would lack half of the unsafe set.
        (
            "(set-info :a |) (assert (<= Y_0 -9)) (set-info :b |) (assert (<= Y_0 5))",
            "quoted symbols are not supported: '|'",
        ),
        ("(assert (<= Y_0 5)) (check-sat) (assert (<= Y_0 -9))", "'assert' behind 'check-sat'"),
        ("(assert (<= Y_0 5)) (exit) (assert (<= X_0 -9))", "'assert' behind 'exit'"),
    ],
)
def test_a_file_of_two_meanings_is_refused(text, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        read(BOX + text)


def test_the_question_at_the_end_changes_nothing():
    (case,) = read(BOX + "(assert (<= Y_0 5)) (check-sat) (get-model) (exit) ; | (assert").cases
    assert case.conditions[0].b.tolist() == [5]
