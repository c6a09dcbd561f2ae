"""Formulas of weaver in our words, and those that have no equal."""

import pytest

from sciformer.domains.jets.interop.data_config import class_names, column_names, expand_formula, translate_formula
from tests.errors import refuses


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("np.log(part_pt/jet_pt)", "log(part_pt / jet_pt)"),
        ("ak.num(part_px, axis=1)", "count(part_px)"),
        ("ak.sum(part_pt, axis=-1)", "sum(part_pt)"),
        ("ak.firsts(ak.to_numpy(x))", "first(x)"),
        ("np.multiply(a, np.add(b, 2))", "a * (b + 2)"),
        ("np.greater(a, b)", "a > b"),
        ("_clip(x, 0, np.pi)", "clip(x, 0, 3.141592653589793)"),
        ("np.power(x, 2)", "power(x, 2)"),
    ],
)
def test_formulas_in_our_words(theirs, ours):
    assert translate_formula(theirs) == ours


@pytest.mark.parametrize(
    "text",
    ["x.y.z()", "lambda x: x", "open('f')", "x if y else z", "ak.sum(x, axis=0)", "np.stack([a, b], axis=1)", "1 +", ""]
    + ["(" * 300 + ")" * 300, "+".join("x" * 6000), "exec(x)", "np.random.rand(3)", "ak.max(x, mask_identity=True)"],
)
def test_formulas_that_have_no_equal(text):
    with refuses():
        translate_formula(text)


def test_names_and_expansions():
    assert column_names("np.hypot(b, a) + sum(c, axis=1) * b") == ["b", "a", "c"]
    assert expand_formula("x + y", {"x": "y * 2", "y": "z"}) == "z * 2 + z"
    assert expand_formula("x", {"x": "x + 1"}) == "x + 1"
    with refuses("10,000"):
        expand_formula("a0", {f"a{i}": f"a{i + 1} + a{i + 1}" for i in range(30)})


def test_class_names():
    assert class_names(["label_Hbb", "label_Hcc"]) == ["Hbb", "Hcc"]
    assert class_names(["jet_isTop", "jet_isTau"]) == ["Top", "Tau"]
    assert class_names(["signal"]) == ["signal"]
    assert class_names(["is_b", "is_c"]) == ["b", "c"]
