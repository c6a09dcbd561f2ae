"""Generated text: the cache changes nothing, the cuts do what they say, and nothing is printed too early."""

import codecs
import json

import numpy as np
import pytest
import torch

from sciformer.generation.generate import generate, generate_many
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from tests.errors import refuses
from tests.generation.whole_passes import WINDOW as CONTEXT
from tests.generation.whole_passes import whole_passes

TEXT = "the cat sat on the mat and the dog sat on the log; a bird sang in the tree by the river.\n" * 12


def make(folder, text=TEXT, steps=2, **changes):
    (folder / "text.txt").write_text(text, "utf-8")
    tree = {
        "data": {"kind": "text", "files": [str(folder / "text.txt")]},
        "tokens": {"kind": "text", "context": CONTEXT},
        "model": {"kind": "decoder", "dim": 16, "depth": 2, "heads": 2},
        "objective": {"kind": "next_token"},
        "train": {"steps": steps, "batch": 8, "warmup": 1, "learning_rate": 0.02, "evaluate_every": steps},
    }
    changes["train__device"] = "cpu"
    recipe = Recipe.from_dict(tree, {key.replace("__", "."): value for key, value in changes.items()})
    return train(recipe, folder / "texts", show=False, report=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make(tmp_path_factory.mktemp("text"), steps=30)


def spelled(monkeypatch, raw):
    """Let a run write these bytes, whatever its model thinks, as one token after the other."""
    queue = list(raw)
    monkeypatch.setattr("sciformer.generation.sampling.Sampling.choose", lambda *_: torch.tensor([queue.pop(0)]))


def without_cache(run, prompt, length):
    """The likeliest tokens, each from a whole forward pass."""
    (tokens,) = run.assembly.tokens.values()
    forbidden = np.flatnonzero(~tokens.writable)
    return tokens.decode(whole_passes(run.model, tokens.encode(prompt).tolist(), length, forbidden=forbidden))


@pytest.mark.parametrize("prompt", ["t", "the cat", "a" * CONTEXT, "the dog sat on the mat"], ids=len)
def test_greedy_is_the_argmax_of_the_whole_pass_within_and_beyond_the_context(run, prompt):
    assert "".join(generate(run, prompt, 3 * CONTEXT, temperature=0)) == without_cache(run, prompt, 3 * CONTEXT)


@pytest.mark.parametrize(
    "changes",
    [
        {"model__position": "rotary", "model__kv_heads": 1},
        {"model__window": 5},
        {"model__trunk": "gru"},
        {"model__trunk": "lstm"},
        {"tokens__vocabulary": 64, "tokens__tie": False},
    ],
    ids=lambda changes: ",".join(map(str, changes.values())),
)
def test_the_same_with_other_decoders(tmp_path, changes):
    other = make(tmp_path, **changes)
    assert "".join(generate(other, "the ", 40, temperature=0)) == without_cache(other, "the ", 40)


def test_a_context_of_one_token(tmp_path):
    assert len("".join(generate(make(tmp_path, tokens__context=1), "t", 5, seed=0))) == 5


def test_a_seed_repeats_and_another_differs(run):
    wishes = ({"seed": 1}, {"seed": 1}, {"seed": 2}, {}, {}, {"temperature": 0}, {"top_k": 1}, {"top_p": 1e-9})
    first, again, other, any_, any_other, *greedy = ("".join(generate(run, "the", 60, **wish)) for wish in wishes)
    assert first == again != other
    assert any_ != any_other
    assert len(set(greedy)) == 1


def test_a_run_opened_again_writes_the_same_and_the_global_chance_is_left_alone(run):
    state = torch.get_rng_state()
    assert "".join(generate(Run(run.path), "the", 30, seed=3)) == "".join(generate(run, "the", 30, seed=3))
    list(generate(run, "the", 5))
    assert torch.equal(torch.get_rng_state(), state)


# What is printed, and when


def test_bytes_are_printed_as_whole_characters(tmp_path, monkeypatch):
    words = "né 世界 🙂!"
    other, size = make(tmp_path, text=TEXT + words * 20, tokens__unit="bytes"), len(words.encode())
    spelled(monkeypatch, words.encode())
    assert list(generate(other, "né", size)) == list(words)
    spelled(monkeypatch, words.encode())
    assert list(generate(other, "né", size - 2)) == list("né 世界 ")  # the last one was never completed
    spelled(monkeypatch, words.encode())
    assert "".join(generate(other, "né", size, stop="界 ")) == "né 世"


def test_wrong_bytes_are_marked_and_never_swallow_what_follows(tmp_path, monkeypatch):
    other = make(tmp_path, tokens__unit="bytes")
    wrong = b"a\xff\xff\xe2\x82\xacb\xe2\x82c\x80"
    spelled(monkeypatch, wrong)
    assert "".join(generate(other, "x", len(wrong))) == codecs.decode(wrong, "utf-8", "replace") == "a��€b�c�"


def test_without_a_prompt_a_line_is_begun_or_what_the_model_knows(run, tmp_path):
    assert "".join(generate(run, length=20, seed=0)) == "".join(generate(run, "\n", 20, seed=0))
    other = make(tmp_path, text="abcabdcab" * 90)
    assert set("".join(generate(other, length=20, seed=0))) <= set("abcd")


@pytest.mark.parametrize(
    ("arguments", "key", "mention"),
    [
        ({"prompt": ""}, "--prompt", "--prompt"),
        ({"prompt": "the Ω and the Ж"}, "--prompt", "'ΩЖ'"),
        ({"prompt": "\udc80"}, "--prompt", repr("\udc80")),
        ({"length": 0}, "--length", "0"),
        ({"temperature": -1.0}, "--temperature", "-1.0"),
        ({"beam": 0}, "--beam", "0"),
        ({"beam": 2, "top_k": 3}, "--beam", "top_k"),
        ({"precision": "half"}, "--precision", "'half'"),
        ({"precision": "bfloat16"}, "train.precision", "bfloat16"),
    ],
)
def test_mistakes_are_answered_before_anything_is_written(run, arguments, key, mention):
    with refuses(mention, key=key):
        next(generate(run, **{"prompt": "the", **arguments}))


def test_runs_that_cannot_write_are_refused(tmp_path):
    from tests.training.tiny import go, image_recipe

    with refuses("patches", key="tokens.kind"):
        next(generate(go(image_recipe(tmp_path), tmp_path / "run", stop_after=1)))
    other = make(tmp_path, steps=1, model__kind="encoder", objective__kind="masked")
    with refuses("encoder", key="model.kind"):
        next(generate(other, "the"))


# Other units, and what begins and ends a text


LINES = ["the cat sat on the mat", "a dog saw the cat", "the bird sang in the tree", "a cat and a dog sat there"]


def make_lines(folder, steps=30, **changes):
    """A run on lines that are texts of their own."""
    keys = {"data__documents": "line", "tokens__begin": True, "tokens__end": True, **changes}
    return make(folder, "\n".join(LINES * 8) + "\n", steps, **keys)


@pytest.mark.parametrize("unit", ["words", "bpe", "wordpiece", "unigram"])
def test_every_unit_begins_goes_on_and_ends(tmp_path, unit):
    if unit != "words":
        pytest.importorskip("tokenizers")
    sizes = {"words": 40, "bpe": 300, "wordpiece": 90, "unigram": 60}
    run = make_lines(tmp_path, 150, tokens__unit=unit, tokens__vocabulary=sizes[unit])
    for prompt in (None, ""):
        text = "".join(generate(run, prompt, 60, temperature=0))
        assert text in LINES  # learned by heart, from the begin token to the end token
    text = "".join(generate(run, "a dog", 60, temperature=0))
    assert text == text.rstrip()
    assert "a dog" + text in [*LINES, "a dog sat there"]
    assert all(special not in text for special in ("<s>", "</s>", "<unk>", "<pad>"))


def test_unknown_words_are_named_and_a_prompt_without_any_refused(tmp_path, tmp_path_factory):
    said = []
    run = make_lines(tmp_path_factory.mktemp("lines"), 2, tokens__unit="words")
    assert list(generate(run, "the zebra and the gnu", 3, seed=0, log=said.append))
    assert "zebra, gnu" in said[0]
    with refuses(key="--prompt", hint="--prompt"):
        next(generate(make(tmp_path, text="a b a b " * 99, tokens__unit="words"), " "))


def test_one_prompt_after_the_other_or_all_at_once(run, tmp_path):
    done: list[tuple[int, int]] = []
    prompts = ["the", "a bird sang in the tree by the river.", "the dog sat on", "t", None, "the dog", "a bird"]
    wishes = [{"temperature": 0}, {"temperature": 0, "repetition": 1.3, "stop": ["at", " on"]}, {"beam": 2}]
    for length, wish in [(8, wishes[0]), (30, wishes[0]), (8, wishes[1]), (5, wishes[2])]:
        expected = ["".join(generate(run, prompt, length, **wish)) for prompt in prompts]
        together = {**wish, "batch": 3, "on_progress": lambda *told: done.append(told)}
        assert generate_many(run, prompts, length, **together) == expected
        assert done[-1] == (7, 7)
    assert generate_many(run, [], 5) == []
    gru = make(tmp_path, model__trunk="gru")
    expected = ["".join(generate(gru, prompt, 8, temperature=0)) for prompt in prompts[2:4]]
    assert generate_many(gru, prompts[2:4], 8, temperature=0) == expected


def test_prompts_at_once_have_numbers_of_their_own(run):
    first = generate_many(run, ["the"] * 4, 12, seed=5)
    assert len(set(first)) > 1
    assert first == generate_many(run, ["the"] * 4, 12, seed=5, batch=3)
    assert first[0] == "".join(generate(run, "the", 12, seed=5))


def test_a_beam_ends_with_the_context_and_before_a_stop(run):
    said = []
    (text,) = generate(run, "the ", 99, beam=2, log=said.append)
    assert len(text) == CONTEXT - 4
    assert f" {CONTEXT - 4} " in said[0]
    assert "".join(generate(run, "the ", 9, beam=3, stop=["a", "o"])).count("a") == 0


def test_prompts_from_a_file_and_answers_into_one(run, tmp_path, capsys):
    from sciformer.cli.main import main

    (tmp_path / "prompts.txt").write_text("the cat\n\na bird sang in the tree by the river\n", "utf-8")
    line = ["generate", str(run.path), "--file", str(tmp_path / "prompts.txt"), "--length", "9", "--temperature", "0"]
    expected = generate_many(run, ["the cat", None, "a bird sang in the tree by the river"], 9, temperature=0)
    assert main([*line, "--out", str(tmp_path / "new" / "answers.txt")]) == 0
    assert capsys.readouterr().err == f"wrote 3 texts to {tmp_path / 'new' / 'answers.txt'}\n"
    escaped = [text.replace("\n", "\\n") for text in expected]
    assert (tmp_path / "new" / "answers.txt").read_text("utf-8").splitlines() == escaped
    assert main([*line, "--out", str(tmp_path / "answers.jsonl"), "--stop", "a", "--stop", "t"]) == 0
    rows = [json.loads(row) for row in (tmp_path / "answers.jsonl").read_text("utf-8").splitlines()]
    assert [row["prompt"] for row in rows] == ["the cat", "", "a bird sang in the tree by the river"]
    assert not {"a", "t"} & set("".join(row["completion"] for row in rows))
    assert main([*line, "--prompt", "x"]) == main([*line[:2], "--out", "x"]) == 2
    said = capsys.readouterr().err
    assert all(option in said for option in ("--prompt", "--file"))
