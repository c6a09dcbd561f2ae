"""Data files of weaver as recipes: those of the published models, what has no equal, and the command line."""

import copy
import re

import numpy as np
import pytest
import yaml

from sciformer.assembly import Assembly
from sciformer.cli.main import main
from sciformer.data.columns import Lists
from sciformer.domains.jets.features import TYPE_FLAGS, VECTOR_COLUMNS
from sciformer.domains.jets.interop.data_config import (
    class_names,
    column_names,
    expand_formula,
    import_data,
    translate_formula,
    translate_options,
)
from sciformer.domains.jets.simulate.decays import CLASSES
from sciformer.domains.jets.simulate.jets import Jets
from sciformer.recipe import Recipe
from tests.domains.jets.jets_table import write_root
from tests.errors import refuses

FIRST = [["part_pt_log", 1.7, 0.7], ["part_e_log", 2.0, 0.7], ["part_logptrel", -4.7, 0.7]]
FIRST += [["part_logerel", -4.7, 0.7], ["part_deltaR", 0.2, 4.0]]
TYPES = [[f"part_{name}", None] for name in ("charge", *TYPE_FLAGS)]
TRACKS = [["part_d0", None], ["part_d0err", 0, 1, 0, 1], ["part_dz", None], ["part_dzerr", 0, 1, 0, 1]]
LAST = [["part_deta", None], ["part_dphi", None]]
SETS = {"kin": [*FIRST, *LAST], "kinpid": [*FIRST, *TYPES, *LAST], "full": [*FIRST, *TYPES, *TRACKS, *LAST]}
NEW = {
    "part_mask": "ak.ones_like(part_energy)",
    "part_pt": "np.hypot(part_px, part_py)",
    "part_pt_log": "np.log(part_pt)",
    "part_e_log": "np.log(part_energy)",
    "part_logptrel": "np.log(part_pt/jet_pt)",
    "part_logerel": "np.log(part_energy/jet_energy)",
    "part_deltaR": "np.hypot(part_deta, part_dphi)",
    "part_d0": "np.tanh(part_d0val)",
    "part_dz": "np.tanh(part_dzval)",
}
PLUS = {
    "part_isCHad": "(np.abs(part_pid)==211) + (np.abs(part_pid)==321)*0.5 + (np.abs(part_pid)==2212)*0.2",
    "part_isNHad": "(np.abs(part_pid)==130) + (np.abs(part_pid)==2112)*0.2",
}


def group(names, mode="wrap", length=128):
    return {"length": length, "pad_mode": mode, "vars": names}


def options(features="full", **more):
    """A data file like that of JetClass, with these features and other keys."""
    listed = SETS[features] if isinstance(features, str) else features
    made = {
        "selection": None,
        "new_variables": dict(NEW),
        "preprocess": {"method": "manual", "data_fraction": 0.5},
        "inputs": {
            "pf_points": group(LAST),
            "pf_features": group(listed),
            "pf_vectors": group([[name, None] for name in VECTOR_COLUMNS]),
            "pf_mask": group([["part_mask", None]], "constant"),
        },
        "labels": {"type": "simple", "value": [f"label_{name}" for name in CLASSES]},
        "observers": ["jet_pt", "jet_eta", "jet_sdmass"],
        "weights": None,
    }
    return {key: value for key, value in (copy.deepcopy(made) | more).items() if value is not None}


def binary(one, other, features, **new):
    return options(
        features,
        new_variables={**NEW, one: "label", other: "1-label", **new},
        labels={"type": "simple", "value": [one, other]},
        observers=["jet_pt", "jet_eta", "n_parts"],
    )


# The published files


@pytest.mark.parametrize("features", SETS)
def test_the_files_of_jetclass_have_our_feature_sets(features):
    made = translate_options(options(features))
    assert made.notes == []
    assert made.tokens == {"vector": [*VECTOR_COLUMNS], "features": features, "max_tokens": 128}
    assert made.data["classes"] == {name: f"label_{name}" for name in CLASSES}
    assert made.data["observers"] == ["jet_pt", "jet_eta", "jet_sdmass"]
    assert "new" not in made.data


