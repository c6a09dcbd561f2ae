"""Translation from end to end: a tiny language that is turned round word by word, and where it could go wrong."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.cli import text_files
from sciformer.cli.main import main
from sciformer.data.batch import StreamView
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.domains.text.tokens import Text
from sciformer.generation.beam_search import beam_search, normalise_score
from sciformer.generation.translate import (
    EncoderDecoderWriter,
    PromptWriter,
    line_table,
    score_translations,
    translate,
)
from sciformer.inspection.alignment import align, draw_alignment
from sciformer.objectives.base import Step
from sciformer.recipe import Recipe
from sciformer.run import train
from tests.errors import refuses

WORDS = {"one": "eins", "two": "zwei", "red": "rot", "dog": "hund", "cat": "katze", "and": "und"}
SMALL = {"model.dim": 32, "train.device": "cpu", "train.warmup": 10, "train.evaluate_every": 1000}
SMALL |= {"train.save_every": 1000, "train.tokens": None, "train.batch": 32, "train.average_last": 0}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("corpus"), np.random.default_rng(0)
    for part, count in (("train", 300), ("val", 20), ("test", 20)):
        lines = [[str(w) for w in random.choice(list(WORDS), random.integers(1, 6))] for _ in range(count)]
        (folder / f"{part}.en").write_text("".join(" ".join(line) + "\n" for line in lines), "utf-8")
        turned = [" ".join(WORDS[word] for word in reversed(line)) for line in lines]
        (folder / f"{part}.de").write_text("".join(f"{line}\n" for line in turned), "utf-8")
    return folder


def view(ids):
    """One text as input of a model."""
    return StreamView({"ids": torch.tensor([ids])}, None)


def files(folder):
    names = {"files": "train", "valid": "val", "test": "test"}
    return {f"data.{key}": [str(folder / f"{name}.{{}}")] for key, name in names.items()}


def small(corpus, recipe, **changes):
    words = {"tokens.unit": "words", "tokens.vocabulary": None, "tokens.context": 32}
    if recipe != "text/gpt-translate":
        units = {"unit": "words", "vocabulary": None}
        words = {f"tokens.{side}.{key}": one for side in ("source", "target") for key, one in units.items()}
    return Recipe.load(recipe, {**SMALL, **files(corpus), **words, **changes})


@pytest.fixture(scope="module")
def runs(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    transformer = {"model.depth": 2, "model.heads": 2, "model.dropout": 0.0, "train.learning_rate": 5e-3}
    transformer |= {"train.steps": 250, "train.schedule": "cosine", "objective.smoothing": 0.0}
    prompted = {key: value for key, value in transformer.items() if key != "objective.smoothing"}
    recurrent = {"model.dropout": 0.0, "train.learning_rate": 1e-2, "train.steps": 220, "objective.smoothing": 0.0}
    wanted = {
        "transformer": small(corpus, "text/transformer-tiny", **transformer),
        "additive": small(corpus, "text/seq2seq-gru", **recurrent),
        "none": small(corpus, "text/seq2seq-lstm", **{"model.score": "none", **recurrent}),
        "prompt": small(corpus, "text/gpt-translate", **prompted),
    }
    return {
        name: train(recipe, folder / name, show=False, report=name == "transformer") for name, recipe in wanted.items()
    }


@pytest.mark.parametrize("name", ["transformer", "additive", "none", "prompt"])
def test_it_learns_to_translate(runs, name):
    scores = runs[name].evaluate("test").scores
    assert scores["token_accuracy"] > (0.8 if name != "none" else 0.3)
    assert scores["bleu"] > 50 or name == "none"
    assert {"loss", "perplexity", "token_accuracy", "bleu", "chrf", "exact_match"} <= set(scores)


@pytest.mark.parametrize("name", ["transformer", "additive", "prompt"])
def test_lines_keep_their_order_whatever_the_batch(runs, name):
    lines = ["one", "", "two red dog", "cat and dog red", "   ", "one two", "red"]
    heard = []
    together = translate(runs[name], lines, on_progress=lambda *told: heard.append(told))
    assert together == [translate(runs[name], [line])[0] for line in lines]
    assert [together[row] for row in (0, 1, 4)] == ["eins", "", ""]
    assert heard[-1] == (7, 7)


@pytest.mark.parametrize("name", ["transformer", "additive", "none", "prompt"])
def test_a_greedy_translation_is_the_one_made_without_a_cache(runs, name):
    run, line = runs[name], "two red dog and"
    model = run.model
    tokens = run.assembly.tokens.get("target") or next(iter(run.assembly.tokens.values()))
    prompted = "target" not in run.assembly.tokens
    writer = (PromptWriter if prompted else EncoderDecoderWriter)(model, run.assembly, run.device)
    source = writer.encode(line_table(run.assembly, [line])).columns["ids"].tolist()
    closed = torch.as_tensor(~np.asarray(tokens.writable))
    closed[tokens.specials["end"]] = False
    written = []
    with torch.no_grad():
        while len(written) < 12:
            if prompted:
                hidden = model.decode(view([*source, *written]))
            else:
                hidden = model.translate(view(source), view([tokens.specials["begin"], *written]))
            choice = int(model.readout(hidden[0, -1]).masked_fill(closed, -torch.inf).argmax())
            if choice == tokens.specials["end"]:
                break
            written.append(choice)
    assert translate(run, [line], beam=1)[0] == tokens.decode(written)


@pytest.mark.parametrize(("name", "heads"), [("transformer", 2), ("additive", 1), ("prompt", 2)])
def test_alignment_has_a_row_for_each_word_written(runs, name, heads):
    found = align(runs[name], "two red dog")
    assert found.text == " ".join(found.target[:3]) == "hund rot zwei"
    assert found.source[:3] == ["two", "red", "dog"]
    for weights in found.maps.values():
        assert weights.shape == (heads, len(found.target), len(found.source))
    assert torch.allclose(found.mean.sum(-1), torch.ones(len(found.target)).to(found.mean), atol=1e-5)
    assert draw_alignment(found, mean=True).axes
    panels = [axes for axes in draw_alignment(found, block=len(found.maps)).axes if axes.images]
    assert len(panels) == heads
    assert [label.get_text() for label in panels[0].get_yticklabels()] == found.target
    with refuses(len(found.maps), len(found.maps) + 1):
        draw_alignment(found, block=len(found.maps) + 1)


def test_attention_finds_the_word_that_is_translated(runs):
    found = align(runs["additive"], "one red dog")
    assert found.mean[:2, :3].argmax(1).tolist() == [2, 1]  # the last words come first
    with refuses(hint="--model.score"):
        align(runs["none"], "two red dog")


def test_the_verb_translates_a_file(runs, tmp_path, capsys):
    file, run = tmp_path / "lines.txt", str(runs["transformer"].path)
    file.write_text("one\n\ntwo red\n", "utf-8")
    assert main(["translate", run, str(file)]) == 0
    assert capsys.readouterr().out == "eins\n\nrot zwei\n"
    out, picture = tmp_path / "deep" / "answers.txt", tmp_path / "deeper" / "alignment.png"
    words = ["--out", str(out), "--alignment", str(picture), "--line", "3", "--beam", "2"]
    assert main(["translate", run, str(file), *words]) == 0
    assert out.read_text("utf-8") == "eins\n\nrot zwei\n"
    assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("words", "mention"),
    [
        (["--beam", "0"], "beam"),
        (["--penalty", "-1"], "penalty"),
        (["--alignment", "a.txt"], ".svg"),
        (["--alignment", "a.png", "--line", "9"], "--line"),
    ],
)
def test_mistakes_of_the_verb(runs, tmp_path, capsys, words, mention):
    file = tmp_path / "lines.txt"
    file.write_text("one\ntwo\n", "utf-8")
    assert main(["translate", str(runs["transformer"].path), str(file), *words]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert all(part in said for part in (mention, words[-1]))


def test_a_report_shows_alignments(runs):
    assert "its translation" in (runs["transformer"].path / "report.html").read_text("utf-8")


def test_scores_are_of_the_texts_in_the_data(runs, corpus):
    run = runs["transformer"]
    data = run.data()
    found = score_translations(run.model, data, data.dataset("test"), run.device)
    for texts, suffix in ((found.source, "en"), (found.reference, "de")):
        assert texts == (corpus / f"test.{suffix}").read_text("utf-8").splitlines()


def test_two_passes_that_agree_cost_no_more(corpus):
    """Without dropout both passes are the same: the loss with objective.agreement is the loss without."""
    losses = []
    for weight, dropout in ((0.0, 0.0), (5.0, 0.0), (5.0, 0.5)):
        changes = {"model.depth": 1, "model.heads": 2, "model.dropout": dropout, "objective.agreement": weight}
        made = Assembly.open(small(corpus, "text/transformer-tiny", **changes))
        raw, rng = made.dataset("train").batch(np.arange(8)), SampleRandom(0, 0, [])
        batch = prepare(raw, made.tokens, made.objective, rng, True)
        torch.manual_seed(0)
        losses.append(Step(made.network(0), made.objective).train()(batch.inputs())[0].item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] > losses[1]


# Odd places, odd bytes, odd settings, texts that are too long


def tiny(corpus, name="text/transformer-tiny", **changes):
    return small(corpus, name, **{"model.dim": 16, "model.depth": 1, "train.steps": 2, **changes})


@pytest.fixture(scope="module")
def edges(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("edges")
    short = {"tokens.source.context": 8, "tokens.target.context": 8, "model.position": "learned"}
    made = {"both": tiny(corpus, **short), "prompt": tiny(corpus, "text/gpt-translate", **{"tokens.context": 16})}
    return {name: train(one, folder / name, show=False, report=False) for name, one in made.items()}


def piped(monkeypatch, raw):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))


def test_lines_come_through_a_pipe(edges, monkeypatch, capsys):
    piped(monkeypatch, b"one\r\n\ntwo\n")
    assert main(["translate", str(edges["both"].path), "-"]) == 0
    printed = capsys.readouterr().out.split("\n")
    assert len(printed) == 4
    assert printed[1] == printed[3] == ""


def test_broken_bytes_in_a_pipe_are_named(monkeypatch):
    piped(monkeypatch, b"one\ntwo \xff\n")
    with refuses("line 2", hint="iconv"):
        text_files.read_text_lines(Path("-"))


def test_a_place_is_refused_before_the_work(edges, tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("translated for nothing")

    monkeypatch.setattr("sciformer.generation.translate.translate", never)
    (tmp_path / "a.txt").write_text("one\n", "utf-8")
    (tmp_path / "a.png").mkdir()
    for out, picture in ((tmp_path, None), (None, tmp_path / "a.png"), (tmp_path / "a.txt" / "b", None)):
        with refuses(out.parent if out and out.parent.is_file() else out or picture):
            text_files.translate_file(edges["both"], tmp_path / "a.txt", out, None, None, picture, 1)


def test_a_table_of_answers_is_not_what_a_translator_gives(edges, tmp_path, capsys):
    files = edges["both"].recipe.data.files[0]
    assert main(["predict", str(edges["both"].path), files, "--out", str(tmp_path / "a.csv")]) == 2
    assert "sciformer translate" in " ".join(capsys.readouterr().err.split())


def test_a_large_penalty_does_not_overflow(edges):
    assert normalise_score(-2.0, 100, 1e4) == 0
    assert normalise_score(-2.0, 7, 0.6) == pytest.approx(-2 / 2**0.6)
    assert len(translate(edges["both"], ["one"], beam=2, penalty=1e4)) == 1
    with refuses("inf", key="--penalty"):
        translate(edges["both"], ["one"], penalty=float("inf"))


def test_a_broken_model_is_said_to_be_broken():
    broken = torch.full((1, 4), torch.nan)
    with refuses("NaN"):
        beam_search(lambda last: broken, lambda rows: None, broken, 0, torch.tensor([3]))


def test_an_answer_is_one_line_whatever_is_written(edges, monkeypatch):
    monkeypatch.setattr(Text, "decode", lambda self, ids: "eins\nzwei\r\ndrei")
    assert translate(edges["both"], ["one"]) == ["eins zwei drei"]


def test_an_alignment_is_of_what_was_read(edges):
    found = align(edges["both"], "one " * 30, "eins " * 30)
    assert (len(found.source), len(found.target)) == (8, 7)
    with refuses(edges["prompt"].recipe.tokens.context):
        align(edges["prompt"], "one " * 30, "eins")


@pytest.mark.parametrize(
    ("name", "changes", "key", "mentions"),
    [
        ("text/transformer-tiny", {"tokens.target.begin": False}, "tokens.begin", ["tokens.begin is false"]),
        ("text/transformer-tiny", {"tokens.target.end": False}, "tokens.end", ["tokens.end is false"]),
        ("text/gpt-translate", {"tokens.end": False}, "tokens.end", ["tokens.end is false"]),
        ("text/seq2seq-gru", {"model.depth": 0}, "model.depth", [1, 0]),
        ("text/seq2seq-gru", {"model.score": "location", "model.longest": 9}, "model.longest", [512, 9]),
    ],
)
def test_models_that_could_not_write_are_refused_before_training(corpus, name, changes, key, mentions):
    with refuses(*mentions, key=key):
        Assembly.open(tiny(corpus, name, **changes)).network()


def test_a_target_stands_where_it_says(corpus):
    """Coordinates of target tokens count with a memory too, not only in later steps of a cache."""
    model = Assembly.open(tiny(corpus)).network().eval()
    ids = [7, 8, 9]
    memory = model.encode(view(ids))
    far = StreamView({"ids": torch.tensor([ids]), "at": torch.tensor([[5.0, 6.0, 7.0]])}, None)
    assert not torch.allclose(model.decode(far, memory), model.decode(view(ids), memory))
