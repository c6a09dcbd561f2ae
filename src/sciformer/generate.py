"""Text, or any tokens with a readout, one after the other from a trained decoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .data.batch import View
from .errors import UserError
from .run import Run


@torch.inference_mode()
def generate(
    run: Run,
    prompt: str = "\n",
    *,
    length: int = 500,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: str = "",
    seed: int | None = None,
) -> Iterator[str]:
    """Pieces of text that go on from the prompt, as they come.

    temperature  0 takes the likeliest token; below 1 is careful, above 1 bold
    top_k        choose among so many likeliest tokens
    top_p        choose among the likeliest tokens that together have this probability
    stop         end where this text appears
    """
    model: Any = run.model
    tokens = _text(run)
    if not hasattr(model, "decode"):
        raise UserError("a run of a decoder, to go on from a text", f"`model.kind: {run.recipe.model.kind}`")
    _check(length, temperature, top_k, top_p)
    ids = tokens.encode(prompt)
    unknown = sorted({letter for letter in prompt if tokens.decode(tokens.encode(letter)) != letter})
    if unknown:
        raise UserError("a prompt of characters that the model has seen", f"{''.join(unknown)!r}")
    if not len(ids):
        raise UserError("a prompt of one character or more", "an empty one")
    chance = torch.Generator(device="cpu")
    chance.manual_seed(torch.seed() if seed is None else seed)
    context, written, pending = tokens.window, "", []
    history = torch.as_tensor(ids.astype(np.int64))
    cache, fresh = model.trunk.cache(), history[-context:]
    for _ in range(length):
        if cache.length + len(fresh) > context:  # the window is full: begin again with its second half
            cache, fresh = model.trunk.cache(), history[-max(1, context // 2) :]
        hidden = model.decode(View({"ids": fresh[None].to(run.device)}, None), cache=cache)
        logits = model.readout(hidden[0, -1]).float().cpu()
        logits[tokens.known :] = -torch.inf  # the unknown token, the hidden one and the padding
        choice = choose(logits, temperature, top_k, top_p, chance)
        fresh = choice[None]
        history = torch.cat([history, fresh])
        pending.append(int(choice))
        piece = tokens.decode(pending)
        if piece.endswith("\ufffd") and len(pending) < 4:
            continue  # bytes in the middle of a character
        pending = []
        written += piece
        if stop and stop in written:
            keep = len(written) - len(piece)
            end = written.index(stop)
            if end > keep:
                yield written[keep:end]
            return
        yield piece


def choose(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float | None, chance: torch.Generator
) -> Tensor:
    """One token, drawn from softmax(logits / temperature), cut as `top_k` and `top_p` say."""
    if temperature == 0:
        return logits.argmax()
    logits = logits / temperature
    if top_k is not None and top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -torch.inf)
    probability = logits.softmax(-1)
    if top_p is not None:
        order = probability.argsort(descending=True)
        before = probability[order].cumsum(0) - probability[order]  # of the likelier ones
        probability[order[before >= top_p]] = 0
    return torch.multinomial(probability, 1, generator=chance)[0]


def _check(length: int, temperature: float, top_k: int | None, top_p: float | None) -> None:
    if length < 1:
        raise UserError("a length of one token or more", f"{length}")
    if not temperature >= 0:
        raise UserError("a temperature of 0 or more", f"{temperature}")
    if top_k is not None and top_k < 1:
        raise UserError("top_k of 1 or more", f"{top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise UserError("top_p above 0 and at most 1", f"{top_p}")


def _text(run: Run) -> Any:
    (tokens,) = run.assembly.tokens.values()
    if not hasattr(tokens, "encode"):
        raise UserError("a run whose tokens can be written", f"`tokens.kind: {tokens.kind}`")
    return tokens