@pytest.mark.parametrize(("one", "other", "features"), [("Top", "QCD", "kin"), ("Q", "G", "kinpid")])
def test_top_and_quark_gluon(one, other, features):
    made = translate_options(binary(f"jet_is{one}", f"jet_is{other}", features))
    assert (made.notes, made.tokens["features"]) == ([], features)
    assert made.data["classes"] == {one: f"jet_is{one}", other: f"jet_is{other}"}
    assert made.data["new"] == {f"jet_is{one}": "label", f"jet_is{other}": "1 - label"}


def test_quark_gluon_with_more_types_has_a_list_of_features():
    types = [["part_charge", None], ["part_isCHad", None], ["part_isNHad", None], *TYPES[3:]]
    made = translate_options(binary("jet_isQ", "jet_isG", [*FIRST, *types, *LAST], **PLUS))
    assert made.notes == []
    features = made.tokens["features"]
    names = ["log_pt", "log_energy", "log_pt_rel", "log_energy_rel", "delta_r"]
    assert [one["name"] for one in features[:5]] == names
    assert features[0] == {"name": "log_pt", "centre": 1.7, "scale": 0.7, "clip": [-5.0, 5.0]}
    assert features[5] == {"name": "part_charge", "column": "part_charge"}
    formula = "(abs(part_pid) == 130) + (abs(part_pid) == 2112) * 0.2"
    assert features[7] == {"name": "part_isNHad", "formula": formula}
    assert [one["name"] for one in features[-2:]] == ["deta", "dphi"]


@pytest.mark.parametrize(
    "change",
    [
        [*FIRST[:4], ["part_deltaR", 0.3, 4.0], *LAST],  # another centre
        [*FIRST[:4], ["part_deltaR", 0.2, 4.0, -5, 6], *LAST],  # another clip
        [*FIRST, *LAST[::-1]],  # another order
        [*FIRST, *LAST, ["part_charge", None]],  # one more
        [*FIRST[:4], "part_deltaR", *LAST],  # not standardised
    ],
)
def test_what_differs_in_anything_is_no_set(change):
    made = translate_options(options(change))
    assert isinstance(made.tokens["features"], list)
    assert len(made.tokens["features"]) == len(change)
    assert made.notes == []


def test_momenta_by_formulas_are_momenta():
    new = {**NEW, "part_px": "part_pt*np.cos(part_phi)", "part_py": "part_pt*np.sin(part_phi)"}
    new |= {"part_pz": "part_pt*np.sinh(part_eta)", "part_energy": "part_p", "part_pt": "part_pt"}
    made = translate_options(options("kin", new_variables=new))
    assert made.notes == []
    assert made.data["new"]["part_px"] == "part_pt * cos(part_phi)"
    assert [one["name"] for one in made.tokens["features"][:1]] != ["log_pt"]  # log(part_pt), not of px and py
    formulas = {**NEW, **{name: f"2 * their_{name}" for name in VECTOR_COLUMNS}}
    assert translate_options(options("kin", new_variables=formulas)).tokens["features"] == "kin"


# Standardisation


def test_what_weaver_learns_is_learned_here_too():
    auto = options(["part_pt_log", ["part_charge", None], ["part_e_log", 2.0, 0.7]], preprocess={"method": "auto"})
    made = translate_options(auto)
    assert made.notes == []
    assert made.tokens["features"] == [
        {"name": "log_pt", "centre": None, "scale": None, "clip": [-5.0, 5.0]},
        {"name": "part_charge", "column": "part_charge"},
        {"name": "log_energy", "centre": 2.0, "scale": 0.7, "clip": [-5.0, 5.0]},
    ]


def test_what_weaver_has_learned_is_taken():
    known = {"center": 1.7, "scale": 0.7, "min": -5, "max": 5, "length": 128, "pad_mode": "wrap", "pad_value": 0}
    none = {"center": None, "scale": 1, "min": -5, "max": 5}
    process = {"method": "auto", "params": {"part_pt_log": known, "part_charge": none}}
    made = translate_options(options(["part_pt_log", "part_charge"], preprocess=process))
    assert made.tokens["features"][0] == {"name": "log_pt", "centre": 1.7, "scale": 0.7, "clip": [-5.0, 5.0]}
    assert made.tokens["features"][1] == {"name": "part_charge", "column": "part_charge"}


