"""Generated text: the cache changes nothing, the cuts do what they say, and nothing is printed too early."""

import codecs

import numpy as np
import pytest
import torch

from sciformer.data.batch import View
from sciformer.errors import UserError
from sciformer.generate import generate
from sciformer.recipe import Recipe
from sciformer.run import Run, train

CONTEXT = 16
TEXT = "the cat sat on the mat and the dog sat on the log; a bird sang in the tree by the river.\n" * 12


def make(folder, text=TEXT, steps=2, **changes):
    (folder / "text.txt").write_text(text, "utf-8")
    tree = {
        "data": {"kind": "text", "files": [str(folder / "text.txt")]},
        "tokens": {"kind": "text", "context": CONTEXT},
        "model": {"kind": "decoder", "dim": 16, "depth": 2, "heads": 2},
        "objective": {"kind": "next_token"},
        "train": {"steps": steps, "batch": 8, "warmup": 1, "rate": 0.02, "device": "cpu", "evaluate_every": steps},
    }
    recipe = Recipe.of(tree, {key.replace("__", "."): value for key, value in changes.items()})
    return train(recipe, folder / "texts", show=False, report=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    torch.set_num_threads(1)
    return make(tmp_path_factory.mktemp("text"), steps=30)


def spelled(run, monkeypatch, words):
    """Let a run write these words, whatever its model thinks, as one token after the other."""
    (tokens,) = run.assembly.tokens.values()
    queue = list(tokens.encode(words))
    monkeypatch.setattr("sciformer.sampling.Sampling.choose", lambda *_: torch.tensor([int(queue.pop(0))]))


def without_cache(run, prompt, length):
    """The likeliest tokens, each from a whole forward pass over what the rule of the window lets the model see."""
    (tokens,) = run.assembly.tokens.values()
    ids = tokens.encode(prompt).tolist()
    start = max(0, len(ids) - CONTEXT)
    for _ in range(length):
        if len(ids) - start > CONTEXT:
            start = len(ids) - CONTEXT // 2  # full: begin anew with the second half
        with torch.no_grad():
            hidden = run.model.decode(View({"ids": torch.tensor([ids[start:]])}, None))
            logits = run.model.readout(hidden[0, -1])[: tokens.known]
        ids.append(int(logits.argmax()))
    return tokens.decode(ids[-length:])


@pytest.mark.parametrize("prompt", ["t", "the cat", "a" * CONTEXT, "the dog sat on the mat"], ids=len)
def test_greedy_is_the_argmax_of_the_whole_pass_within_and_beyond_the_context(run, prompt):
    assert "".join(generate(run, prompt, 3 * CONTEXT, temperature=0)) == without_cache(run, prompt, 3 * CONTEXT)


@pytest.mark.parametrize(
    "changes",
    [
        {"model__position": "rotary"},
        {"model__position": "relative"},
        {"model__position": "sinusoidal", "model__groups": 1},
        {"model__reach": 5},
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
    text = "".join(generate(make(tmp_path, tokens__context=1), "t", 5, seed=0))
    assert len(text) == 5


def test_a_seed_repeats_and_another_differs(run):
    first, again, other = ("".join(generate(run, "the", 60, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert "".join(generate(run, "the", 60)) != "".join(generate(run, "the", 60))
    assert "".join(generate(run, "the", 60, top_k=1)) == "".join(generate(run, "the", 60, temperature=0))
    assert "".join(generate(run, "the", 60, top_p=1e-9)) == "".join(generate(run, "the", 60, temperature=0))


def test_a_run_opened_again_writes_the_same_and_the_global_chance_is_left_alone(run):
    state = torch.get_rng_state()
    assert "".join(generate(Run(run.path), "the", 30, seed=3)) == "".join(generate(run, "the", 30, seed=3))
    list(generate(run, "the", 5))
    assert torch.equal(torch.get_rng_state(), state)


# What is printed, and when


@pytest.mark.parametrize(
    ("words", "stop", "pieces"),
    [
        ("the cat sat", "cat", list("the ")),
        ("aab aac", "aac", ["aab", " "]),  # what might have begun it comes when it did not
        ("the cat", "dog", list("the cat")),
        ("a do", "dog", ["a", " ", "do"]),  # a beginning that stays one is text
        ("cat", "cat", []),
        ("ababac!", "abac", ["ab"]),
    ],
)
def test_nothing_of_the_stop_is_printed_and_all_before_it_is(run, monkeypatch, words, stop, pieces):
    words = words.replace("!", "a")
    spelled(run, monkeypatch, words)
    assert list(generate(run, "the", len(words), stop=stop)) == pieces


def test_bytes_are_printed_as_whole_characters(tmp_path, monkeypatch):
    words = "né 世界 🙂!"
    other = make(tmp_path, text=TEXT + words * 20, tokens__unit="bytes")
    size = len(words.encode())
    spelled(other, monkeypatch, words)
    assert list(generate(other, "né", size)) == list(words)
    spelled(other, monkeypatch, words)
    assert list(generate(other, "né", size - 2)) == list("né 世界 ")  # the last one was never completed
    spelled(other, monkeypatch, words)
    assert "".join(generate(other, "né", size, stop="界 ")) == "né 世"


def test_wrong_bytes_are_marked_and_never_swallow_what_follows(tmp_path, monkeypatch):
    other = make(tmp_path, tokens__unit="bytes")
    wrong = b"a\xff\xff\xe2\x82\xacb\xe2\x82c\x80"
    queue = list(wrong)
    monkeypatch.setattr("sciformer.sampling.Sampling.choose", lambda *_: torch.tensor([queue.pop(0)]))
    assert "".join(generate(other, "x", len(wrong))) == codecs.decode(wrong, "utf-8", "replace") == "a��€b�c�"


def test_without_a_prompt_a_line_is_begun_or_what_the_model_knows(run, tmp_path):
    assert "".join(generate(run, length=20, seed=0)) == "".join(generate(run, "\n", 20, seed=0))
    other = make(tmp_path, text="abcabdcab" * 90)
    assert set("".join(generate(other, length=20, seed=0))) <= set("abcd")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt": ""}, "one character or more; found an empty one"),
        ({"prompt": "the Ω and the Ж"}, "has seen; found 'ΩЖ'"),
        ({"prompt": "\udc80"}, "has seen"),
        ({"length": 0}, "one token or more; found 0"),
        ({"length": -3}, "one token or more; found -3"),
        ({"temperature": -1.0}, "temperature of 0 or more; found -1"),
        ({"temperature": float("nan")}, "found nan"),
        ({"temperature": float("inf")}, "found inf"),
        ({"top_k": 0}, "top_k of 1 or more"),
        ({"top_p": 0.0}, "top_p above 0"),
        ({"top_p": 1.5}, "at most 1; found 1.5"),
    ],
)
def test_mistakes_are_answered_before_anything_is_written(run, arguments, message):
    with pytest.raises(UserError, match=message):
        next(generate(run, **{"prompt": "the", **arguments}))


def test_runs_that_cannot_write_are_refused(tmp_path):
    from tests.train.tiny import go, image_recipe

    with pytest.raises(UserError, match=r"tokens are text; found `tokens.kind: patches`"):
        next(generate(go(image_recipe(tmp_path), tmp_path / "run", stop_after=1)))
    other = make(tmp_path, steps=1, model__kind="encoder", objective__kind="masked")
    with pytest.raises(UserError, match=r"run of a decoder.*`model.kind: encoder`"):
        next(generate(other, "the"))
