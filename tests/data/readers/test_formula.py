import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.columns import Lists
from sciformer.data.readers.formula import FUNCTIONS, LIST_FUNCTIONS, Formula
from sciformer.errors import UserError
from tests.errors import refuses

LENGTHS = np.array([3, 0, 1, 2])
X = np.array([1.0, -2.0, 3.0, 4.0, 0.5, 6.0], np.float32)
TABLE = {
    "x": Lists(X, LENGTHS),
    "y": Lists(np.arange(6, dtype=np.int32), LENGTHS),
    "other": Lists(np.arange(4.0), np.array([1, 1, 1, 1])),
    "a": np.array([1.0, 2.0, 4.0, 8.0], np.float32),
    "n": np.array([3, 0, 1, 2], np.uint8),
    "flag": np.array([True, False, True, False]),
    "Jet.PT": np.array([10.0, 20.0, 30.0, 40.0]),
    "wide": np.arange(8.0).reshape(4, 2),
    "name": np.array(["p", "q", "r", "s"]),
}
AT = np.repeat(TABLE["a"], LENGTHS)


def of(text):
    found = Formula(text).of(TABLE)
    if isinstance(found, Lists):
        np.testing.assert_array_equal(found.lengths, LENGTHS)
        return found.values
    assert len(found) == 4
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", TABLE["a"]),
        ("2 * x + 1", 2 * X + 1),
        ("x / a", X / AT),
        ("a - x", AT - X),
        ("n - 5", np.array([-2, -5, -4, -3])),
        ("x ** 2", X**2),
        ("n ** -1", np.array([1 / 3, np.inf, 1, 0.5])),
        ("a // 3", TABLE["a"] // 3),
        ("(x + pi) % (2 * pi) - np.pi", (X + np.pi) % (2 * np.pi) - np.pi),
        ("np.hypot(x, y)", np.hypot(X, np.arange(6))),
        ("ak.where(x > 0, math.log(x), -1)", np.where(X > 0, np.log(np.abs(X)), -1)),
        ("1 < a <= 4", np.array([False, True, True, False])),
        ("(a > 1) & ~(a == 4) | flag", np.array([True, True, True, True])),
        ("a > 1 and not a == 4 or flag", np.array([True, True, True, True])),
        ("n & 2", np.array([2, 0, 0, 2])),
        ("clip(x, -1, 2)", np.clip(X, -1, 2)),
        ("minimum(x, 1)", np.minimum(X, 1)),
        ("arctan2(x, y)", np.arctan2(X, np.arange(6))),
        ("ones_like(x)", np.ones(6)),
        ("isfinite(log(x))", X >= 0),
        ("sum(x)", np.array([2.0, 0, 4, 6.5])),
        ("ak.sum(x > 0, axis=1)", np.array([2, 0, 1, 2])),
        ("max(x)", np.array([3, np.nan, 4, 6])),
        ("np.min(x, axis=-1)", np.array([-2, np.nan, 4, 0.5])),
        ("mean(y)", np.array([1, np.nan, 3, 4.5])),
        ("count(x) == n", np.ones(4, bool)),
        ("ak.num(x)", LENGTHS),
        ("any(x < 0)", np.array([True, False, False, False])),
        ("all(x > 0)", np.array([False, True, True, True])),
        ("first(x)", np.array([1, np.nan, 4, 0.5])),
        ("x[:, 1]", np.array([-2, np.nan, np.nan, 6])),
        ("x[:, -1] * 2", np.array([6, np.nan, 8, 12])),
        ("x / sum(x)", X / np.repeat([2.0, 0, 4, 6.5], LENGTHS)),
        ("wide[:, 1] + a", np.array([1.0, 3, 5, 7]) + TABLE["a"]),
        ("sum(wide)", np.array([1.0, 5, 9, 13])),
        ("max(wide * a)", np.array([1.0, 6, 20, 56])),
        ("Jet.PT > 15", np.array([False, True, True, True])),
        ("1", np.ones(4)),
        ("10 ** 64 > 1", np.ones(4, bool)),
        ("\n a\n + 1 ", TABLE["a"] + 1),
        ("a + np.inf > 5", np.ones(4, bool)),
    ],
)
def test_values(text, expected):
    np.testing.assert_allclose(of(text), expected, rtol=1e-6)


def test_narrow_numbers_stay_narrow_and_whole_ones_are_wide_enough():
    assert of("2 * pi * x").dtype == np.float32
    assert of("log(x)").dtype == np.float32
    assert of("log(n)").dtype == np.float64  # not NumPy's half precision of bytes
    np.testing.assert_array_equal(of("n * 1000"), [3000, 0, 1000, 2000])
    np.testing.assert_array_equal(of("-n"), [-3, 0, -1, -2])


def test_names():
    assert Formula("np.log(part_pt / jet_pt) + Jet.PT * part_pt").names == ("part_pt", "jet_pt", "Jet.PT")
    assert Formula("sum(x[:, 0] > np.pi)").names == ("x",)
    assert Formula("1 + 2").names == ()


