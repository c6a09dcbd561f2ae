"""The conformance suite of tokens: all of the library's own pass it, and every promise can be seen broken."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from sciformer.data.batch import Stream
from sciformer.data.columns import Lists
from sciformer.domains.text.tokens import as_table
from sciformer.recipe.registry import built_in, find
from sciformer.testing import check_tokens
from sciformer.tokens.base import Readout, Tokens
from tests.domains.jets.jets_table import jets
from tests.domains.lightcurves.curves_table import curves
from tests.errors import refuses

RANDOM = np.random.default_rng(0)
TEXTS = as_table(["to be, or not to be", "", "a", "that is the question: " * 3])
IMAGES = {"image": RANDOM.normal(size=(5, 8, 8)).astype(np.float32)}
COLOURS = {"image": RANDOM.integers(0, 255, (5, 8, 8, 3)).astype(np.uint8)}
CASES = [
    ("text", {"context": 16}, TEXTS),
    ("text", {"unit": "bytes", "tie": False}, TEXTS),
    ("patches", {"patch": 4}, IMAGES),
    (
        "patches",
        {"patch": 2, "scale": "none", "periodic": True, "augment": ("roll", "flip", "turn", "negate")},
        COLOURS,
    ),
    ("particles", {}, jets()),
    ("observations", {"window": 16, "errors": "both", "times": "both"}, curves(bands=("g", "r"), limits=True)),
]
MISSING = {"observations": ("value", "error")}


def test_every_kind_of_tokens_that_comes_with_the_library_keeps_all_promises():
    seen = []
    for kind, keys, table in CASES:
        assert check_tokens(find("tokens", kind)(kind=kind, **keys), table, missing=MISSING.get(kind, ())) == []
        seen.append(kind)
    assert sorted(set(seen)) == sorted(built_in("tokens"))
    assert len(set(seen)) == 4


# Tokens of a user, and what may go wrong with them


class Beads(Tokens):
    """A bead has a weight and stands where it stands on its string."""

    source_columns: ClassVar[tuple[str, ...]] = ("bead",)
    hides: ClassVar[tuple[str, ...]] = ("weight",)

    def fit(self, tables):
        values = np.concatenate([table["bead"].values for table in tables])
        self.state["mean"] = float(values.mean())

    def tokenize(self, table):
        return Stream({"weight": table["bead"].values.astype(np.float64)}, table["bead"].lengths)

    def augment_stream(self, stream, rng):
        return stream.with_columns(weight=stream.columns["weight"] * (1 + 0.1 * rng.normal("heavy", stream.lengths)))

    def normalise(self, stream):
        columns = {
            n: stream.columns[n] - self.state["mean"] for n in ("weight", "target weight") if n in stream.columns
        }
        if "hidden" in stream.columns:
            columns["weight"] = np.where(stream.columns["hidden"], 0, columns["weight"])
        return stream.with_columns(**columns)

    def embedding(self, dim):
        return Layer(dim)

    def pairs(self, heads):
        return Pairs(heads)

    def readout(self, dim, embedding):
        return Back(dim)


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(1, dim)

    def forward(self, columns):
        return self.linear(columns["weight"][..., None])


class Pairs(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.linear = nn.Linear(1, heads)

    def forward(self, columns, valid=None):
        x = columns["weight"]
        return self.linear((x[:, :, None] - x[:, None]).abs()[..., None]).permute(0, 3, 1, 2)


class Back(Readout):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, 1)

    def loss(self, hidden, target):
        return (self.linear(hidden)[:, 0] - target["weight"]) ** 2

    def predict(self, hidden):
        return {"weight": self.linear(hidden)[:, 0]}


LENGTHS = np.array([3, 0, 5, 2, 4])


def strings():
    return {"bead": Lists(np.random.default_rng(1).gamma(2.0, size=LENGTHS.sum()), LENGTHS)}


def made(name, base=Beads, **answers):
    return type(name, (base,), {"__module__": __name__, **answers})


def layer(forward, **more):
    """An embedding whose forward is another one."""
    return lambda self, dim: made("Odd", Layer, forward=forward, **more)(dim)


def back(**answers):
    return lambda self, dim, embedding: made("Odd", Back, **answers)(dim)


class Unused(Layer):
    def __init__(self, dim):
        super().__init__(dim)
        self.spare = nn.Parameter(torch.zeros(dim))


def in_place(self, stream, rng):
    stream.columns["weight"] *= 2
    return stream


def scaled_table(self, table):
    table["bead"].values[:] = np.abs(table["bead"].values) + 1
    return Beads.tokenize(self, table)


def by_batch(self, stream):
    return stream.with_columns(weight=stream.columns["weight"] - stream.columns["weight"].mean())


def no_empty(self, table):
    return Beads.tokenize(self, table).with_columns(heaviest=np.full(LENGTHS.sum(), table["bead"].lengths.max()))


def random_tokens(self, table):
    return Beads.tokenize(self, table).with_columns(luck=np.random.default_rng().normal(size=len(table["bead"].values)))


def leaky(self, stream):
    columns = {**stream.columns, "shown": stream.columns["target weight"]} if "hidden" in stream.columns else {}
    return Beads.normalise(self, stream.with_columns(**columns))


def columns(**found):
    def tokenize(self, table):
        stream = Beads.tokenize(self, table)
        return stream.with_columns(**{name: make(stream.columns["weight"]) for name, make in found.items()})

    return tokenize


def over_tokens(self, columns):
    x = self.linear(columns["weight"][..., None])
    return x - x.mean(-2, keepdim=True)


def remembers(self, tables):
    Beads.fit(self, tables)
    object.__setattr__(self, "secret", 2.0)


BROKEN = {
    "fit and tokenize cannot be done": {"tokenize": lambda self, table: table["cubes"]},
    "must return a Stream": {"tokenize": lambda self, table: {"weight": table["bead"].values}},
    "the lengths must be a NumPy array of whole numbers": {
        "tokenize": lambda self, table: Stream({"weight": table["bead"].values}, table["bead"].lengths.astype(float))
    },
    "samples of a table of 5": {
        "tokenize": lambda self, table: Stream({"weight": table["bead"].values}, np.array([LENGTHS.sum()]))
    },
    "one column or more": {"tokenize": lambda self, table: Stream({}, table["bead"].lengths)},
    "must be a NumPy array of numbers": {"tokenize": columns(name=lambda weight: weight.astype(str))},
    "holds NaN or infinity where": {"tokenize": columns(log=lambda weight: np.where(weight > 1, np.nan, weight))},
    "`hides` names `mass`": {"hides": ("mass",)},
    "`source_columns` names `cube`": {"source_columns": ("cube",)},
    "tokenize twice gives different tokens": {"tokenize": random_tokens},
    "`axes` says 1": {"tokenize": columns(at=lambda weight: np.zeros((len(weight), 3)))},
    "tokens stand at places up to": {"grid_shape": property(lambda self: 2)},
    "tokenize of the rows [0] alone differs": {"tokenize": columns(share=lambda weight: weight / weight.sum())},
    "normalise of the rows [0] alone differs": {"normalise": by_batch},
    "a table of no samples failed": {
        "tokenize": columns(top=lambda weight: weight * 0 + weight[0:1].dtype.itemsize),
        "augment_stream": lambda self, stream, rng: stream.with_columns(top=stream.columns["top"].max()),
    },
    "must be plain JSON": {"fit": lambda self, tables: self.state.update(mean=np.float32(2))},
    "restored from its state": {
        "fit": remembers,
        "normalise": lambda self, stream: stream.with_columns(
            weight=stream.columns["weight"] * getattr(self, "secret", 1.0)
        ),
    },
    "must give (B, N, D)": {"embedding": lambda self, dim: Layer(dim + 1)},
    "the embedding gives NaN or infinity": {
        "embedding": layer(lambda self, c: self.linear(c["weight"][..., None]) / 0)
    },
    "lazy parameters": {"embedding": lambda self, dim: nn.LazyLinear(dim)},
    "`spare` of the embedding has no gradient": {"embedding": lambda self, dim: Unused(dim)},
    "laid end to end": {"embedding": layer(over_tokens)},
    "the bias of pairs must be (B, H, N, N)": {"pairs": lambda self, heads: Pairs(heads + 1)},
    "the bias of pairs holds NaN": {
        "pairs": lambda self, heads: made("Odd", Pairs, forward=lambda self, c, v: Pairs.forward(self, c).log())(heads)
    },
    "changes the result of an encoder": {"embedding": layer(over_tokens)},
    "augment_stream changes the column": {"augment_stream": in_place},
    "augment_stream must keep the samples": {"augment_stream": lambda self, stream, rng: stream.take(np.arange(2))},
    "augment_stream twice differs": {
        "augment_stream": lambda self, stream, rng: stream.with_columns(
            weight=stream.columns["weight"] + np.random.default_rng().normal()
        )
    },
    "augment_stream of some samples differs": {
        "augment_stream": lambda self, stream, rng: stream.with_columns(
            weight=stream.columns["weight"] + rng.uniform("first")[:1].sum()
        )
    },
    "mask_out changes `weight`": {"mask_out": lambda self, stream, tokens: {"weight": stream.columns["weight"] * 0}},
    "hidden values leak": {"normalise": leaky},
    "random_replacement must replace only": {
        "random_replacement": lambda self, stream, tokens, rng: {"weight": rng.normal("noise", stream.lengths)}
    },
    "`hides` names no column": {"hides": ()},
    "loss must be one number for each token": {"readout": back(loss=lambda s, h, t: Back.loss(s, h, t).mean())},
    "loss holds NaN": {"readout": back(loss=lambda s, h, t: Back.loss(s, h, t) / 0)},
    "total is not the sum": {"readout": back(total=lambda s, h, t, wanted=None: s.loss(h, t).sum())},
    "no gradient": {"readout": back(loss=lambda s, h, t: Back.loss(s, h.detach(), t))},
    "answer must have the column `weight`": {"readout": back(predict=lambda s, h: {})},
    "a copy for another process failed": {
        "fit": lambda self, tables: (Beads.fit(self, tables), object.__setattr__(self, "open", lambda: 0))[0]
    },
    "token_labels must give one text": {"token_labels": lambda self, stream: ["bead"]},
    "distance must be finite": {"distance": lambda self, stream: -np.ones((5, 5))},
    "draw leaves the axes empty": {"draw": lambda self, sample, weights, axes: None},
    "draw failed: ZeroDivisionError": {"draw": lambda self, sample, weights, axes: 1 / 0},
    "was changed in place": {"tokenize": scaled_table},
}


def test_tokens_of_a_user_pass():
    assert check_tokens(Beads(kind="beads"), strings()) == []


@pytest.mark.parametrize("problem", BROKEN)
def test_a_broken_promise_is_told(problem):
    odd = made("Odd", **BROKEN[problem])
    globals()["Odd"] = odd  # pickle looks a class up by its name
    with np.errstate(all="ignore"):
        found = check_tokens(odd(kind="odd"), strings(), draw="draw" in problem)
    assert any(problem in sentence for sentence in found), found
    assert all(sentence.startswith("odd: ") for sentence in found)


def test_missing_values_are_allowed_where_they_are_named():
    class Holes(Beads):
        def embedding(self, dim):
            return made("Odd", Layer, forward=lambda s, c: s.linear(c["weight"].nan_to_num()[..., None]))(dim)

        pairs = readout = lambda self, *_: None
        hides: ClassVar[tuple[str, ...]] = ()

    globals()["Holes"] = Holes
    Holes.__qualname__ = "Holes"
    Holes.readout = Tokens.readout
    table = strings()
    table["bead"].values[3] = np.nan
    Holes.fit = lambda self, tables: self.state.update(mean=1.0)
    assert any("NaN or infinity" in sentence for sentence in check_tokens(Holes(kind="holes"), table))
    assert check_tokens(Holes(kind="holes"), table, missing=("weight",)) == []


def test_one_sample_is_too_few():
    with refuses(1):
        check_tokens(Beads(kind="beads"), {"bead": Lists(np.ones(2), np.array([2]))})
