"""The conformance suite of tokens: all of the library's own pass it, and every promise can be seen broken."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from sciformer.data.batch import Stream
from sciformer.data.columns import Lists
from sciformer.domains.images.tokens import Patches
from sciformer.domains.text.tokens import Text, as_table
from sciformer.recipe.registry import built_in, find
from sciformer.testing import PROTOCOL_CHECKS, check_tokens
from sciformer.tokens.base import Tokens
from sciformer.tokens.protocols import (
    Augmentable,
    Editable,
    Exportable,
    Gridded,
    Invertible,
    Maskable,
    Pairwise,
    Readout,
    Textual,
    Windowed,
)
from tests.domains.atmosphere.neighbourhoods_table import neighbourhoods
from tests.domains.jets.jets_table import jets
from tests.domains.lightcurves.curves_table import curves
from tests.errors import refuses

RANDOM = np.random.default_rng(0)
TEXTS = as_table(["to be, or not to be", "", "a", "that is the question: " * 3])
IMAGES = {"image": RANDOM.normal(size=(5, 8, 8)).astype(np.float32)}
COLOURS = {"image": RANDOM.integers(0, 255, (5, 8, 8, 3)).astype(np.uint8)}
SCALARS = {"mass": np.array([1.0, np.nan, 3.5, np.nan, -1]), "size": np.array([2.0, 5, np.nan, np.nan, 0.1])}
CASES = [
    ("text", {"context": 16}, TEXTS),
    ("text", {"unit": "bytes", "tie": False}, TEXTS),
    ("patches", {"patch": 4}, IMAGES),
    (
        "patches",
        {"patch": 2, "scale": "none", "periodic": True, "augment": ("roll", "flip", "turn", "negate")},
        COLOURS,
    ),
    ("patches", {"patch": 2, "window": (3, 2), "scale": "image", "augment": ("flip", "crop")}, COLOURS),
    ("picture_codes", {"patch": 4, "codes": 8}, COLOURS),
    ("picture_codes", {"patch": 2, "codes": 64, "tie": True}, IMAGES),
    ("particles", {}, jets()),
    ("observations", {"window": 16, "errors": "both", "times": "both"}, curves(bands=("g", "r"), limits=True)),
    ("cubes", {"field": "t", "cube": (3, 2, 3)}, neighbourhoods()),
    ("cubes", {"field": "t", "cube": (2, 3, 4), "loss": "crps", "members": 4}, neighbourhoods(levels=2)),
    ("cubes", {"field": "t", "cube": (6, 1, 1), "loss": "gaussian"}, neighbourhoods(missing=False)),
    ("cubes", {"field": "t", "cube": (1, 4, 6), "loss": "statistical"}, neighbourhoods()),
    ("scalars", {"columns": ("mass", "size"), "log": ("size",)}, SCALARS),
    ("scalars", {"columns": ("mass", "size"), "drop_missing": True}, SCALARS),
]
MISSING = {"cubes": ("value", "climate"), "observations": ("value", "error"), "scalars": ("value",)}


ABILITIES = {
    "text": {Textual, Windowed, Maskable, Exportable, Editable},
    "picture_codes": {Maskable, Invertible},
    "patches": {Gridded, Windowed, Maskable, Augmentable, Exportable, Editable, Invertible},
    "particles": {Pairwise, Maskable, Exportable, Editable},
    "observations": {Windowed, Maskable, Augmentable, Exportable, Editable},
    "scalars": {Maskable, Exportable, Editable},
    "cubes": {Maskable},
}


@pytest.mark.parametrize(("kind", "keys", "table"), CASES)
def test_tokens_that_come_with_the_library_keep_all_promises(kind, keys, table):
    section = find("tokens", kind)(kind=kind, **keys)
    assert check_tokens(section, table, missing=MISSING.get(kind, ())) == []
    assert {one for one in PROTOCOL_CHECKS if isinstance(section, one)} == ABILITIES[kind]


def test_every_kind_and_every_protocol_is_tested():
    assert {kind for kind, *_ in CASES} == set(built_in("tokens")) == set(ABILITIES)
    assert set(PROTOCOL_CHECKS) == set().union(*ABILITIES.values())
    assert set(BROKEN) == {None, *PROTOCOL_CHECKS}


# Tokens of a user, and what may go wrong with them


class Beads(Pairwise, Maskable, Windowed, Augmentable, Exportable, Editable):
    """A bead has a weight and stands where it stands on its string."""

    source_columns: ClassVar[tuple[str, ...]] = ("bead",)
    hides: ClassVar[tuple[str, ...]] = ("weight",)
    changeable_columns: ClassVar[tuple[str, ...]] = ("weight",)

    window: int = 4

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


class Pairs(Layer):
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


def only_once(self, table):
    self.state["calls"] = 1 + self.state.get("calls", 0)
    return Beads.tokenize(self, table) if self.state["calls"] == 1 else 1 / 0


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


def varied(change):
    return {"augment_stream": lambda self, stream, rng: stream.with_columns(weight=change(stream, rng))}


CORE = {
    "fit or tokenize failed": {"tokenize": lambda self, table: table["cubes"]},
    "must return a Stream": {"tokenize": lambda self, table: {"weight": table["bead"].values}},
    "the lengths must be a NumPy array of integers": {
        "tokenize": lambda self, table: Stream({"weight": table["bead"].values}, table["bead"].lengths.astype(float))
    },
    "samples of a table of 5": {
        "tokenize": lambda self, table: Stream({"weight": table["bead"].values}, np.array([LENGTHS.sum()]))
    },
    "at least one column": {"tokenize": lambda self, table: Stream({}, table["bead"].lengths)},
    "must be a NumPy array of numbers": {"tokenize": columns(name=lambda weight: weight.astype(str))},
    "name the column in `missing`": {"tokenize": columns(log=lambda weight: np.where(weight > 1, np.nan, weight))},
    "`source_columns` names `cube`": {"source_columns": ("cube",)},
    "two calls of tokenize differ": {"tokenize": random_tokens},
    "failed with this table: ZeroDivisionError": {"tokenize": only_once},
    "`axes` says 1": {"tokenize": columns(at=lambda weight: np.zeros((len(weight), 3)))},
    "positions of tokens go up to": {"grid_shape": property(lambda self: 2)},
    "tokenize of the rows [0] alone differs": {"tokenize": columns(share=lambda weight: weight / weight.sum())},
    "normalise of the rows [0] alone differs": {"normalise": by_batch},
    "a table of no samples failed": {
        "normalise": lambda self, stream: stream.with_columns(top=stream.columns["weight"] * 0 + stream.lengths.max())
    },
    "learned by fit must be plain JSON": {"fit": lambda self, tables: self.state.update(mean=np.float32(2))},
    "restored from `state` differ": {
        "fit": remembers,
        "normalise": lambda self, stream: stream.with_columns(
            weight=stream.columns["weight"] * getattr(self, "secret", 1.0)
        ),
    },
    "must return (B, N, D)": {"embedding": lambda self, dim: Layer(dim + 1)},
    "the embedding returns NaN or infinity": {
        "embedding": layer(lambda self, c: self.linear(c["weight"][..., None]) / 0)
    },
    "lazy parameters": {"embedding": lambda self, dim: nn.LazyLinear(dim)},
    "`spare` of the embedding has no gradient": {"embedding": lambda self, dim: Unused(dim)},
    "the embedding of packed tokens": {"embedding": layer(over_tokens)},
    "changes the result of an encoder": {"embedding": layer(over_tokens)},
    "a copy for another process failed": {
        "fit": lambda self, tables: (Beads.fit(self, tables), object.__setattr__(self, "open", lambda: 0))[0]
    },
    "token_labels must return one text": {"token_labels": lambda self, stream: ["bead"]},
    "distance must be finite": {"distance": lambda self, stream: -np.ones((4, 4))},
    "draw leaves the axes empty": {"draw": lambda self, sample, weights, axes: None},
    "draw failed: ZeroDivisionError": {"draw": lambda self, sample, weights, axes: 1 / 0},
    "was changed in place": {"tokenize": scaled_table},
}
BROKEN = {
    None: CORE,
    Pairwise: {
        "the pair bias must be (B, H, N, N)": {"pairs": lambda self, heads: Pairs(heads + 1)},
        "the pair bias has NaN": {
            "pairs": lambda self, heads: made("Odd", Pairs, forward=lambda s, c, v: Pairs.forward(s, c).log())(heads)
        },
    },
    Maskable: {
        "`hides` names `mass`": {"hides": ("mass",)},
        "`hides` is empty": {"hides": ()},
        "`can_hide` is False": {"can_hide": property(lambda self: False)},
        "mask_out changes `weight`": {
            "mask_out": lambda self, stream, tokens: {"weight": stream.columns["weight"] * 0}
        },
        "hidden values leak": {"normalise": leaky},
        "random_replacement must replace only": {
            "random_replacement": lambda self, stream, tokens, rng: {"weight": rng.normal("noise", stream.lengths)}
        },
        "the mask `odd` must be True or False": {"masks": property(lambda self: {"odd": lambda s, share: s.lengths})},
        "the mask `none` hides no token of a sample": {
            "masks": property(lambda self: {"none": lambda stream, share: stream.position < 0})
        },
        "loss must be one number for each token": {"readout": back(loss=lambda s, h, t: Back.loss(s, h, t).mean())},
        "loss has NaN": {"readout": back(loss=lambda s, h, t: Back.loss(s, h, t) / 0)},
        "total is not the sum": {"readout": back(total=lambda s, h, t, wanted=None: s.loss(h, t).sum())},
        "no gradient": {"readout": back(loss=lambda s, h, t: Back.loss(s, h.detach(), t))},
        "predictions must have the column `weight`": {"readout": back(predict=lambda s, h: {})},
    },
    Windowed: {
        "sample_shapes must return the number of places": {
            "sample_shapes": lambda self, stream: stream.lengths[:, None] + 1
        },
        "shift_windows must keep the tokens": {
            "shift_windows": lambda self, stream, starts: stream.keep(stream.position > 0)
        },
        "must contain all tokens": {
            "shift_windows": lambda self, stream, starts: stream.with_columns(
                **({"number": stream.columns["number"] * 0} if "number" in stream.columns else {})
            )
        },
        "windows failed": {"prefix_tokens": property(lambda self: 9)},
        "truncate at infinity must keep": {"truncate": lambda self, stream, far: stream.keep(stream.position < 2)},
        "truncate must keep the first token": {
            "truncate": lambda self, stream, far: stream.keep(stream.position < far)
        },
    },
    Augmentable: {
        "augment_stream changes `weight` in place": {"augment_stream": in_place},
        "augment_stream must keep the samples": {"augment_stream": lambda self, stream, rng: stream.take(np.arange(2))},
        "two calls of augment_stream differ": varied(
            lambda stream, rng: stream.columns["weight"] + np.random.default_rng().normal()
        ),
        "augment_stream of a subset of the samples differs": varied(
            lambda stream, rng: stream.columns["weight"] + rng.uniform("first")[:1].sum()
        ),
        "augment_stream failed": varied(lambda stream, rng: stream.columns["weight"] + stream.lengths.max()),
        "a sample mixed with itself": {
            "mix": lambda self, one, other, share: one.with_columns(
                weight=one.columns["weight"] + other.columns["weight"]
            )
        },
    },
    Exportable: {
        "example must return samples": {"example": lambda self: {"bead": Lists(np.zeros(0), np.array([0]))}},
        "preprocessing must be plain JSON": {"preprocessing": lambda self: {"mean": np.float32(1)}},
        "export_files must return texts": {"export_files": lambda self: {"beads.bin": b"1"}},
    },
    Editable: {
        "drop must remove one token": {"drop": lambda self, stream, token: stream},
        "where must return the 1 coordinates": {"where": lambda self, stream, token: (0, 1)},
        "moving a token to its own position": {"where": lambda self, stream, token: (0,)},
        "changing `weight` to its own value": {
            "change": lambda self, stream, token, column, value: stream.with_columns(
                weight=stream.columns["weight"] + 1
            )
        },
        "an edit changes the sample in place": {"refresh": lambda self, stream: in_place(self, stream, None)},
        "with a UserError": {"check_token": lambda self, *given: None},
    },
    Gridded: {
        "`raster` must have a side": {"raster": property(lambda self: (2, 2))},
        "Gridded tokens need a column `at`": {"axes": property(lambda self: 3)},
    },
    Textual: {
        "Textual tokens need a column `ids`": {
            "window": property(lambda self: (16,)),
            "grid_shape": property(lambda self: 16),
        },
        "must reproduce a decoded text": {"decode": lambda self, ids: Text.decode(self, ids) + "!"},
        "`writable` must be a mask": {"writable": property(lambda self: np.ones(2, bool))},
        "`specials` must be ids": {"specials": property(lambda self: {"end": 0})},
    },
    Invertible: {
        "blank(3) must return 3 samples": {"blank": lambda self, count: Patches.blank(self, 1)},
        "has NaN or infinity": {
            "blank": lambda self, count: Patches.blank(self, count).with_columns(
                patch=np.full((16 * count, 4), np.nan, np.float32)
            )
        },
        "`allowed` must be a mask": {"new_tokens": property(lambda self: 3)},
        "invert made 1 samples": {"invert": lambda self, stream: {"image": IMAGES["image"][:1]}},
        "differ from the tokens that were inverted": {
            "invert": lambda self, stream: {"image": Patches.invert(self, stream)["image"] + 1}
        },
        "write_samples must write a file": {"write_samples": lambda self, table, paths: None},
    },
}
OTHERS = {protocol: (Patches, {"patch": 2}, IMAGES) for protocol in (Gridded, Invertible)}
OTHERS[Textual] = (Text, {"unit": "bytes", "context": 16}, TEXTS)
EXAMPLES = [(protocol, problem) for protocol, found in BROKEN.items() for problem in found]


def test_tokens_of_a_user_pass():
    assert check_tokens(Beads(kind="beads"), strings()) == []


@pytest.mark.parametrize(("protocol", "problem"), EXAMPLES, ids=[problem for _, problem in EXAMPLES])
def test_a_broken_promise_is_told(protocol, problem):
    base, keys, table = OTHERS.get(protocol, (Beads, {}, None))
    odd = made("Odd", base, **BROKEN[protocol][problem])
    globals()["Odd"] = odd  # pickle looks a class up by its name
    with np.errstate(all="ignore"):
        found = check_tokens(odd(kind="odd", **keys), strings() if table is None else table, draw="draw" in problem)
    assert any(problem in sentence for sentence in found), found
    assert all(sentence.startswith("odd: ") for sentence in found)


def test_a_kind_has_only_the_abilities_that_it_declares():
    class Plain(Tokens):
        tokenize, embedding = Beads.tokenize, Beads.embedding

    plain = Plain(kind="plain")
    for protocol in PROTOCOL_CHECKS:
        assert not isinstance(plain, protocol)
        with refuses("masked", protocol.__name__, "plain", key="tokens.kind"):
            protocol.require(plain, "`objective.kind: masked`")
    assert Maskable.require(Beads(kind="beads"), "masked").hides == ("weight",)
    globals()["Plain"], Plain.__qualname__ = Plain, "Plain"
    assert check_tokens(plain, strings()) == []
    with pytest.raises(TypeError):
        type("Empty", (Tokens,), {})(kind="empty")  # what a token is has no default


def test_missing_values_are_allowed_where_they_are_named():
    class Holes(Tokens):
        tokenize, source_columns = Beads.tokenize, Beads.source_columns

        def embedding(self, dim):
            return made("Odd", Layer, forward=lambda s, c: s.linear(c["weight"].nan_to_num()[..., None]))(dim)

    globals()["Holes"], Holes.__qualname__ = Holes, "Holes"
    table = strings()
    table["bead"].values[3] = np.nan
    assert any("NaN or infinity" in sentence for sentence in check_tokens(Holes(kind="holes"), table))
    assert check_tokens(Holes(kind="holes"), table, missing=("weight",)) == []


def test_one_sample_is_too_few():
    with refuses(1):
        check_tokens(Beads(kind="beads"), {"bead": Lists(np.ones(2), np.array([2]))})