# What is chosen, asked and weighed


def test_selection_and_what_it_needs():
    new = {**NEW, "jet_msd": "jet_sdmass*1.1", "heavy": "jet_msd > 40"}
    chosen = "heavy & (jet_pt < 1000) & (np.abs(jet_eta) < 2)"
    made = translate_options(options(selection=chosen, test_time_selection="jet_pt > 0", new_variables=new))
    assert made.data["select_new"] == "jet_pt > 0"
    assert made.data["select"] == "heavy & (jet_pt < 1000) & (abs(jet_eta) < 2)"
    assert list(made.data["new"].items()) == [("jet_msd", "jet_sdmass * 1.1"), ("heavy", "jet_msd > 40")]
    assert made.notes == []


def test_weights_of_the_file_and_those_made_of_two_variables():
    made = translate_options(options(weights={"use_precomputed_weights": True, "weight_branches": ["w", "xsec"]}))
    assert (made.data["weight"], made.objective) == ("w * xsec", {"weight": "weight"})
    edges = {"jet_pt": [500, 700, 1000], "jet_sdmass": [0, 100, 200]}
    weights = {"use_precomputed_weights": False, "reweight_method": "ref", "reweight_vars": edges}
    weights |= {"reweight_classes": [f"label_{name}" for name in CLASSES], "reweight_basewgt": "genweight"}
    weights |= {"class_weights": [1, 2, *[1] * 8], "reweight_threshold": 15}
    made = translate_options(options(weights=weights))
    binned = {"x": "jet_pt", "y": "jet_sdmass", "x_edges": [500, 700, 1000], "y_edges": [0, 100, 200]}
    assert made.data["reweight"] == {**binned, "to": "QCD"}
    factors = [f"{2 if name == 'Hbb' else 1} * label_{name}" for name in CLASSES]
    assert made.data["weight"] == f"genweight * ({' + '.join(factors)})"
    assert made.objective == {"weight": "weight", "balance": True}
    (note,) = made.notes
    assert "reweight_threshold: 15" in note
    weights |= {"reweight_method": "odd", "reweight_discard_under_overflow": False, "reweight_classes": ["label_Hbb"]}
    del weights["reweight_threshold"], weights["class_weights"]
    assert len(translate_options(options(weights=weights)).notes) == 3
    weights["reweight_vars"] = {"jet_pt": [1, 2]}
    assert translate_options(options(weights=weights)).notes[0].startswith("`weights: reweight_vars` (jet_pt)")


def test_labels_of_another_kind():
    made = translate_options(options(labels={"type": "custom", "value": {"truth": "np.where(label_Hbb > 0, 1, 0)"}}))
    assert made.data["label"] == "truth"
    assert made.data["new"] == {"truth": "where(label_Hbb > 0, 1, 0)"}
    made = translate_options(options(labels={"type": "complex", "value": {"y": "jet_label", "mass": "np.log(m)"}}))
    assert (made.data["label"], "new" in made.data) == ("jet_label", False)
    assert made.notes[0].startswith("`labels: mass: np.log(m)`")


# What has no equal is told, each by its name


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"test_time_selection": "g(jet_pt)"}, "`test_time_selection: g(jet_pt)`"),
        ({"monitor_variables": ["jet_tau1"], "observers": None}, "`monitor_variables: jet_tau1`"),
        ({"file_magic": {"sample_is": {"HToBB": 1}}}, "`file_magic: sample_is`"),
        ({"colour": "red"}, "`colour`: "),
        ({"new_variables": {**NEW, "odd": "label.argmax(1)"}}, "`new_variables: odd: label.argmax(1)`"),
        ({"selection": "ak.sum(jet_pt) > 3"}, "`selection: ak.sum(jet_pt) > 3`: `sum`"),
        ({"selection": "__import__('os').system('x')"}, "`selection: __import__('os')"),
        ({"observers": ["strange"], "new_variables": {**NEW, "strange": "[1, 2]"}}, "`new_variables: strange: [1, 2]`"),
        ({"new_variables": {**NEW, "part_mask": "part_pt > 1"}}, "`inputs: pf_mask: part_mask` (part_pt > 1)"),
    ],
)
def test_notes(change, note):
    (found,) = translate_options(options(**change)).notes
    assert found.startswith(note)


