"""Vectors of samples: against the model by hand, through windows, for every kind of run, written as files."""

import numpy as np
import pytest
import torch

from sciformer.cli.main import main
from sciformer.data.batch import StreamView
from sciformer.domains.text.tokens import as_table
from sciformer.evaluation.embed import Embedded, check_vectors, embed, write_vectors
from sciformer.recipe import Recipe
from sciformer.run import Run
from tests.domains.text.fitted import pair_recipe
from tests.errors import refuses
from tests.training.tiny import go, image_recipe, text_recipe

TEXTS = ["abc de", "", "a", "eeee dddd cccc bbbb aaaa eeee dddd cccc bbbb", "bad cab", "abc de"]
FEW = {"train__steps": 2, "train__ema": 0.0}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    encoder = {"kind": "encoder", "dim": 8, "depth": 2, "heads": 2}
    masked = {"kind": "masked"}
    go(text_recipe(folder, **FEW), folder / "decoder")
    go(text_recipe(folder, model=encoder, objective=masked, **FEW), folder / "encoder")
    for pool in ("class_token", "max", "attention"):
        labelled = text_recipe(folder, model=encoder | {"pool": pool}, objective={"kind": "classify"}, **FEW)
        data = {"kind": "lines", "files": [str(lines_of(folder))], "split": {"valid": 0.2, "test": 0.0}}
        go(Recipe.from_dict({**labelled.to_dict(), "data": data}), folder / pool)
    go(image_recipe(folder, train__steps=2), folder / "images")
    return folder


def lines_of(folder):
    path = folder / "labelled.tsv"
    path.write_text("label\ttext\n" + "".join(f"{n % 2}\t{'abcde'[n % 5] * 3} {n}\n" for n in range(30)))
    return path


def hidden_of(run, text):
    """The hidden vectors of one text, window by window, by hand."""
    tokens, model = run.assembly.tokens["tokens"], run.model
    ids = torch.as_tensor(tokens.encode(text), dtype=torch.long)
    found = []
    for start in range(0, max(1, len(ids)), tokens.context):
        view = StreamView({"ids": ids[start : start + tokens.context][None]}, None)
        with torch.no_grad():
            found.append(model.decode(view)[0] if hasattr(model, "decode") else model.encode(view).x[0])
    return found


@pytest.mark.parametrize("name", ["encoder", "decoder", "max"])
@pytest.mark.parametrize("pool", ["model", "mean", "max", "last"])
def test_vectors_against_the_model_by_hand(runs, name, pool):
    run = Run(runs / name)
    found = embed(run, as_table(TEXTS), pool, batch=2)
    assert (found.vectors.shape, found.vectors.dtype) == ((6, 8), np.float32)
    how = {"model": "max" if name == "max" else "mean"}.get(pool, pool)
    for vector, text in zip(found.vectors, TEXTS):
        hidden = torch.cat(hidden_of(run, text))
        if not len(text):
            assert np.isfinite(vector).all()
            continue
        expected = {"mean": hidden.mean(0), "max": hidden.amax(0), "last": hidden[-1]}[how]
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)
    np.testing.assert_allclose(found.vectors[0], found.vectors[5], atol=1e-6)


@pytest.mark.parametrize("name", ["class_token", "attention"])
def test_the_models_own_pooling_is_a_mean_over_windows(runs, name):
    run = Run(runs / name)
    context = run.recipe.tokens.context
    long = "abcde " * 5
    parts = [long[start : start + context] for start in range(0, len(long), context)]
    whole, apart = (embed(run, as_table(texts)).vectors for texts in ([long], parts))
    weight = np.array([len(part) for part in parts])[:, None]
    np.testing.assert_allclose(whole[0], (apart * weight).sum(0) / weight.sum(), atol=1e-5)
    mean = embed(run, as_table(parts), "mean").vectors
    assert not np.allclose(mean, apart, atol=1e-3)
    if name == "class_token":
        np.testing.assert_array_equal(embed(run, as_table(parts), "class_token").vectors, apart)


def test_order_columns_and_length_one(runs):
    run = Run(runs / "class_token")
    table = {**as_table(TEXTS[::-1]), "label": np.arange(6), "name": np.array(list("uvwxyz"))}
    found = embed(run, table, unit=True, batch=4)
    samples = {name: column.tolist() for name, column in found.samples.items()}
    assert samples == {"label": [0, 1, 2, 3, 4, 5], "name": list("uvwxyz")}
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, atol=1e-6)
    plain = embed(run, as_table(TEXTS)).vectors[::-1]
    np.testing.assert_allclose(found.vectors, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6)
    assert embed(run, as_table([])).vectors.shape == (0, 8)


