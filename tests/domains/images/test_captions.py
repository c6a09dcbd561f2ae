"""Captions from end to end: pictures with texts become runs that write, are scored and shown."""

import csv
import json

import numpy as np
import pytest
import torch
from PIL import Image

import sciformer as sf
from sciformer.assembly import Assembly
from sciformer.cli.main import main
from sciformer.data.batch import StreamView
from sciformer.domains.images.simulate.scenes import Scenes
from sciformer.evaluation.embed import embed
from sciformer.inspection import alignment
from sciformer.inspection.alignment import align, draw_alignment
from sciformer.inspection.report.figures import inspect_run
from sciformer.nn import Watch
from sciformer.objectives.seq2seq import coverage_penalty
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from sciformer.run import Run, train
from tests.errors import refuses

COUNT = 24
TINY = {"model.dim": 16, "model.depth": 1, "model.heads": 2, "train.device": "cpu", "train.warmup": 1}
TINY |= {
    "train.steps": 3,
    "train.evaluate_every": 3,
    "train.batch": 8,
    "train.pad_to_multiple": None,
    "train.log_every": 1,
}
WORDS = {"red": (255, 0, 0), "blue": (0, 0, 255), "green": (0, 255, 0), "white": (255, 255, 255)}
SMALL = {"tokens.source.patch": 4, "tokens.target.context": 8, "data.split.valid": 0.2}