def test_inner_keys_without_an_equivalent_are_listed():
    made = translate_options(options(preprocess={"method": "auto", "data_fraction": 0.5, "extra": 1}))
    assert [note for note in made.notes if note.startswith("`preprocess")] == [
        "`preprocess: extra: 1`: no equivalent",
        "`preprocess: data_fraction: 0.5`: centres and scales are fitted to the training part",
    ]
    assert any("data_fraction" in text for text in translate_options(options()).asides)


def test_what_needs_something_untranslated_is_not_translated_either():
    new = {**NEW, "inner": "f(x)", "outer": "inner + 1"}
    made = translate_options(options(selection="outer > 2", observers=["outer", "jet_pt"], new_variables=new))
    assert made.data["select"] == ""
    assert made.data["observers"] == ["jet_pt"]
    assert len(made.notes) >= 3
    assert all(any(name in note for note in made.notes) for name in ("selection", "outer", "inner"))


def test_features_and_sets_that_are_unknown():
    made = translate_options(options([*FIRST, ["part_odd", 1, 2]], new_variables={**NEW, "part_odd": "f(part_px)"}))
    (note,) = made.notes
    assert len(made.tokens["features"]) == 5
    assert "part_odd: f(part_px)" in note
    second = options()
    second["inputs"]["sv_features"] = group([["sv_pt", None]], length=10)
    second["inputs"]["globals"] = group([["met", None]], length=None)
    second["inputs"]["pf_points"]["length"] = 100
    found = [note.partition("`:")[0].partition("*:")[0] for note in translate_options(second).notes]
    assert found == ["`inputs: globals", "`inputs: sv_features", "`inputs: pf_"]
    none = options("kin")
    del none["inputs"]["pf_vectors"]
    assert all(word in translate_options(none).notes[0] for word in ("`inputs: pf_vectors`", "part_px"))


# Files and recipes


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(made, name="theirs.yaml"):
        (tmp_path / name).write_text(made if isinstance(made, str) else yaml.safe_dump(made, sort_keys=False))
        return name

    return write


