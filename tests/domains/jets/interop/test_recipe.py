"""Data files of weaver from the command line: recipes that load, and files that are none."""

import numpy as np
import pytest
import uproot
import yaml
from awkward import unflatten

from sciformer.assembly import Assembly
from sciformer.cli.main import main
from sciformer.data.columns import Lists
from sciformer.domains.jets.interop.data_config import import_data, read_data_config
from sciformer.domains.jets.simulate.jets import jets
from sciformer.recipe import Recipe
from tests.domains.jets.interop.test_data_config import FIRST, PLUS, binary, options
from tests.errors import refuses


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
    assert "without an equal: `monitor_variables: jet_pt`" in printed.err
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
    ],
)
def test_files_that_are_none(here, capsys, text, mentions, line):
    name = here(text)
    with refuses(*mentions, file=name, line=line):
        import_data(name)
    assert main(["import", name]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert all(mention in said for mention in mentions)


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
    with refuses("--model.depth", "--data.files", key="model.depth"):
        import_data(name, changes={"model.depth": 3})
    with refuses("a.txt", key="--out", file="a.txt", hint="a.yaml"):
        import_data(name, "a.txt")
    with refuses(file="nothing.yaml"):
        import_data("nothing.yaml")


def test_a_large_file_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("#" * (1 << 21))
    with refuses("2,097,152 bytes", "1,048,576", file=tmp_path / "a.yaml"):
        read_data_config(tmp_path / "a.yaml")


def test_an_imported_recipe_reads_its_files(here):
    table = jets(40, classes=("QCD", "Tbqq"))
    kept = [name for name in table if name.startswith(("part_", "jet_"))]
    made = {name: unflatten(c.values, c.lengths) if isinstance(c := table[name], Lists) else c for name in kept}
    made |= {
        "label": table["label_Tbqq"].astype(np.int32),
        "part_pid": made["part_charge"] * 211,
        "n_parts": made["jet_pt"],
    }
    with uproot.recreate("jets.root") as file:
        kinds = {name: getattr(column, "type", None) or column.dtype for name, column in made.items()}
        file.mktree("tree", kinds).extend(made)
    listed = [*FIRST, ["part_isCHad", None], ["part_deta", None], ["part_dphi", None]]
    path = import_data(
        here(binary("jet_isTop", "jet_isQCD", listed, **PLUS)), changes={"data.files": ["jets.root"]}
    ).path
    assembly = Assembly.open(Recipe.load(path, {"data.split.valid": 0, "data.split.test": 0}))
    assert assembly.objective.classes == ["QCD", "Top"]
    dataset = assembly.dataset("train")
    batch = dataset.all()
    truth = np.where(table["label_Tbqq"] > 0, "Top", "QCD")
    assert sorted(batch.samples["label"]) == sorted(truth)
    features = assembly.tokens["tokens"].normalise(batch.stream).columns["features"]
    pt = np.hypot(*batch.stream.columns["vector"].T[:2])
    np.testing.assert_allclose(features[:, 0], np.clip((np.log(pt) - 1.7) * 0.7, -5, 5), atol=1e-5)
    assert set(np.unique(features[:, 5])) == {0.0, 1.0}
