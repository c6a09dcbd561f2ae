"""Training and prediction on tables in memory: the same numbers as from files, and clear errors."""

from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from astropy.table import Table

import sciformer as sf
from sciformer.cli.main import main
from sciformer.data.readers.simulation import write_simulation
from sciformer.domains.jets.simulate.jets import Jets
from tests.errors import refuses

MODEL = {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2}
TRAIN = {"steps": 3, "batch": 8, "warmup": 1, "device": "cpu", "evaluate_every": 2}
QUIET = {"show": False, "report": False}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    torch.set_num_threads(1)


def write(path, text):
    path.write_text(text)
    return str(path)


def jets(folder):
    """Nested lists, with a formula, a selection, and classes by name."""
    file = folder / "jets.parquet"
    write_simulation(Jets(kind="jets", number=80, classes=["QCD", "Tbqq"], seed=1), file)
    arrow = pq.read_table(file)
    lists = arrow.to_pydict()
    data = {"kind": "events", "label": "label", "select": "jet_pt > 510", "new": {"energy": "part_energy * 1"}}
    recipe = {
        "data": {**data, "files": [str(file)]},
        "tokens": {
            "kind": "particles",
            "features": "kin",
            "max_tokens": 12,
            "widths": [8],
            "pair_widths": [8],
            "vector": ["part_px", "part_py", "part_pz", "energy"],
        },
    }
    return recipe, {
        "arrow": lambda: arrow,
        "lists": lambda: lists,
        "records": lambda: arrow.to_pylist(),
        "awkward": lambda: ak.from_arrow(arrow),
        "tensors": lambda: {**lists, "part_px": list(map(torch.tensor, lists["part_px"]))},
        "pandas": lambda: import_module("pandas").DataFrame(lists),
        "polars": lambda: import_module("polars").from_arrow(arrow),
    }


def series(folder):
    """A row for each observation, of 24 stars of two classes."""
    rng = np.random.default_rng(0)
    star = np.repeat(np.arange(24), 10)
    table = {
        "star": [f"star {number}" for number in star],
        "mjd": np.round(rng.uniform(0, 100, 240), 3),
        "mag": np.round(rng.normal(15, 1, 240), 3),
        "magerr": np.round(rng.uniform(0.01, 0.1, 240), 3),
        "class": [("RRAB", "MIRA")[number % 2] for number in star],
    }
    lines = ["\t".join(map(str, row)) for row in zip(*table.values())]
    file = write(folder / "stars.tsv", "\n".join(["\t".join(table), *lines]) + "\n")
    recipe = {
        "data": {"kind": "series", "files": [file], "id": "star", "time": "mjd", "split": {"valid": 0.2}},
        "tokens": {"kind": "observations"},
    }
    return recipe, {
        "astropy": lambda: Table(table),
        "arrays": lambda: table,
        "pandas": lambda: import_module("pandas").DataFrame(table),
        "polars": lambda: import_module("polars").DataFrame(table),
    }


def pictures(folder):
    rng = np.random.default_rng(0)
    image, label = rng.integers(0, 200, (40, 8, 8, 3)).astype(np.uint8), np.array(["cat", "dog"] * 20)
    np.savez(folder / "images.npz", image=image, label=label)
    recipe = {
        "data": {"kind": "images", "files": [str(folder / "images.npz")], "size": 6, "channels": 1},
        "tokens": {"kind": "patches", "patch": 3},
    }
    return recipe, {
        "arrays": lambda: {"image": image, "label": label},
        "list": lambda: {"image": list(image), "label": list(label)},
        "tensors": lambda: {"image": torch.tensor(image), "label": label.tolist()},
        "pandas": lambda: import_module("pandas").DataFrame({"image": list(image), "label": label}),
        "polars": lambda: import_module("polars").DataFrame({"image": image, "label": label}),
        "astropy": lambda: Table({"image": image, "label": label}),
    }


def arrays(folder):
    recipe, tables = pictures(folder)
    image = tables["arrays"]()["image"][..., 0]
    label = np.arange(40) % 2
    np.savez(folder / "arrays.npz", image=image, label=label)
    recipe = {**recipe, "data": {"kind": "arrays", "files": [str(folder / "arrays.npz")]}}
    return recipe, {"arrays": lambda: {"image": image, "label": label}, "structured": lambda: structured(image, label)}