def test_a_recipe_is_written(here, capsys):
    weights = {"use_precomputed_weights": True, "weight_branches": ["w"]}
    name = here(options(weights=weights, selection="jet_pt > 5", monitor_variables=["jet_pt"]))
    assert main(["import", name, "--data.files", "HToBB:a/*.root", "b.root"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("wrote theirs-recipe.yaml\nnext: sciformer check theirs-recipe.yaml\n")
    assert "`monitor_variables: jet_pt`" in printed.err
    recipe = Recipe.load("theirs-recipe.yaml")
    assert recipe.data.kind == "events"
    assert recipe.data.files == ["HToBB:a/*.root", "b.root"]
    assert recipe.data.select == "jet_pt > 5"
    assert (recipe.tokens.features, recipe.tokens.max_tokens) == ("full", 128)
    assert (recipe.objective.kind, recipe.objective.weight) == ("discriminate", "weight")
    assert (recipe.objective.background, recipe.objective.efficiencies) == ("QCD", {})
    assert main(["import", name]) == 2
    said = capsys.readouterr().err
    assert all(fact in said for fact in ("theirs-recipe.yaml", "--out", "--overwrite"))
    assert main(["import", name, "--overwrite", "--out", "other.yaml"]) == 0


def test_other_names_in_the_files(here):
    made = import_data(here(options("kin", branch_magic={"part_": "pfcand_"}, selection="jet_pt > 5")))
    tokens = Recipe.load(made.path).tokens
    assert tokens.vector == ("pfcand_px", "pfcand_py", "pfcand_pz", "pfcand_energy")
    assert tokens.plane == ("pfcand_deta", "pfcand_dphi")
    assert tokens.features == "kin"


def test_a_list_of_features_is_written_line_by_line(here):
    made = import_data(here(binary("jet_isQ", "jet_isG", [*FIRST, ["part_isCHad", None]], **PLUS)))
    page = made.path.read_text()
    assert "    - {name: log_pt, centre: 1.7, scale: 0.7, clip: [-5.0, 5.0]}\n" in page
    recipe = Recipe.load(made.path)
    assert recipe.tokens.features[5].formula.startswith("(abs(part_pid) == 211)")
    assert recipe.data.classes == {"Q": "jet_isQ", "G": "jet_isG"}


@pytest.mark.parametrize(
    ("text", "mentions", "line"),
    [
        ("b: 1\na: [", ["theirs.yaml", "YAML"], 2),
        ("data: {kind: text}\ntokens: {kind: text}\n", ["theirs.yaml", "recipe of Sciformer"], None),
        ("x: 1", ["`inputs`", "`labels`", "theirs.yaml"], None),
        ("!!python/object/apply:os.system [ls]", ["theirs.yaml", "YAML", "os.system"], 1),
        ("inputs: {a: 1}\nlabels: {value: [b]}", ["`inputs`", "NAME_features", "`pf_features`", " a"], None),
        ("inputs: {pf_features: 3}\nlabels: {value: [b]}", ["`inputs: pf_features`", "3"], None),
        ("inputs: {pf_features: {vars: [a]}}\nlabels: {value: 3}", ["`labels: value`", "3"], None),
        ("inputs: {pf_features: {vars: [a]}}\nlabels: {type: custom, value: {}}", ["`labels: value`"], None),
        pytest.param("#" * (1 << 21), ["2,097,152 bytes", "1,048,576"], None, id="large"),
    ],
)
def test_files_that_are_none(here, text, mentions, line):
    name = here(text)
    with refuses(*mentions, file=name, line=line):
        import_data(name)


def test_names_that_do_not_go_together(here, capsys):
    name = here(options())
    for line, mentions in {
        f"import {name} --run x": ["--out", "--run x"],
        f"import {name} --model.depth 3": ["--model.depth", "--data.files", "--data.valid", "--data.test"],
        f"import {name} --out a.txt": [".yaml", "a.txt", "a.yaml"],
        "import nothing.yaml": ["nothing.yaml"],
        "import folder --out a.yaml": ["--out", "--overwrite", "folder"],
    }.items():
        assert main(line.split()) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert all(mention in said for mention in mentions)


def test_an_imported_recipe_reads_its_files(here):
    table = Jets(classes=["QCD", "Tbqq"]).make(40)
    made = {name: column for name, column in table.items() if name.startswith(("part_", "jet_"))}
    charge = made["part_charge"]
    made |= {"part_pid": Lists(charge.values * 211, charge.lengths), "n_parts": made["jet_pt"]}
    write_root("jets.root", made | {"label": table["label_Tbqq"].astype(np.int32)})
    theirs = here(binary("jet_isTop", "jet_isQCD", [*FIRST, ["part_isCHad", None], *LAST], **PLUS))
    path = import_data(theirs, changes={"data.files": ["jets.root"]}).path
    assembly = Assembly.open(Recipe.load(path, {"data.split.valid": 0, "data.split.test": 0}))
    assert assembly.objective.classes == ["QCD", "Top"]
    batch = assembly.dataset("train").all()
    truth = np.where(table["label_Tbqq"] > 0, "Top", "QCD")
    assert sorted(batch.samples["label"]) == sorted(truth)
    features = assembly.tokens["tokens"].normalise(batch.stream).columns["features"]
    pt = np.hypot(*batch.stream.columns["vector"].T[:2])
    np.testing.assert_allclose(features[:, 0], np.clip((np.log(pt) - 1.7) * 0.7, -5, 5), atol=1e-5)
    assert set(np.unique(features[:, 5])) == {0.0, 1.0}


# Formulas


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


@pytest.mark.parametrize("columns", ["label_Hbb label_Hcc", "jet_isTop jet_isTau", "signal", "is_b is_c"])
def test_class_names(columns):
    assert class_names(columns.split()) == re.sub(r"label_|jet_is|is_", "", columns).split()
