"""Inspection of models with memory: gradient at the first symbol, and the pronoun that a decoder writes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from sciformer.assembly import Assembly
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.data.source import pieces
from sciformer.domains.text.simulate.pronouns import PRONOUNS
from sciformer.generation.translate import translate
from sciformer.inspection.alignment import align
from sciformer.models.encoder import Encoded
from sciformer.objectives.base import ANSWER
from sciformer.run import Run

# The three sentences of the picture, which differ in the noun alone.
NOUNS = {"dog": ("deinen hund", "er"), "cat": ("deine katze", "sie"), "house": ("dein haus", "es")}
ENGLISH = "i like your {} , says the man with the letter behind the church , it is great ."
GERMAN = "ich mag {} , sagt der mann mit dem brief hinter der kirche , {} ist toll ."


def reach(model: torch.nn.Module, data: Assembly, count: int = 64) -> float:
    """Gradient at the first symbol: mean |dL/dx_0| / mean |dL/dx_last| over samples.

    x are the embedded symbols, L is the loss of a sample. Double precision, because the ratio can be very small.
    """
    twin: Any = copy.deepcopy(model).to("cpu").double().eval()
    dataset = data.dataset("test")
    ids = np.arange(min(count, len(dataset)))
    made = prepare(dataset.batch(ids), data.tokens, data.objective, SampleRandom(0, -1, ids), training=False)
    inputs = made.inputs()
    view = inputs.stream
    x = twin.embed(view).detach().requires_grad_()
    logits = twin.heads["class"](twin.pool(Encoded(twin.run(x, view), view.valid)))
    loss = F.cross_entropy(logits, inputs.samples[ANSWER], reduction="sum")
    (gradient,) = torch.autograd.grad(loss, x)
    length = gradient.norm(dim=-1).mean(0)
    return float(length[0] / length[-1].clamp(min=1e-300))


@torch.inference_mode()
def pronoun_answers(
    run: Run, data: Assembly, part: str = "test", batch: int = 128
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Whether the predicted pronoun is right, and the distance of its noun.

    Both have one entry for each sentence. The decoder reads the right German words before the pronoun (teacher
    forcing), so all models predict the same position of the same sentences.
    """
    model: Any = run.model
    dataset, right, distance = data.dataset(part), [], []
    for start in range(0, len(dataset), batch):
        ids = np.arange(start, min(start + batch, len(dataset)))
        made = prepare(dataset.batch(ids), data.tokens, data.objective, SampleRandom(0, -1, ids), training=False)
        inputs = made.inputs(run.device)
        target = inputs.streams["target"]
        hidden = model.translate(inputs.streams["source"], target)
        rows = torch.arange(len(ids), device=hidden.device)
        place = torch.as_tensor(made.samples["place"], device=hidden.device)  # word n is asked for at place n
        best = model.readout(hidden[rows, place]).argmax(-1).cpu().numpy()
        words = np.array([data.tokens["target"].encode(word)[0] for word in made.samples["pronoun"]])  # type: ignore[attr-defined]
        right.append(best == words)
        distance.append(made.samples["distance"])
    return np.concatenate(right), np.concatenate(distance)


def by_distance(distance: Any, right: Any) -> dict[str, float]:
    """Share of right predictions at each distance."""
    return {str(one): round(float(np.mean(right[distance == one])), 5) for one in np.unique(distance)}


def written_pronouns(run: Run, data: Assembly, limit: int) -> dict[str, Any]:
    """Shares of right pronouns and of right sentences in greedy translations.

    The pronoun is the word after the last comma, and after «und» and «weil».
    """
    table: Any = next(pieces(data.splits.sources["test"]))  # type: ignore[union-attr]
    source, german = ([str(text) for text in table[name][:limit]] for name in ("en", "de"))
    found = translate(run, source, beam=1)
    right = np.array([pronoun_of(text) == str(word) for text, word in zip(found, table["pronoun"])])
    whole = [text.split() == truth.split() for text, truth in zip(found, german)]
    made = {"written": round(float(np.mean(right)), 5), "whole": round(float(np.mean(whole)), 5)}
    return made | {"written_by_distance": by_distance(table["distance"][:limit], right)}


def pronoun_of(text: str) -> str:
    """Word at the position of the pronoun; empty if it is not a pronoun."""
    words = text.split()
    after = words[len(words) - words[::-1].index(",") :] if "," in words else []
    after = after[1:] if after[:1] in (["und"], ["weil"]) else after
    return after[0] if after and after[0] in PRONOUNS.values() else ""


def look_at_pronoun(run: Run) -> dict[str, Any]:
    """Attention weights before the pronoun, in three sentences with different nouns.

    The weights are on the English words; `back` holds the weights on the German words written so far. The head is the
    one with the largest weight on the noun, the same for all sentences.
    """
    found = [
        align(run, ENGLISH.format(noun), GERMAN.format(german, pronoun)) for noun, (german, pronoun) in NOUNS.items()
    ]
    pronouns = [pronoun for _, pronoun in NOUNS.values()]
    rows = [one.target.index(pronoun) for one, pronoun in zip(found, pronouns)]
    across = [{name: w[:, row].float().cpu().numpy() for name, w in one.maps.items()} for one, row in zip(found, rows)]
    made = {"pronouns": pronouns, **_most([one.source for one in found], across, found[0].source.index("dog"))}
    if found[0].back:
        back = [
            {name: w[:, row].float().cpu().numpy() for name, w in one.back.items()} for one, row in zip(found, rows)
        ]
        words = [["<s>", *one.target[:-1]] for one in found]
        made["back"] = _most(words, back, words[0].index("hund"))
    return made


def _row(maps: dict[str, torch.Tensor], row: int) -> dict[str, Any]:
    return {name: weights[:, row].float().cpu().numpy() for name, weights in maps.items()}


def _most(words: list[list[str]], maps: list[dict[str, Any]], place: int) -> dict[str, Any]:
    """Head with the largest weight at a position, over all sentences."""
    heads = [(name, head) for name, weights in maps[0].items() for head in range(len(weights))]
    name, head = max(heads, key=lambda one: sum(seen[one[0]][one[1], place] for seen in maps))
    weights = [[round(float(value), 4) for value in seen[name][head]] for seen in maps]
    return {"words": words, "weights": weights, "head": f"{name}, head {head}", "of": len(heads)}