def paint(folder, count=COUNT, side=8):
    """Pictures of one colour above another colour; return file names and captions."""
    folder.mkdir(exist_ok=True)
    rng, names, captions = np.random.default_rng(1), [], []
    for number in range(count):
        top, bottom = rng.choice(list(WORDS), 2)
        pixels = rng.integers(0, 40, (side, side, 3)).astype(np.uint8)
        pixels[: side // 2] |= np.array(WORDS[top], np.uint8)
        pixels[side // 2 :] |= np.array(WORDS[bottom], np.uint8)
        names.append(f"{number:03}.png")
        Image.fromarray(pixels).save(folder / names[-1])
        captions.append(f"{top} above {bottom}")
    return names, captions


def table(folder, names, captions, suffix="csv"):
    path = folder / f"captions.{suffix}"
    if suffix == "csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("path", "caption"), *zip(names, captions)])
    else:
        rows = [json.dumps({"file_name": name, "caption": text}) for name, text in zip(names, captions)]
        path.write_text("\n".join(rows) + "\n")
    return path


def recipe(path, name="images/caption-transformer", **changes):
    tell = name.endswith("tell")
    sizes = SMALL | ({"model.source.stages": [1], "model.source.dim": 8} if tell else {})
    tiny = {k: v for k, v in TINY.items() if k != "model.heads"} if tell else TINY
    tiny = {k: v for k, v in tiny.items() if k != "model.depth"} if name.endswith("coca") else tiny
    own = {"data.kind": "images", "data.files": [str(path)]}
    return Recipe.load(name, {**tiny, **sizes, **own, **changes})


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "pictures"
    names, captions = paint(folder, 160)
    table(folder, names, captions)
    return folder, names, captions


@pytest.fixture(scope="module")
def run(pictures, tmp_path_factory):
    torch.set_num_threads(1)
    learned = {"train.steps": 150, "train.evaluate_every": 150, "train.learning_rate": 1e-2, "train.batch": 32}
    learned |= {"model.dim": 32, "train.warmup": 10}
    return train(recipe(pictures[0] / "captions.csv", **learned), tmp_path_factory.mktemp("runs") / "a", show=False)


def test_it_learns_to_describe(run):
    found = run.evaluate("valid").scores
    assert found["exact_match"] > 0.7  # chance is 1 / 12
    assert {"loss", "perplexity", "token_accuracy", "bleu", "chrf", "exact_match"} == set(found)


def test_files_folders_tables_and_arrays_get_the_same_captions(run, pictures, tmp_path, capsys):
    folder, names, captions = pictures
    (plain := tmp_path / "plain").mkdir()
    for name in names[:20]:
        (plain / name).write_bytes((folder / name).read_bytes())
    assert main(["translate", str(run.path), str(plain)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert np.mean(np.array(lines) == np.array(captions[:20])) > 0.7
    array = np.stack([np.asarray(Image.open(plain / name)) for name in names[:20]])
    assert sf.translate(run, array) == sf.translate(run, {"image": array}) == run.translate([plain]) == lines
    np.savez(tmp_path / "array.npz", image=array)
    out = tmp_path / "out.csv"
    assert main(["translate", str(run.path), str(tmp_path / "array.npz"), "--out", str(out)]) == 0
    with out.open() as file:
        assert [row["caption"] for row in csv.DictReader(file)] == lines
    files = [str(plain / name) for name in names[:3]]
    assert main(["translate", str(run.path), *files, "--out", str(tmp_path / "out.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows == [{"file": file, "caption": line} for file, line in zip(files, lines)]
    assert main(["translate", str(run.path), *files, "--out", str(tmp_path / "out.csv")]) == 2  # without --overwrite


def test_known_captions_stay_beside_the_written_ones(run, pictures, tmp_path):
    out = tmp_path / "out.csv"
    assert main(["translate", str(run.path), str(pictures[0] / "captions.csv"), "--out", str(out)]) == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert "caption" in rows[0]
    assert len(rows) == len(pictures[1])


def test_attention_is_drawn_over_the_picture(run, pictures, tmp_path, capsys):
    picture = str(pictures[0] / pictures[1][4])
    sample = run.source([picture], streams=("source",)).load(0)
    found = align(run, sample)
    assert found.text == " ".join(found.target[:3]) == run.translate([picture])[0]
    assert found.mean.shape == (4, 4)  # three words and the end; four patches
    assert torch.allclose(found.mean.sum(-1), torch.ones(4).to(found.mean), atol=1e-5)
    titles = [axes.get_title() for axes in draw_alignment(found).axes if axes.axison]
    assert titles[0] == "source"
    assert [title.partition("\n")[0] for title in titles[1:]] == found.target
    assert len(draw_alignment(found, block=1).axes) >= 5
    with refuses(1, 2):
        draw_alignment(found, block=2)
    out = tmp_path / "attention.png"
    assert main(["translate", str(run.path), picture, "--alignment", str(out)]) == 0
    assert out.read_bytes()[:4] == b"\x89PNG"
    assert main(["translate", str(run.path), picture, "--alignment", str(out), "--line", "2"]) == 2
    assert "--line" in capsys.readouterr().err


def test_inspect_and_report_show_it(run, tmp_path):
    assert main(["inspect", str(run.path), "--out", str(tmp_path), "--samples", "2"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alignment-1.png", "alignment-2.png"]
    assert "attention of each written token to the source" in (run.path / "report.html").read_text("utf-8")


def test_a_sample_to_align_is_a_row(run, pictures):
    with refuses("table"):
        align(run, "a line of text")
    with refuses("2 rows"):
        align(run, {"image": np.zeros((2, 8, 8, 3), np.uint8)})
    with refuses("string"):
        run.translate(str(pictures[0]))


@pytest.mark.parametrize("name", ["images/caption-transformer", "images/show-attend-tell"])
def test_the_penalty_makes_the_attention_cover_the_picture(pictures, tmp_path, name):
    """The sum of the attention over the words comes closer to 1 for every patch."""
    lacks = []
    for weight in (0.0, 20.0):
        changes = {"objective.coverage": weight, "train.steps": 30, "train.evaluate_every": 30, "model.dropout": 0.0}
        changes |= {"train.learning_rate": 1e-2, "train.min_lr_ratio": 1.0}
        made = recipe(pictures[0] / "captions.csv", name, **changes)
        run = train(made, tmp_path / str(weight), show=False, report=False)
        samples = [run.source([pictures[0] / file], streams=("source",)).load(0) for file in pictures[1][:8]]
        maps = [align(run, sample, text).maps for sample, text in zip(samples, pictures[2])]
        weights = [torch.cat(list(found.values())) for found in maps]
        lacks.append(sum(float(((1 - a.sum(1)) ** 2).sum()) for a in weights))
    assert lacks[1] < 0.9 * lacks[0]


def test_the_penalty_is_the_equation():
    rng = np.random.default_rng(0)
    weights = torch.tensor(rng.dirichlet(np.ones(3), (2, 1, 4)).astype(np.float32))
    record = Watch()
    record.attention = {"decoder.attention": weights, "encoder.blocks.0.attention": weights}
    source, target = (torch.tensor([[1, 1, 1], [1, 1, 0]]).bool(), torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]]).bool())
    found = coverage_penalty(record, StreamView({}, source), StreamView({}, target))
    right = [(1 - weights[0, 0, :2].sum(0)) ** 2, (1 - weights[1, 0, :, :2].sum(0)) ** 2]
    assert float(found) == pytest.approx(sum(float(one.sum()) for one in right), rel=1e-5)


def test_options_without_attention_are_refused(pictures, tmp_path):
    changes = {"model.score": "none"}
    with refuses(key="model.gate"):
        train(recipe(pictures[0] / "captions.csv", "images/show-attend-tell", **changes), tmp_path / "a", show=False)
    changes |= {"model.gate": False}
    with refuses(key="objective.coverage"):
        train(recipe(pictures[0] / "captions.csv", "images/show-attend-tell", **changes), tmp_path / "b", show=False)


# Folders with captions


def beside(folder, names, captions):
    for name, caption in zip(names, captions):
        (folder / name).with_suffix(".txt").write_text(caption + "\n", "utf-8")


@pytest.mark.parametrize("form", ["csv", "jsonl", "txt"])
@pytest.mark.usefixtures("here")
def test_a_folder_with_captions_gives_a_recipe_that_trains(tmp_path, form):
    names, captions = paint(tmp_path / "photos")
    if form == "txt":
        beside(tmp_path / "photos", names, captions)
    else:
        table(tmp_path / "photos", names, captions, form)
    path = new("images", ["photos"])
    made = Recipe.load(path)
    assert (made.objective.kind, made.model.kind) == ("translate", "encoder_decoder")
    assert (made.tokens["target"].column, made.tokens["target"].context) == ("caption", 5)
    run = train(made.change(TINY), tmp_path / "run", show=False, report=False)
    data = run.data()
    read = [str(text) for part in data.parts() for text in data.dataset(part).source.load(0)["caption"]]
    assert sorted(read) == sorted(captions)
    assert len(run.translate([tmp_path / "photos" / names[0]])) == 1


@pytest.mark.parametrize("form", ["csv", "txt"])
def test_two_captions_of_a_picture_are_both_used_in_one_part(tmp_path, form):
    folder = tmp_path / "photos"
    names, captions = paint(folder)
    if form == "txt":
        beside(folder, names, [f"{caption}\n\nthe same in other words" for caption in captions])
    else:
        table(folder, names * 2, [*captions, *["the same in other words"] * len(names)])
    made = recipe(folder if form == "txt" else folder / "captions.csv")
    data = Assembly.open(made)
    tables = {part: data.dataset(part).source.load(0) for part in data.parts()}
    files = {part: [str(file) for file in table["file"]] for part, table in tables.items()}
    assert sum(map(len, files.values())) == 2 * len(names)
    assert all(some.count(file) == 2 for some in files.values() for file in some)
    texts = [str(text) for table in tables.values() for text in table["caption"]]
    assert sorted(texts) == sorted([*captions, *["the same in other words"] * len(names)])


@pytest.mark.parametrize("form", ["csv", "jsonl", "txt"])
def test_pictures_without_a_caption_are_left_out_with_a_note(tmp_path, form):
    folder = tmp_path / "photos"
    names, captions = paint(folder)
    captions[3] = captions[7] = ""
    if form == "txt":
        beside(folder, names, captions)
        (folder / names[7]).with_suffix(".txt").unlink()
    else:
        table(folder, names, captions, form)
    data = Assembly.open(recipe(folder if form == "txt" else folder / f"captions.{form}"))
    read = [str(text) for part in data.parts() for text in data.dataset(part).source.load(0)["caption"]]
    assert sorted(read) == sorted(text for text in captions if text)
    assert any("2 of 24 images" in note and "caption" in note for note in data.splits.notes)


def test_no_captions_at_all_are_an_error(tmp_path):
    folder = tmp_path / "photos"
    names, _ = paint(folder)
    with refuses("caption", file=folder / names[0]):
        Assembly.open(recipe(folder))
    path = table(folder, names, [""] * len(names))
    with refuses("24 were left out"):
        Assembly.open(recipe(path))


def test_a_changed_caption_changes_the_fingerprint(tmp_path):
    folder = tmp_path / "photos"
    names, captions = paint(folder)
    beside(folder, names, captions)
    before = Assembly.open(recipe(folder)).splits.fingerprint
    beside(folder, names[:1], ["another caption"])
    after = Assembly.open(recipe(folder)).splits.fingerprint
    assert before.keys() == after.keys()
    assert before != after


def test_a_long_caption_is_cut_with_a_note(tmp_path):
    folder = tmp_path / "photos"
    names, captions = paint(folder)
    captions[0] = " ".join(["red"] * 30)
    data = Assembly.open(recipe(table(folder, names, captions)))
    shortened = {part: data.dataset(part).shortened for part in data.parts()}
    assert sum(shortened.values()) == 1
    assert max(int(data.dataset(part).all().streams["target"].lengths.max()) for part in data.parts()) == 8


def test_pictures_cut_into_windows_cannot_be_described(pictures, tmp_path):
    made = recipe(pictures[0] / "captions.csv", **{"tokens.source.window": 1})
    run = train(made, tmp_path / "run", show=False, report=False)
    with refuses(key="tokens.source.window"):
        Run(run.path).translate([pictures[0] / pictures[1][0]])


def test_a_list_of_captions_makes_a_sample_of_each(tmp_path):
    folder = tmp_path / "photos"
    names, captions = paint(folder)
    rows = [{"file_name": name, "captions": [text, f"{text} again"]} for name, text in zip(names, captions)]
    rows[3]["captions"], rows[5]["captions"] = [], ["", None, "one"]
    (folder / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = Assembly.open(recipe(folder / "captions.jsonl", **{"tokens.target.column": "captions"}))
    tables = [data.dataset(part).source.load(0) for part in data.parts()]
    read = {
        (str(file).rpartition("/")[2], str(text)) for one in tables for file, text in zip(one["file"], one["captions"])
    }
    wanted = {(row["file_name"], text) for row in rows for text in row["captions"] if text}
    assert read == wanted
    assert any("1 of 46 images" in note for note in data.splits.notes)
    path = new("images", [str(folder)], tmp_path / "mine.yaml")
    assert Recipe.load(path).tokens["target"].column == "captions"
    assert "45 captions of images" in path.read_text()


def test_a_guessed_recipe_counts_captions_and_says_why_a_table_is_not_used(tmp_path):
    folder = tmp_path / "photos"
    names, captions = paint(folder)
    path = table(folder, names, ["", *captions[1:]])
    text = new("images", [str(folder)], tmp_path / "some.yaml").read_text()
    assert "23 captions of images" in text
    assert "3 to 3 words" in text
    table(folder, names, [""] * len(names))
    text = new("images", [str(folder)], tmp_path / "none.yaml").read_text()
    assert "Column `caption` has no entries." in text
    path.write_text("path,caption\n000.png,a,b\n")
    text = new("images", [str(folder)], tmp_path / "broken.yaml").read_text()
    assert "Not used: line 2 of" in " ".join(line.strip("# ") for line in text.splitlines())


def test_unreadable_pictures_stop_or_are_left_out(tmp_path):
    folder = tmp_path / "photos"
    names, captions = paint(folder)
    path = table(folder, names, captions)
    (folder / names[2]).write_bytes(b"not a picture")
    (folder / names[4]).write_bytes((folder / names[4]).read_bytes()[:60])
    (folder / names[6]).unlink()
    with refuses("3 of 24", names[2], names[4], names[6], hint="--data.bad_files skip"):
        Assembly.open(recipe(path))
    data = Assembly.open(recipe(path, **{"data.bad_files": "skip"}))
    assert sum(data.counts()["samples"].values()) == 21
    assert sum(note.startswith("left out") for note in data.splits.notes) == 3


def test_streams_that_the_model_does_not_know(pictures):
    path = pictures[0] / "captions.csv"
    words = {"kind": "text", "column": "caption", "context": 8}
    with refuses("words", "source, target", key="objective.stream"):
        Assembly.open(recipe(path, **{"objective.stream": "words"}))
    with refuses("source, target, words", key="tokens"):
        Assembly.open(recipe(path, **{"tokens.words": words})).network()
    with refuses("model.words"):
        recipe(path, **{"model.words": {"depth": 1}})
    with refuses("title", hint="name.txt for name.png"):
        Assembly.open(recipe(path, **{"tokens.target.column": "title"}))


@pytest.fixture(scope="module")
def compared(pictures, tmp_path_factory):
    changes = {"model.source.depth": 1, "model.target.depth": 1, "model.multimodal_depth": 1, "model.dim": 32}
    changes |= {"train.steps": 150, "train.evaluate_every": 150, "train.learning_rate": 3e-3, "train.batch": 32}
    changes |= {"train.warmup": 20}
    made = recipe(pictures[0] / "captions.csv", "images/coca", **{**changes, "objective.projection": 16})
    return train(made, tmp_path_factory.mktemp("runs") / "coca", show=False, report=False)


def test_classes_described_by_texts_at_the_command_line(compared, pictures, tmp_path, capsys):
    folder, _, captions = pictures
    out, command = tmp_path / "classes.csv", ["predict", str(compared.path), str(folder / "captions.csv"), "--out"]
    texts = sorted(set(captions))
    same = [f"first={texts[0]}", f"first={texts[0]}"]  # averaged
    assert main([*command, str(out), "--classes", *same, *texts[1:]]) == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["caption"] for row in rows] == captions
    scores = [f"score_{name}" for name in ("first", *texts[1:])]
    assert {"class", *scores} < set(rows[0])
    assert all(abs(sum(float(row[name]) for name in scores) - 1) < 1e-5 for row in rows)
    found = [texts[0] if row["class"] == "first" else row["class"] for row in rows]
    assert np.mean(np.array(found) == np.array(captions)) > 0.9  # chance is 1 / 16
    capsys.readouterr()
    for classes, words in ((["only"], "two classes"), (["a=", "b"], "no class"), (["a", "b", "--rows", "x"], "--rows")):
        assert main([*command, str(tmp_path / "none.csv"), "--classes", *classes]) == 2
        assert words in capsys.readouterr().err
    assert main([*command, str(tmp_path / "s"), "--shards", "2", "--classes", "a", "b"]) == 2
    assert main([*command, str(tmp_path / "none.csv")]) == 2
    assert "--classes" in capsys.readouterr().err


def test_captions_become_vectors_without_pictures(compared, pictures, tmp_path):
    captions = pictures[2]
    texts = captions[:3]
    expected = embed(compared, {"caption": np.array(texts)}, "projection", stream="target").vectors
    assert np.array_equal(embed(compared, texts, "projection", stream="target").vectors, expected)
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    options = ["--stream", "target", "--pool", "projection", "--out", str(tmp_path / "v.npy")]
    assert main(["embed", str(compared.path), str(tmp_path / "texts.txt"), *options]) == 0
    assert np.array_equal(np.load(tmp_path / "v.npy"), expected)
    whole = embed(compared, [pictures[0] / "captions.csv"], "projection", stream="target").vectors
    np.testing.assert_allclose(whole[:3], expected, atol=1e-6)
    with refuses(key=None):
        embed(compared, ["a red disc"], "projection", stream="source")


def test_inspection_of_a_model_that_writes_and_compares(compared, tmp_path):
    written = [path.name for path in inspect_run(compared, tmp_path, samples=1)]
    assert {"alignment-1.png", "source-sample-1.png", "target-sample-1.png"} <= set(written)


def test_examples_show_the_first_words_of_a_long_text(compared, pictures, monkeypatch):
    monkeypatch.setattr(alignment, "MAX_EXAMPLE_WORDS", 2)
    sample = compared.source([pictures[0] / pictures[1][4]], streams=("source",)).load(0)
    ((name, draw, caption),) = alignment.draw_some(compared, [sample])
    assert name == "alignment-1"
    assert "first 2 of" in caption
    assert len([axes for axes in draw().axes if axes.axison]) == 3  # the source, and two words


def test_simulated_scenes_are_described_from_files(tmp_path):
    scenes = {"data.number": 24, "data.valid": 8, "data.test": 8, "data.cache": "", "data.things": [1, 1]}
    made = Recipe.load("images/caption-transformer", {**TINY, **scenes})
    run = train(made, tmp_path / "run", show=False, report=False)
    picture = Scenes(things=(1, 1), seed=3).make(2)
    assert len(sf.translate(run, picture["image"])) == 2
    assert set(run.evaluate("unseen").scores) >= {"exact_match"}
