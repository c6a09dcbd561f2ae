"""Translation where it could go wrong: odd places, odd bytes, odd settings, texts that are too long."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.cli import text_files
from sciformer.cli.main import main
from sciformer.data.batch import StreamView
from sciformer.domains.text.tokens import Text
from sciformer.generation.beam_search import beam_search, normalise_score
from sciformer.generation.translate import translate_with
from sciformer.inspect.alignment import align
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from tests.errors import refuses

CPU = torch.device("cpu")
CHANGES: dict[str, Any] = {"model.dim": 16, "model.depth": 1, "train.device": "cpu"}
CHANGES |= {"train.steps": 2, "train.tokens": None, "train.batch": 8, "train.average_last": 0, "data.split.test": 0.2}
SIDES = ("source", "target")


def recipe(folder: Path, name: str = "text/transformer-tiny", unit: str = "words", **changes: Any) -> Recipe:
    for side, text in (("en", "one two\nred dog\n"), ("de", "eins zwei\nrot hund\n")):
        (folder / f"train.{side}").write_text(text * 20, "utf-8")
    files = {"data.files": [str(folder / "train.{}")], "data.valid": [str(folder / "train.{}")]}
    keys = ["tokens"] if name == "text/gpt-translate" else [f"tokens.{side}" for side in SIDES]
    words = {f"{key}.{part}": value for key in keys for part, value in (("unit", unit), ("vocabulary", None))}
    return Recipe.load(name, {**CHANGES, **files, **words, **changes})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("edges")
    short = {f"tokens.{side}.context": 8 for side in SIDES}
    made = {
        "both": recipe(folder, **short, **{"model.position": "learned"}),
        "prompt": recipe(folder, "text/gpt-translate", **{"tokens.context": 16}),
    }
    return {name: train(one, folder / name, show=False, report=False) for name, one in made.items()}


def piped(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))


def test_lines_come_through_a_pipe(
    runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piped(monkeypatch, b"one\r\n\ntwo\n")
    assert main(["translate", str(runs["both"].path), "-"]) == 0
    printed = capsys.readouterr().out.split("\n")
    assert len(printed) == 4
    assert printed[1] == printed[3] == ""


def test_broken_bytes_in_a_pipe_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, b"one\ntwo \xff\n")
    with refuses("line 2", hint="iconv"):
        text_files.read_text_lines(Path("-"))


def test_a_place_is_refused_before_the_work(
    runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("translated for nothing")

    monkeypatch.setattr("sciformer.generation.translate.translate", never)
    (tmp_path / "a.txt").write_text("one\n", "utf-8")
    (tmp_path / "a.png").mkdir()
    for out, picture in ((tmp_path, None), (None, tmp_path / "a.png"), (tmp_path / "a.txt" / "b", None)):
        with refuses(out.parent if out and out.parent.is_file() else out or picture):
            text_files.translate_file(runs["both"], tmp_path / "a.txt", out, None, None, picture, 1)


def test_a_picture_makes_its_folder(runs: dict[str, Run], tmp_path: Path) -> None:
    file, picture = tmp_path / "a.txt", tmp_path / "deep" / "a.png"
    file.write_text("one two\n", "utf-8")
    assert main(["translate", str(runs["both"].path), str(file), "--alignment", str(picture)]) == 0
    assert picture.exists()


def test_a_table_of_answers_is_not_what_a_translator_gives(
    runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = runs["both"].recipe.data.files[0]
    assert main(["predict", str(runs["both"].path), files, "--out", str(tmp_path / "a.csv")]) == 2
    assert "sciformer translate" in " ".join(capsys.readouterr().err.split())


def test_a_large_penalty_does_not_overflow(runs: dict[str, Run]) -> None:
    assert normalise_score(-2.0, 100, 1e4) == 0
    assert normalise_score(-2.0, 7, 0.6) == pytest.approx(-2 / 2**0.6)
    run = runs["both"]
    assert len(translate_with(run.model, run.assembly, CPU, ["one"], beam=2, penalty=1e4)) == 1
    with refuses("inf", key="--penalty"):
        translate_with(run.model, run.assembly, CPU, ["one"], penalty=float("inf"))


def test_a_broken_model_is_said_to_be_broken() -> None:
    broken = torch.full((1, 4), torch.nan)
    with refuses("NaN"):
        beam_search(lambda last: broken, lambda rows: None, broken, 0, torch.tensor([3]))


def test_an_answer_is_one_line_whatever_is_written(runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Text, "decode", lambda self, ids: "eins\nzwei\r\ndrei")
    run = runs["both"]
    assert translate_with(run.model, run.assembly, CPU, ["one"]) == ["eins zwei drei"]


def test_an_alignment_is_of_what_was_read(runs: dict[str, Run]) -> None:
    found = align(runs["both"], "one " * 30, "eins " * 30)
    assert len(found.source) == 8
    assert len(found.target) == 7
    with refuses(runs["prompt"].recipe.tokens.context):
        align(runs["prompt"], "one " * 30, "eins")


@pytest.mark.parametrize("role", ["begin", "end"])
def test_what_is_written_has_a_frame_from_the_start(tmp_path: Path, role: str) -> None:
    with refuses(f"`{role}: false`", key=f"tokens.{role}"):
        Assembly.open(recipe(tmp_path, **{f"tokens.target.{role}": False})).network()


def test_a_prompted_decoder_needs_an_end(tmp_path: Path) -> None:
    with refuses("`end: false`", key="tokens.end"):
        Assembly.open(recipe(tmp_path, "text/gpt-translate", **{"tokens.end": False})).network()


@pytest.mark.parametrize(
    ("changes", "key", "mentions"),
    [
        ({"model.depth": 0}, "model.depth", [1, 0]),
        ({"model.score": "location", "model.longest": 9}, "model.longest", [512, 9]),
    ],
)
def test_sizes_of_a_recurrent_decoder_are_looked_at_first(
    tmp_path: Path, changes: dict[str, Any], key: str, mentions: list[int]
) -> None:
    with refuses(*mentions, key=key):
        Assembly.open(recipe(tmp_path, "text/seq2seq-gru", **changes)).network()


def test_a_target_stands_where_it_says(tmp_path: Path) -> None:
    """Coordinates of target tokens count with a memory too, not only in later steps of a cache."""
    model: Any = Assembly.open(recipe(tmp_path)).network().eval()
    ids = torch.as_tensor(np.array([[7, 8, 9]]))
    memory = model.encode(StreamView({"ids": ids}, None))
    far = StreamView({"ids": ids, "at": torch.tensor([[5.0, 6.0, 7.0]])}, None)
    assert not torch.allclose(model.decode(far, memory), model.decode(StreamView({"ids": ids}, None), memory))