def structured(image, label):
    made = np.zeros(len(label), [("image", image.dtype, image.shape[1:]), ("label", int)])
    made["image"], made["label"] = image, label
    return made


def lines(folder):
    rows = [(f"{word} film {number}", mood) for number in range(20) for word, mood in (("good", "pos"), ("bad", "neg"))]
    file = write(folder / "moods.tsv", "text\tlabel\n" + "".join(f"{text}\t{mood}\n" for text, mood in rows))
    table = {"text": [text for text, _ in rows], "label": [mood for _, mood in rows]}
    recipe = {"data": {"kind": "lines", "files": [file]}, "tokens": {"kind": "text", "unit": "words", "context": 8}}
    return recipe, {
        "lists": lambda: table,
        "records": lambda: [{"text": text, "label": mood} for text, mood in rows],
        "arrow": lambda: pa.table(table),
        "pandas": lambda: import_module("pandas").DataFrame(table),
        "polars": lambda: import_module("polars").DataFrame(table),
    }


def running(folder):
    texts = [f"one {number} two {number * 7 % 5} three" for number in range(40)]
    recipe = {
        "data": {"kind": "text", "files": [write(folder / "lines.txt", "\n".join(texts) + "\n")], "documents": "line"},
        "tokens": {"kind": "text", "unit": "characters", "context": 16},
        "model": {**MODEL, "kind": "decoder"},
        "objective": {"kind": "next_token"},
    }
    return recipe, {
        "list": lambda: texts,
        "table": lambda: {"text": texts},
        "numpy": lambda: np.array(texts),
        "pandas": lambda: import_module("pandas").Series(texts),
        "string": lambda: "\n".join(texts),
    }


def whole(folder):
    recipe, tables = running(folder)
    text = "\n".join(tables["list"]()) + "\n"
    data = {"kind": "text", "files": [write(folder / "whole.txt", text)]}
    return {**recipe, "data": data}, {"string": lambda: text}


def pairs(folder):
    table = {"en": [f"a dog {n} runs" for n in range(24)], "de": [f"ein Hund {n} rennt" for n in range(24)]}
    for column, texts in table.items():
        write(folder / f"pairs.{column}", "\n".join(texts) + "\n")
    recipe = {
        "data": {"kind": "parallel", "files": [str(folder / "pairs.{}")], "columns": ["en", "de"]},
        "tokens": {
            "source": {"kind": "text", "column": "en", "unit": "words", "context": 8, "end": True},
            "target": {"kind": "text", "column": "de", "unit": "words", "context": 8, "begin": True, "end": True},
        },
        "model": {**MODEL, "kind": "encoder_decoder"},
        "objective": {"kind": "translate"},
    }
    return recipe, {"lists": lambda: table, "pandas": lambda: import_module("pandas").DataFrame(table)}


def tags(folder):
    words, names = [["Ada", "left", "Rome", str(n)] for n in range(24)], [["B-person", "O", "B-place", "O"]] * 24
    rows = ("".join(f"{w}\t{t}\n" for w, t in zip(*one)) for one in zip(words, names))
    recipe = {
        "data": {"kind": "conll", "files": [write(folder / "tags.conll", "\n".join(rows))]},
        "tokens": {"kind": "text", "column": "words", "unit": "words", "context": 8},
        "objective": {"kind": "tag"},
    }
    table = {"words": words, "tags": names}
    return recipe, {"lists": lambda: table, "arrow": lambda: pa.table(table), "awkward": lambda: ak.Array(table)}


KINDS = {one.__name__: one for one in (jets, series, pictures, arrays, lines, running, whole, pairs, tags)}


def recipe_of(sections):
    return sf.Recipe.from_dict({"model": MODEL, "objective": {"kind": "classify"}, "train": TRAIN, **sections})


@pytest.fixture(scope="module", params=KINDS)
def from_files(request, tmp_path_factory):
    """A run trained on files, and the same data as tables in memory."""
    folder = tmp_path_factory.mktemp(request.param)
    sections, tables = KINDS[request.param](folder)
    run = sf.train(recipe_of(sections), folder / "run", **QUIET)
    return SimpleNamespace(run=run, sections=sections, tables=tables, folder=folder)


def curve(run):
    return [
        {name: value for name, value in record.items() if "loss" in name or name == "step"} for record in run.records
    ]


