"""Text, one token after the other, from a trained decoder.

A decoder sees at most `tokens.context` tokens. Each new one costs a single step while there is room, for keys and
values of the earlier ones are kept. Where the window is full it begins anew with its second half, so that the model
always sees between half a context and a whole one of the latest tokens, at the positions 0, 1, 2, ...; to move the
window by one token at each step would cost a whole pass each time, since all positions change. A prompt longer than
the context is seen from its end.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable, Iterator
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
    prompt: str | None = None,
    length: int = 500,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: str = "",
    seed: int | None = None,
) -> Iterator[str]:
    """Pieces of text that go on from the prompt, as they come.

    prompt       the beginning of a line unless given
    length       tokens to write
    temperature  0 takes the likeliest token; below 1 is careful, above 1 bold
    top_k        choose among so many likeliest tokens
    top_p        choose among the likeliest tokens that together have this probability
    stop         end before this text; a piece that may be its beginning is held back until that is known
    """
    tokens = _text(run)
    model: Any = run.model
    if not hasattr(model, "decode"):
        raise UserError("a run of a decoder, to go on from a text", f"`model.kind: {run.recipe.model.kind}`")
    _check(length, temperature, top_k, top_p)
    ids = _encode(tokens, prompt)
    chance = torch.Generator(device="cpu")
    if seed is None:
        chance.seed()
    else:
        chance.manual_seed(seed)
    letters, held = _letters(tokens), ""
    for choice in _ids(
        run, model, tokens, ids, length, lambda logits: choose(logits, temperature, top_k, top_p, chance)
    ):
        held += letters(choice)
        if stop and stop in held:
            held = held[: held.index(stop)]
            break
        ready = len(held) - _begun(held, stop)
        if ready:
            yield held[:ready]
            held = held[ready:]
    if held:
        yield held


def _ids(
    run: Run, model: Any, tokens: Any, ids: Tensor, length: int, pick: Callable[[Tensor], Tensor]
) -> Iterator[int]:
    """Tokens that go on from `ids`; the rule of the window stands above."""
    context = tokens.window
    history, cache, fresh = ids, model.trunk.cache(), ids[-context:]
    for _ in range(length):
        if cache.length + len(fresh) > context:
            cache, fresh = model.trunk.cache(), history[-max(1, context // 2) :]
        hidden = model.decode(View({"ids": fresh[None].to(run.device)}, None), cache=cache)
        logits = model.readout(hidden[0, -1]).float().cpu()
        logits[tokens.known :] = -torch.inf  # the unknown token, the hidden one and the padding
        choice = pick(logits)
        fresh = choice[None]
        history = torch.cat([history[-context:], fresh])
        yield int(choice)


def choose(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float | None, chance: torch.Generator
) -> Tensor:
    """One token, drawn from softmax(logits / temperature), cut to the `top_k` likeliest, then as `top_p` says.

    `top_p` keeps the likeliest tokens up to the first with which their probability reaches it.
    """
    if temperature == 0:
        return logits.argmax()
    probability = ((logits - logits.max()) / temperature).softmax(-1)
    order = probability.argsort(descending=True, stable=True)
    if top_k is not None:
        probability[order[top_k:]] = 0
        probability = probability / probability.sum()
    if top_p is not None:
        before = probability[order].cumsum(0) - probability[order]  # of the likelier ones
        probability[order[before >= top_p]] = 0
    return torch.multinomial(probability, 1, generator=chance)[0]


def _begun(text: str, stop: str) -> int:
    """How many letters at the end of a text may be the beginning of `stop`."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)


def _letters(tokens: Any) -> Callable[[int], str]:
    """The text of one token after the other; of bytes, whole characters, and nothing of one that is never completed."""
    if getattr(tokens, "unit", "") != "bytes":
        return lambda choice: str(tokens.decode([choice]))
    reader = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda choice: reader.decode(bytes([choice]))


def _encode(tokens: Any, prompt: str | None) -> Tensor:
    if prompt is None:  # a new line, or what the model has seen instead
        prompt = next((letter for letter in "\n " if _seen(tokens, letter)), None) or tokens.decode([0])
    if not prompt:
        raise UserError("a prompt of one character or more", "an empty one", "Without --prompt a new line is begun.")
    unknown = sorted({letter for letter in prompt if not _seen(tokens, letter)})
    if unknown:
        raise UserError("a prompt of characters that the model has seen", f"{''.join(unknown)!r}")
    return torch.as_tensor(tokens.encode(prompt).astype(np.int64))


def _seen(tokens: Any, letter: str) -> bool:
    try:
        return bool(tokens.decode(tokens.encode(letter)) == letter)
    except UnicodeEncodeError:  # half a character, as a terminal may pass on
        return False


def _check(length: int, temperature: float, top_k: int | None, top_p: float | None) -> None:
    if length < 1:
        raise UserError("a length of one token or more", f"{length}")
    if not (temperature >= 0 and math.isfinite(temperature)):
        raise UserError("a temperature of 0 or more", f"{temperature}")
    if top_k is not None and top_k < 1:
        raise UserError("top_k of 1 or more", f"{top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise UserError("top_p above 0 and at most 1", f"{top_p}")


def _text(run: Run) -> Any:
    (tokens,) = run.assembly.tokens.values()
    if not hasattr(tokens, "encode"):
        raise UserError("a run whose tokens are text", f"`tokens.kind: {tokens.kind}`")
    return tokens
