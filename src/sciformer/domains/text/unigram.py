"""Training of the unigram subword model (SentencePiece; arXiv 1804.10959).

    p(word) = sum over segmentations of prod p(piece)

Training starts with many candidate pieces. Expectation-maximisation estimates p(piece). Then pieces with the smallest
effect on the likelihood of the text are removed, until the vocabulary has the requested size. All words
share one graph: nodes are positions between letters, edges are pieces, and a path through a word is a segmentation.
The result is deterministic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from ...data.columns import Array

MAX_PIECE_LETTERS = 16  # maximum letters of a piece
MAX_WORD_LETTERS, MAX_WORDS = 40, 100_000  # maximum letters of a training word; number of most frequent words used
CANDIDATES_PER_PIECE = 10  # initial candidates per piece of the vocabulary
SHRINK_FACTOR, EM_ROUNDS = 0.75, 2  # fraction of pieces kept after EM_ROUNDS rounds of expectation-maximisation
MIN_EXPECTED_COUNT = 0.5  # minimum expected count of a piece, except single letters


class PieceEdges(NamedTuple):
    """Edges of the graph of segmentations, sorted by their end.

    An edge is a piece at a place in a word.
    """

    first: Array  # (E,) node where the piece begins
    last: Array  # (E,) node where the piece ends
    piece: Array  # (E,) index of the piece
    word: Array  # (E,) index of the word
    steps: list[slice]  # edges that end after letter 1 of their word, after letter 2, ...
    begin: Array  # (W,) first node of each word
    end: Array  # (W,) last node of each word

    def keep(self, some: Array) -> PieceEdges:
        count = np.concatenate([[0], some.cumsum()])
        steps = [slice(int(count[step.start]), int(count[step.stop])) for step in self.steps]
        first, last, piece, word = (column[some] for column in (self.first, self.last, self.piece, self.word))
        return PieceEdges(first, last, piece, word, steps, self.begin, self.end)


class LetterRuns(NamedTuple):
    """All R substrings of the words.

    A position is an index into the T letters of all words.
    """

    at: list[Array]  # for each length, (T,) index of the substring that begins at a position, or -1
    first: Array  # (R,) one position of each substring
    long: Array  # (R,) number of letters
    times: Array  # (R,) frequency


def learn_pieces(counts: Mapping[str, int], size: int) -> list[tuple[str, float]]:
    """Learn at most `size` pieces; returns pieces with ln p, most likely first.

    counts  frequency of each word
    size    size of the vocabulary; single letters have precedence over longer pieces
    """
    whole: Counter[str] = Counter()
    for word, times in counts.items():  # cut long words
        for start in range(0, len(word), MAX_WORD_LETTERS):
            whole[word[start : start + MAX_WORD_LETTERS]] += times
    words = sorted(whole, key=lambda word: (-whole[word], word))[:MAX_WORDS]
    weight = np.array([whole[word] for word in words], np.float64)
    lengths = np.array([len(word) for word in words], np.int64)
    runs = _candidate_pieces(_letter_runs(words, lengths, weight), size)
    letter, cover = runs.long == 1, runs.times * runs.long
    pieces, score = len(cover), np.log(cover / cover.sum())
    text, parts = _text_edges(runs, lengths), _part_edges(runs)
    alive, target = np.ones(pieces, bool), max(size, int(letter.sum()))
    while True:
        for _ in range(EM_ROUNDS):
            text = text.keep(alive[text.piece])
            expected = _expected_counts(text, np.exp(score), weight)
            alive &= (expected >= MIN_EXPECTED_COUNT) | letter
            held = np.maximum(expected[alive], MIN_EXPECTED_COUNT)
            score = np.full(pieces, -np.inf)
            score[alive] = _digamma(held) - _digamma(held.sum())
        left = int(alive.sum())
        if left <= target:
            break
        parts = parts.keep(alive[parts.piece])
        lost = np.full(pieces, np.inf)  # letters cannot be segmented further
        other = alive & ~letter
        lost[other] = expected[other] * (score - _best_scores(parts, score))[other]
        kept = np.lexsort((np.arange(pieces), -lost, ~alive))[: max(target, int(SHRINK_FACTOR * left))]
        alive = np.isin(np.arange(pieces), kept)
    kept = np.lexsort((np.arange(pieces), -score, ~letter, ~alive))[: min(size, left)]
    line = "".join(words)
    best = [(line[runs.first[n] : runs.first[n] + runs.long[n]], float(score[n])) for n in kept]
    return sorted(best, key=lambda item: (-item[1], item[0]))


def _letter_runs(words: Sequence[str], lengths: Array, weight: Array) -> LetterRuns:
    """Find all substrings in alphabetical order, by adding one letter at a time."""
    letters, code = np.unique(np.frombuffer("".join(words).encode("utf-32-le"), np.uint32), return_inverse=True)
    room = np.repeat(lengths.cumsum(), lengths) - np.arange(len(code))  # letters up to the end of the word
    times = np.repeat(weight, lengths)
    at, first, long, often = [], [], [], []
    key, total = code.astype(np.int64), 0
    for length in range(1, MAX_PIECE_LETTERS + 1):
        inside = np.flatnonzero(room >= length)
        if not len(inside):
            break
        found, where, number = np.unique(key[inside], return_index=True, return_inverse=True)
        at.append(np.full(len(code), -1))
        at[-1][inside] = number + total
        first.append(inside[where])
        long.append(np.full(len(found), length))
        often.append(np.bincount(number, times[inside]))
        key = (at[-1] - total) * len(letters) + np.roll(code, -length)
        total += len(found)
    return LetterRuns(at, *map(np.concatenate, (first, long, often)))


def _candidate_pieces(runs: LetterRuns, size: int) -> LetterRuns:
    """Choose the first candidates: all letters, and the most frequent substrings."""
    letters, cover = int((runs.long == 1).sum()), runs.times * runs.long
    often = np.flatnonzero((runs.long > 1) & (runs.times > 1))
    often = np.sort(often[np.argsort(-cover[often], kind="stable")][: CANDIDATES_PER_PIECE * size])
    kept = np.concatenate([np.arange(letters), often])
    number = np.full(len(cover) + 1, -1)  # the last entry is for index -1
    number[kept] = np.arange(len(kept))
    return LetterRuns([number[at] for at in runs.at], runs.first[kept], runs.long[kept], runs.times[kept])


def _text_edges(runs: LetterRuns, lengths: Array) -> PieceEdges:
    word = np.repeat(np.arange(len(lengths)), lengths)
    start = lengths.cumsum() - lengths
    rows = []
    for length, at in enumerate(runs.at, 1):
        place = np.flatnonzero(at >= 0)
        rows.append((place + word[place], length, at[place], word[place], place - start[word[place]]))
    return _sort_edges(rows, start + np.arange(len(lengths)), lengths)


def _part_edges(runs: LetterRuns) -> PieceEdges:
    which = np.arange(len(runs.long))
    start = (runs.long + 1).cumsum() - (runs.long + 1)
    rows = []
    for length, at in enumerate(runs.at, 1):
        for skip in range(MAX_PIECE_LETTERS - length + 1):
            inside = which[(runs.long >= skip + length) & (runs.long > length)]
            inside = inside[at[runs.first[inside] + skip] >= 0]
            piece = at[runs.first[inside] + skip]
            rows.append((start[inside] + skip, length, piece, inside, np.full(len(inside), skip)))
    return _sort_edges(rows, start, runs.long)


def _sort_edges(rows: Sequence[tuple[Array, int, Array, Array, Array]], begin: Array, lengths: Array) -> PieceEdges:
    """Make the edges of the graph, sorted by their end position.

    rows   edges as arrays: first node, number of letters, piece, word, number of letters before
    """
    first, piece, word, before = (np.concatenate([row[i] for row in rows]) for i in (0, 2, 3, 4))
    long = np.repeat([row[1] for row in rows], [len(row[0]) for row in rows])
    order = np.argsort(before + long, kind="stable")
    ends = np.searchsorted((before + long)[order], np.arange(int(lengths.max()) + 1), side="right").tolist()
    steps = [slice(start, stop) for start, stop in pairwise(ends)]
    return PieceEdges(first[order], (first + long)[order], piece[order], word[order], steps, begin, begin + lengths)


def _expected_counts(edges: PieceEdges, p: Array, weight: Array) -> Array:
    """Expected count of each piece (forward-backward algorithm)."""
    before = np.zeros(int(edges.end[-1]) + 1)
    after = before.copy()
    before[edges.begin] = after[edges.end] = 1
    rng = p[edges.piece]
    for step in edges.steps:
        np.add.at(before, edges.last[step], before[edges.first[step]] * rng[step])
    for step in reversed(edges.steps):
        np.add.at(after, edges.first[step], after[edges.last[step]] * rng[step])
    share = before[edges.first] * rng * after[edges.last] / before[edges.end][edges.word]
    return np.bincount(edges.piece, share * weight[edges.word], len(p))


def _best_scores(edges: PieceEdges, score: Array) -> Array:
    """Log probability of the best segmentation of each word (Viterbi algorithm)."""
    best = np.full(int(edges.end[-1]) + 1, -np.inf)
    best[edges.begin] = 0
    for step in edges.steps:
        np.maximum.at(best, edges.last[step], best[edges.first[step]] + score[edges.piece[step]])
    return best[edges.end]


def _digamma(x: Array) -> Array:
    """Digamma function, for variational EM: rare pieces become less likely."""
    return torch.digamma(torch.as_tensor(x, dtype=torch.float64)).numpy()