def test_tables_give_the_numbers_of_files(from_files):
    """Weights and losses are equal bit by bit, for the table of every package."""
    known = from_files.run
    sections = {**from_files.sections, "data": {**from_files.sections["data"], "files": []}}
    for name, make in from_files.tables.items():
        if name in ("pandas", "polars") and find_spec(name) is None:
            continue
        run = sf.train(recipe_of(sections), from_files.folder / name, data=make(), **QUIET)
        assert curve(run) == curve(known), name
        assert run.about["samples"] == known.about["samples"], name
        for weight, other in zip(run.model.state_dict().values(), known.model.state_dict().values()):
            assert torch.equal(weight, other), name
        assert run.evaluate("valid").scores == known.evaluate("valid").scores, name
        assert not run.recipe.data.files


@pytest.mark.parametrize("kind", ["jets", "series", "pictures", "lines"])
def test_the_command_line_gives_the_numbers_of_a_frame(kind, tmp_path, monkeypatch):
    """`sciformer train` and `sciformer predict` on files, against Python on a frame."""
    pytest.importorskip("pandas")
    monkeypatch.setattr("sciformer.run.Run.report", lambda run: run.folder.write("report.html", ""))
    sections, tables = KINDS[kind](tmp_path)
    (file,), frame = sections["data"]["files"], tables["pandas"]()
    write(tmp_path / "recipe.yaml", recipe_of(sections).to_yaml())
    words = ["train", str(tmp_path / "recipe.yaml"), "--run", str(tmp_path / "files"), "--quiet"]
    assert main([*words, "--train.seed", "3", "--model.depth", "2"]) == 0
    own = recipe_of({**sections, "data": {**sections["data"], "files": []}})
    own = own.change({"train.seed": 3, "model.depth": 2})
    run, other = sf.train(own, tmp_path / "frame", data=frame, **QUIET), sf.Run(tmp_path / "files")
    assert curve(run) == curve(other)
    assert all(map(torch.equal, run.model.state_dict().values(), other.model.state_dict().values()))
    assert main(["predict", str(other.path), file, "--out", str(tmp_path / "found.parquet"), "--quiet"]) == 0
    written, found = pq.read_table(tmp_path / "found.parquet"), sf.predict(run.path, frame)
    assert written["class"].to_pylist() == list(found["class"])
    for name in run.classes:
        assert written[f"score_{name}"].to_pylist() == found[f"score_{name}"].tolist(), name


@pytest.fixture(scope="module")
def jet_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jets")
    sections, tables = jets(folder)
    return SimpleNamespace(run=sf.train(recipe_of(sections), folder / "run", **QUIET), sections=sections, tables=tables)


def test_predictions_of_a_frame_are_a_frame_with_its_index(jet_run):
    pandas = pytest.importorskip("pandas")
    lists, run = jet_run.tables["lists"](), jet_run.run
    frame = pandas.DataFrame(lists, index=[f"jet {number}" for number in range(80)])
    known = run.predict(lists)
    found = sf.predict(run.path, frame)
    kept = [number for number, pt in enumerate(lists["jet_pt"]) if pt > 510]
    assert list(found.index) == [f"jet {number}" for number in kept]
    assert list(found["class"]) == known["class"].tolist()
    for name, column in zip(run.classes, known["probabilities"].T):
        np.testing.assert_allclose(found[f"score_{name}"], column, rtol=1e-6)
    arrow = run.predict(jet_run.tables["arrow"]())
    assert isinstance(arrow, pa.Table)
    assert arrow["class"].to_pylist() == known["class"].tolist()


def test_predictions_of_polars_are_polars(jet_run):
    polars = pytest.importorskip("polars")
    found = jet_run.run.predict(jet_run.tables["polars"]())
    assert isinstance(found, polars.DataFrame)
    assert found["class"].to_list() == jet_run.run.predict(jet_run.tables["lists"]())["class"].tolist()


def test_logits_on_request(jet_run):
    found = jet_run.run.predict(jet_run.tables["lists"](), logits=True)
    exp = np.exp(found["logits"])
    np.testing.assert_allclose(exp / exp.sum(1, keepdims=True), found["probabilities"], atol=1e-6)


def test_intervals_of_a_regression(tmp_path):
    rng = np.random.default_rng(0)
    table = Table({"image": rng.normal(size=(40, 4, 4)), "size": rng.normal(size=40)})
    objective = {"kind": "regress", "targets": ["size"]}
    sections = {"data": {"kind": "arrays"}, "tokens": {"kind": "patches", "patch": 2}, "objective": objective}
    run = sf.train(recipe_of(sections), tmp_path / "run", data=table, **QUIET)
    found = run.predict(table, intervals=True)
    assert isinstance(found, Table)
    assert (found["low_95_size"] < found["low_68_size"]).all()
    assert (found["low_68_size"] < found["mean_size"]).all()
    assert "low_68_size" not in run.predict(table).colnames


