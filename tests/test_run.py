"""Training and prediction on tables in memory: the same numbers as from files, and clear errors."""

from types import SimpleNamespace

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from astropy.table import Table

import sciformer as sf
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
    data = {"kind": "events", "label": "label", "select": "jet_pt > 510", "new": {"part_energy": "part_energy * 1"}}
    recipe = {
        "data": {**data, "files": [str(file)]},
        "tokens": {"kind": "particles", "features": "kin", "max_tokens": 12, "widths": [8], "pair_widths": [8]},
    }
    return recipe, {
        "arrow": lambda: arrow,
        "lists": lambda: lists,
        "records": lambda: arrow.to_pylist(),
        "awkward": lambda: ak.from_arrow(arrow),
        "tensors": lambda: {**lists, "part_px": list(map(torch.tensor, lists["part_px"]))},
        "pandas": lambda: pytest.importorskip("pandas").DataFrame(lists),
        "polars": lambda: pytest.importorskip("polars").from_arrow(arrow),
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
        "pandas": lambda: pytest.importorskip("pandas").DataFrame(table),
        "polars": lambda: pytest.importorskip("polars").DataFrame(table),
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
        "pandas": lambda: pytest.importorskip("pandas").DataFrame({"image": list(image), "label": label}),
        "polars": lambda: pytest.importorskip("polars").DataFrame({"image": image, "label": label}),
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
        "pandas": lambda: pytest.importorskip("pandas").DataFrame(table),
        "polars": lambda: pytest.importorskip("polars").DataFrame(table),
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
        "pandas": lambda: pytest.importorskip("pandas").Series(texts),
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
    return recipe, {"lists": lambda: table, "pandas": lambda: pytest.importorskip("pandas").DataFrame(table)}


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
        run = sf.train(recipe_of(sections), from_files.folder / name, data=make(), **QUIET)
        assert curve(run) == curve(known), name
        assert run.about["samples"] == known.about["samples"], name
        for weight, other in zip(run.model.state_dict().values(), known.model.state_dict().values()):
            assert torch.equal(weight, other), name
        assert run.evaluate("valid").scores == known.evaluate("valid").scores, name
        assert not run.recipe.data.files