def test_every_line_has_its_vector(runs, tmp_path):
    run = Run(runs / "encoder")
    run.recipe = run.recipe.change({"data.documents": "line"})
    (tmp_path / "lines.txt").write_text("abc\n\ndead bee\n", "utf-8")
    found = embed(run, tmp_path / "lines.txt").vectors
    np.testing.assert_allclose(found, embed(run, as_table(["abc", "", "dead bee"])).vectors, atol=1e-6)


def test_images_have_vectors_too(runs):
    run = Run(runs / "images")
    with np.load(runs / "images.npz") as table:
        vectors = embed(run, dict(table)).vectors
    assert vectors.shape == (30, 8)
    np.testing.assert_array_equal(embed(run, runs / "images.npz").vectors, vectors)
    logits = run.model.heads["class"](torch.as_tensor(vectors)).softmax(-1).detach().numpy()
    np.testing.assert_allclose(run.predict(runs / "images.npz")["probabilities"], logits, atol=1e-5)


def test_of_source_and_target_the_source_has_vectors(tmp_path):
    run = go(pair_recipe(tmp_path, {"unit": "words"}, {"unit": "words"}), tmp_path / "run")
    table = {"en": np.array(["two men", "dog"], object), "de": np.array(["", "hund"], object)}
    found = embed(run, table)
    assert found.vectors.shape == (2, 8)
    table["de"] = np.array(["zwei", "ein"], object)  # which is not looked at
    np.testing.assert_array_equal(embed(run, table).vectors, found.vectors)


def test_the_verb_writes_parquet_and_npy(runs, tmp_path, monkeypatch, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.chdir(tmp_path)
    path = lines_of(tmp_path)
    assert main(["embed", str(runs / "class_token"), str(path), "--plot", "map.png", "--by", "labl"]) == 2
    assert "Did you mean 'label'" in capsys.readouterr().err
    assert not (tmp_path / "vectors.parquet").exists()
    assert main(["embed", str(runs / "class_token"), str(path), "--plot", "map.png"]) == 0
    assert capsys.readouterr().out == "wrote 30 vectors of 8 numbers to vectors.parquet\nwrote map.png\n"
    assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"
    table = parquet.read_table("vectors.parquet")
    assert table.column_names == ["id", "line", "label", "vector"]
    assert table["id"].to_pylist() == list(range(30))
    assert [str(label) for label in table["label"].to_pylist()] == [str(n % 2) for n in range(30)]
    expected = embed(Run(runs / "class_token"), [path]).vectors
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), np.float32), expected)
    assert main(["embed", str(runs / "class_token"), str(path), "--out", "new/v.npy", "--pool", "max", "--unit"]) == 0
    stored = np.load("new/v.npy")
    np.testing.assert_array_equal(stored, embed(Run(runs / "class_token"), [path], "max", unit=True).vectors)


def test_lists_and_ids_of_ones_own_in_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    lists = np.empty(2, object)
    lists[:] = [np.array(["a", "b"]), np.array(["c"])]
    found = Embedded(np.eye(2, dtype=np.float32), {"id": np.array([7, 9]), "words": lists, "box": np.ones((2, 3))})
    assert write_vectors(tmp_path / "v.parquet", found) == 2
    table = parquet.read_table(tmp_path / "v.parquet").to_pydict()
    expected = {"id": [7, 9], "words": [["a", "b"], ["c"]], "box": [[1.0] * 3] * 2, "vector": [[1.0, 0.0], [0.0, 1.0]]}
    assert list(table.items()) == list(expected.items())
    write_vectors(tmp_path / "v.npz", found)
    with np.load(tmp_path / "v.npz") as stored:
        assert stored["vector"].tolist() == [[1.0, 0.0], [0.0, 1.0]]
        assert stored["words"].tolist() == ["a b", "c"]
    assert write_vectors(tmp_path / "none.parquet", Embedded(np.zeros((0, 2), np.float32), {})) == 0


def test_mistakes(runs, tmp_path, monkeypatch, capsys):
    run = Run(runs / "encoder")
    for pool, mention, hint in (("means", "'means'", "'mean'"), ("class_token", "class_token", "--pool mean")):
        with refuses(mention, key="--pool", hint=hint):
            embed(run, as_table(["a"]), pool)
    with refuses(".npy", "v.txt", hint="v.parquet"):
        check_vectors(tmp_path.relative_to(tmp_path) / "v.txt")
    (tmp_path / "file").write_text("")
    with refuses(tmp_path / "file"):
        write_vectors(tmp_path / "file" / "v.npy", Embedded(np.zeros((1, 2), np.float32), {}))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with refuses("`pyarrow`", hint="pip install "):
        check_vectors(tmp_path / "v.parquet")
    assert main(["embed", str(tmp_path), "x.txt", "--out", str(tmp_path / "v.npy")]) == 2
    assert str(tmp_path) in "".join(capsys.readouterr().err.split())