def test_the_model_is_an_ordinary_module(jet_run):
    run, lists = jet_run.run, jet_run.tables["lists"]()
    inputs = run.inputs(lists)
    found = run.objective.predict(run.model, inputs)["probabilities"]
    np.testing.assert_allclose(found.detach().numpy(), run.predict(lists)["probabilities"], atol=1e-6)
    found[:, 0].sum().backward()
    assert any(weight.grad is not None for weight in run.model.parameters())
    assert run.model.encode(inputs.stream).x.shape[-1] == MODEL["dim"]


def test_parts_by_tables_and_by_a_column(jet_run, tmp_path):
    """Both divide the samples alike, and then train alike."""
    arrow = jet_run.tables["arrow"]()
    names = ["train"] * 40 + ["dev"] * 20 + ["test"] * 20
    column = sf.train(
        recipe_of(jet_run.sections),
        tmp_path / "column",
        data=arrow.append_column("part", [names]),
        parts="part",
        **QUIET,
    )
    pieces = {"data": arrow[:40], "valid": arrow[40:60], "test": arrow[60:]}
    tables = sf.train(recipe_of(jet_run.sections), tmp_path / "tables", **pieces, **QUIET)
    assert curve(column) == curve(tables)
    assert set(column.about["data"]) == {"memory:train", "memory:valid", "memory:test"}
    assert column.evaluate("test").scores == tables.evaluate(data=arrow[60:]).scores
    only = sf.train(recipe_of(jet_run.sections), tmp_path / "only", data=arrow[:60], test=arrow[60:], **QUIET)
    assert set(only.about["samples"]) == {"train", "valid", "test"}
    with refuses("dev", "nowhere", key="parts"):
        sf.train(recipe_of(jet_run.sections), data=arrow.append_column("dev", [names]), parts="nowhere")
    with refuses("jet_pt", key="parts"):
        sf.train(recipe_of(jet_run.sections), data=arrow, parts="jet_pt")
    with refuses("valid", key="parts"):
        sf.train(recipe_of(jet_run.sections), data=arrow.append_column("part", [names]), valid=arrow, parts="part")
    with refuses("valid=", key="data"):
        sf.train(recipe_of(jet_run.sections), valid=arrow)


def test_a_run_needs_its_table_again(jet_run, tmp_path):
    recipe, arrow = recipe_of(jet_run.sections), jet_run.tables["arrow"]()
    stopped = sf.train(recipe, tmp_path / "run", data=arrow, stop_after=1, **QUIET)
    assert not stopped.about.get("complete")
    with refuses("memory", key="data", hint="data=table"):
        sf.train(recipe.change({"data.files": []}), tmp_path / "run", **QUIET)
    with refuses("memory:train", error=sf.UserError):
        sf.train(recipe, tmp_path / "run", data=arrow[:50], **QUIET)
    done = sf.train(recipe, tmp_path / "run", data=arrow, **QUIET)
    assert done.about["resumed"] == 1
    assert curve(done) == curve(jet_run.run)
    again = sf.Run(tmp_path / "run")
    with refuses("memory", key="data", hint="run.evaluate(data=table)"):
        again.evaluate()
    assert again.evaluate(data=arrow).size == jet_run.run.evaluate(files=jet_run.sections["data"]["files"]).size
    file = jet_run.sections["data"]["files"][0]
    assert main(["predict", str(tmp_path / "run"), file, "--out", str(tmp_path / "answers.parquet"), "--quiet"]) == 0
    np.testing.assert_allclose(
        pq.read_table(tmp_path / "answers.parquet")["score_QCD"].to_numpy(),
        again.predict(arrow)["score_QCD"].to_numpy(),
    )


def test_shipped_recipes_by_name_read_tables_in_place_of_a_simulation(jet_run):
    recipe = sf.Recipe.load("jets/part").with_tables(jet_run.tables["arrow"]())
    assert recipe.data.kind == "events"
    assert recipe.change({"model.depth": 1}).tables["train"].rows == 80
    assert "rows in memory" in recipe._repr_html_()
    with refuses("lattices", key="data.kind"):
        sf.Recipe.load("spins/ising-vit").data.with_tables(recipe.tables)