REFUSED = [
    *["a.__class__", "().__class__.__bases__[0]", "a._private", "(a).real()", "np.load('x')", "np.fromfile(a)"],
    *["a.sum()", "__import__('os')", "open('f')", "eval('1')", "getattr(a, 1)", "ak.from_parquet(a)", "lambda: 1"],
    *["(b := 1)", "await a", "[i for i in a]", "{i: 1 for i in a}", "(i for i in a)", "'text'", "b'x'", "f'{a}'"],
    *["1j", "...", "None", "[a]", "{a}", "(a, x)", "a if flag else x", "a in x", "a is x", "a << 60", "a @ x"],
    *["sum(*x)", "sum(x, axis=0)", "sqrt(x, out=a)", "hypot(x)", "max(x, y)", "x[0]", "x[:, 1:]", "x[:, a]"],
    *["x[x > 0]", "a ** 1000", "a ** -65", "power(a, 1e9)", "a + 99999999999999999999", "", "   ", "a +", "a b"],
    *["(a", "\x00", "a; x", "x = 1"],
    *("-" * 60 + "a", "(" * 9000, "sqrt(" * 90 + "a" + ")" * 90, "a+" * 6000 + "a", "not " * 2000 + "a"),
]


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text):
    with refuses():
        Formula(text)


def test_columns_that_are_not_there():
    with refuses("'part_pz'", "character 6 of '1 + (part_pz)'", hint="'part_px'"):
        Formula("1 + (part_pz)").of({"part_px": X, "part_py": X})
    with refuses("'Part_PX'", hint="'part_px' or 'part_py'"):
        Formula("Part_PX").of({"jet": X, "part_px": X, "part_py": X})


@pytest.mark.parametrize(
    ("text", "mentions", "hint"),
    [
        ("1 + ) 2", ["'1 + ) 2'", "character 5"], ""),
        ("1 + np.hypott(a, x)", ["'np.hypott'", "character 5"], "'hypot'"),
        ("max(a, n)", ["max(...)", "1 value", "2"], "maximum(a, b)"),
        ("a if flag else n", ["'a if flag else n'"], "where(condition, a, b)"),
        ("x + other", ["lists", "'x + other'"], ""),
        ("sum(a)", ["sum(...)", "'sum(a)'"], ""),
        ("a & n", ["`&`", "'a & n'"], "x > 0"),
        ("~n", ["`~`", "'~n'"], "~(x > 0)"),
        ("name == 1", ["`name`", "'name == 1'", "<U1"], ""),
        ("wide[:, 2]", ["below 2, not 2", "'wide[:, 2]'"], ""),
        ("wide * x", ["(2,)", "'wide * x'"], ""),
    ],
)
def test_what_is_wrong_and_where(text, mentions, hint):
    with refuses(*mentions, hint=hint):
        of(text)


def test_long_sums_are_not_deep():
    assert of("+".join(["a"] * 1000))[0] == 1000
    assert of(" or ".join(["a < 0"] * 300)).sum() == 0


def test_a_table_without_samples():
    none = {"x": Lists(X[:0], LENGTHS[:0]), "a": TABLE["a"][:0]}
    for text in ("x * a", "sum(x) + a", "max(x)", "x[:, 0]", "any(x > 1)", "3"):
        assert len(Formula(text).of(none)) == 0


trees = st.recursive(
    st.sampled_from(["a", "x", "y", "n", "1", "2.5", "pi"]),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("(-{})".format, inner),
        st.builds("{}({})".format, st.sampled_from(["cos", "np.tanh", "abs", "math.arctan"]), inner),
        st.builds("hypot({}, {})".format, inner, inner),
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(trees)
def test_formulas_agree_with_python_entry_by_entry(text):
    table = {name: _wide(TABLE[name]) for name in "axyn"}
    found = Formula(text).of(table)
    words = {"np": np, "math": np, "pi": np.pi, "cos": np.cos, "abs": np.abs, "hypot": np.hypot}
    sample = np.repeat(np.arange(4), LENGTHS)
    for place in range(len(found.values) if isinstance(found, Lists) else 4):
        row = sample[place] if isinstance(found, Lists) else place
        values = {"a": table["a"][row], "n": table["n"][row]}
        if isinstance(found, Lists):
            values |= {"x": table["x"].values[place], "y": table["y"].values[place]}
        try:
            with np.errstate(all="ignore"):
                expected = eval(text, words | values)
        except ZeroDivisionError:  # of two numbers; columns give infinity
            continue
        mine = found.values[place] if isinstance(found, Lists) else found[place]
        np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-12)


def _wide(column):
    if isinstance(column, Lists):
        return Lists(column.values.astype(np.float64), column.lengths)
    return column.astype(np.float64)


@settings(max_examples=300, deadline=None)
@given(st.text("axn0123456789.+-*/()[]:,<>=&|~_ 'sqrtlogumpi", max_size=40))
def test_any_text_is_a_formula_or_a_clear_error(text):
    try:
        formula = Formula(text)
        found = formula.of(TABLE)
    except UserError:
        return
    assert len(found) == 4
    assert set(formula.names) <= set(TABLE)


def test_everything_that_is_allowed_can_be_worked_out():
    for name, count in FUNCTIONS.items():
        given_values = ", ".join(["x > 1", "x", "a"][:3] if name == "where" else ["x", "a", "9"][:count])
        assert of(f"{name}({given_values})").shape == X.shape
    for name in LIST_FUNCTIONS:
        assert of(f"{name}(x)").shape == (4,)
