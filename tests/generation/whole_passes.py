"""Tokens after a text by whole forward passes, without a cache."""

import torch

from sciformer.data.batch import StreamView
from sciformer.generation.sampling import Sampling

WINDOW = 16
GREEDY = Sampling(temperature=0)


def whole_passes(model, ids, length, sampling=GREEDY, uniform=None, forbidden=()):
    """The next tokens of one text; where the window is full it begins anew with its second half."""
    ids, start = list(ids), max(0, len(ids) - WINDOW)
    for place in range(length):
        if len(ids) - start > WINDOW:
            start = len(ids) - WINDOW // 2
        with torch.no_grad():
            logits = model.readout(model.decode(StreamView({"ids": torch.tensor([ids[start:]])}, None))[:, -1])
        logits[:, list(forbidden)] = -torch.inf
        seen = torch.zeros(logits.shape, dtype=torch.bool)
        seen[0, ids] = True
        ids.append(int(sampling.choose(logits, torch.zeros(1) if uniform is None else uniform[place], seen)))
    return ids[-length:]