def test_workers_read_the_table(jet_run, tmp_path):
    recipe = recipe_of(jet_run.sections).change({"train.workers": 2})
    assert curve(sf.train(recipe, tmp_path / "run", data=jet_run.tables["arrow"](), **QUIET)) == curve(jet_run.run)


def test_check_and_compare_read_tables(jet_run, tmp_path):
    arrow, recipe = jet_run.tables["arrow"](), recipe_of(jet_run.sections)
    assert not sf.check(recipe, data=arrow).problems
    found = sf.compare([recipe, recipe.change({"model.dim": 4})], 1, tmp_path, data=arrow, show=False, report=False)
    assert not found.failed
    assert len(sf.embed(jet_run.run, arrow).vectors) == 80


@pytest.mark.parametrize(
    ("wrong", "mentions", "key"),
    [
        (lambda table: {**table, "part_px": None}, ["part_px"], None),
        (lambda table: {name: one for name, one in table.items() if name != "part_px"}, ["part_px"], None),
        (lambda table: {**table, "part_px": [object()] * 80}, ["part_px", "object"], None),
        (lambda table: {**table, "part_px": [[object()], *table["part_px"][1:]]}, ["part_px", "object"], None),
        (lambda table: {**table, "part_px": [["a"], *table["part_px"][1:]]}, ["part_px"], None),
        (lambda table: {**table, "part_px": [[[1.0], [1.0, 2.0]]] * 80}, ["part_px", "lists"], None),
        (lambda table: {**table, "part_px": table["part_px"][:79]}, ["part_px", 79, 80], None),
        (lambda table: {**table, "part_px": [one[:-1] for one in table["part_px"]]}, ["part_px"], None),
        (lambda table: {**table, "label": [None, *table["label"][1:]]}, ["label"], "data.label"),
        (lambda table: {**table, "label": [np.nan] * 79 + [1.0]}, ["label"], "objective.label"),
        (lambda table: {name: [] for name in table}, ["rows"], "data"),
        (lambda table: {}, ["columns"], None),
        (lambda table: 3, ["int"], None),
        (lambda table: "jets.parquet", ["part_energy"], None),
    ],
)
def test_wrong_tables(jet_run, tmp_path, wrong, mentions, key):
    with refuses(*mentions, key=key):
        sf.train(recipe_of(jet_run.sections), tmp_path / "run", data=wrong(jet_run.tables["lists"]()), **QUIET)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("make", "wrong", "mentions"),
    [
        (lines, {"text": ["a", "b"], "label": ["x", None]}, ["label", 2]),
        (lines, {"text": [1, 2], "label": ["x", "y"]}, []),
        (pairs, {"en": ["a"], "fr": ["b"]}, ["de"]),
        (tags, {"words": [["a", "b"]], "tags": [["O"]]}, ["row 0", 2, 1]),
        (tags, {"text": ["a b"]}, ["words"]),
        (pictures, {"image": np.zeros((8, 8)), "label": np.zeros(8)}, ["image"]),
        (pictures, {"image": [np.zeros((4, 4)), None], "label": ["a", "b"]}, ["image"]),
        (arrays, {"image": np.zeros((8, 4, 4)), "label": [0.0, np.nan] * 4}, ["label"]),
        (running, {"first": ["a"], "second": ["b"]}, ["first", "second"]),
        (series, {"star": ["a"] * 4, "mjd": [1, 2, 3, 4], "class": ["x"] * 4}, ["value"]),
    ],
)
def test_wrong_tables_of_other_readers(make, wrong, mentions, tmp_path):
    sections, _ = make(tmp_path)
    with refuses(*mentions):
        sf.train(recipe_of(sections), tmp_path / "run", data=wrong, **QUIET)


@pytest.mark.parametrize(
    ("wrong", "mentions", "key"),
    [
        (lambda frame: frame.drop(columns="part_px"), ["part_px"], None),
        (lambda frame: frame.assign(part_px=frame.jet_pt), ["part_px"], None),
        (lambda frame: frame.assign(part_px="a"), ["part_px"], None),
        (lambda frame: frame.assign(part_px=[object()] * 80), ["part_px", "object"], None),
        (lambda frame: frame.assign(part_px=[[1.0, "a"]] * 80), ["part_px"], None),
        (lambda frame: frame.assign(jet_pt=[[1.0]] * 80), ["data.select"], None),
        (lambda frame: frame.iloc[:0], ["rows"], "data"),
    ],
)
def test_wrong_frames_of_new_samples(jet_run, wrong, mentions, key):
    pandas = pytest.importorskip("pandas")
    with refuses(*mentions, key=key):
        jet_run.run.predict(wrong(pandas.DataFrame(jet_run.tables["lists"]())))


def test_dtypes_of_a_frame_change_nothing(tmp_path):
    """Narrow, nullable and arrow-backed columns, categories, and objects with the same values."""
    pandas = pytest.importorskip("pandas")
    sections, tables = series(tmp_path)
    sections["data"]["files"] = []
    frame = pandas.DataFrame(tables["arrays"]()).round({"mjd": 0, "mag": 0})
    known = sf.train(recipe_of(sections), tmp_path / "run", data=frame, **QUIET)
    for number, dtypes in enumerate(
        (
            {"mjd": "int32", "mag": "float16", "class": "category", "star": "category"},
            {"mjd": "Int64", "mag": "Float32", "class": "string"},
            {"mjd": "float64[pyarrow]", "mag": object, "class": "string[pyarrow]"},
        )
    ):
        run = sf.train(recipe_of(sections), tmp_path / f"{number}", data=frame.astype(dtypes), **QUIET)
        assert curve(run) == curve(known), dtypes
        assert run.predict(frame.astype(dtypes)).equals(known.predict(frame)), dtypes


def test_strings_are_texts_where_they_cannot_be_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sections, tables = lines(tmp_path)
    run = sf.train(recipe_of(sections), "run", data=tables["lists"](), **QUIET)
    assert len(run.predict(["a good film", "bad"])["class"]) == 2
    assert len(run.predict("Great!")["class"]) == 1
    assert len(run.predict(["moods.tsv"])["class"]) == 40
    assert len(run.predict(tmp_path / "moods.tsv")["class"]) == 40
    with refuses("mood.tsv"):
        run.predict(["mood.tsv"])
    with refuses("nowhere"):
        run.predict([tmp_path / "nowhere"])


def test_notebooks_show_runs_and_recipes(jet_run, tmp_path):
    shown = jet_run.run._repr_html_()
    assert "<svg" in shown
    assert "accuracy" in shown
    recipe = recipe_of(jet_run.sections).change({"about.title": "<script>alert(1)</script>"})
    assert "<script>" not in recipe._repr_html_()
    assert "depth: 1" in recipe._repr_html_()
    (tmp_path / "<b>").mkdir()
    odd = sf.train(recipe, tmp_path / "<b>" / "run", data=jet_run.tables["arrow"](), stop_after=1, **QUIET)
    assert "<b>/run" not in odd._repr_html_()


def test_images_of_different_shapes(tmp_path):
    rng = np.random.default_rng(0)
    shapes = [(8, 8, 3), (6, 9, 3), (7, 7, 1)] * 8
    table = {"image": [rng.integers(0, 200, shape).astype(np.uint8) for shape in shapes], "label": ["a", "b"] * 12}
    data = {"kind": "images", "size": 6, "channels": 1}
    recipe = recipe_of({"data": data, "tokens": {"kind": "patches", "patch": 3}})
    run = sf.train(recipe, tmp_path / "run", data=table, **QUIET)
    assert run.recipe.data.kind == "images"
    found = run.predict(table)["probabilities"]
    alone = [run.predict({"image": [image]})["probabilities"][0] for image in table["image"]]
    np.testing.assert_allclose(found, alone, atol=1e-6)


def test_a_column_of_file_names(tmp_path):
    """Files are found from the current folder, and give the numbers of the arrays in them."""
    image = np.random.default_rng(0).integers(0, 200, (24, 8, 8)).astype(np.uint8)
    for number, one in enumerate(image):
        np.save(tmp_path / f"{number}.npy", one)
    label = ["a", "b"] * 12
    recipe = recipe_of({"data": {"kind": "images"}, "tokens": {"kind": "patches", "patch": 4}})
    names = {"path": [str(tmp_path / f"{number}.npy") for number in range(24)], "label": label}
    files = sf.train(recipe, tmp_path / "files", data=names, **QUIET)
    arrays = sf.train(recipe, tmp_path / "arrays", data={"image": image, "label": label}, **QUIET)
    assert curve(files) == curve(arrays)
