"""A model of two streams, a series and a set, from a recipe to every verb: streams are found by their names."""

import json
import os
import signal
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from sciformer.assembly import Assembly
from sciformer.data.batch import Batch, Stream
from sciformer.data.columns import Lists
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.evaluation.embed import embed
from sciformer.generation.generate import generate, generate_many
from sciformer.inspection.attention import attention_maps
from sciformer.inspection.faithfulness import faithfulness
from sciformer.inspection.masked import predict_masked
from sciformer.inspection.report import page
from sciformer.inspection.report.figures import inspect_run
from sciformer.interop.export import export_model
from sciformer.models.base import Entrance, Model
from sciformer.models.encoder import Encoded
from sciformer.nn import Attention, MeanPool, Ragged, Sight, Watch
from sciformer.nn.trunks.deep_sets import DeepSets
from sciformer.nn.watch import inner_watch
from sciformer.recipe import Recipe
from sciformer.recipe.registry import REGISTERED
from sciformer.run import Run
from sciformer.testing import check_tokens
from sciformer.tokens.protocols import Exportable, Maskable, Readout, Windowed
from tests.errors import refuses
from tests.training.tiny import assert_same, at_step, fate, go, left, start, with_changes

N = 40


class Column(nn.Module):
    """W x + b of one column."""

    def __init__(self, name, width, dim):
        super().__init__()
        self.name, self.layer = name, nn.Linear(width, dim)

    def forward(self, columns):
        return self.layer(columns[self.name])


class ValueReadout(Readout):
    """The squared error of the value."""

    def __init__(self, dim):
        super().__init__()
        self.layer = nn.Linear(dim, 1)

    def loss(self, hidden, target):
        return ((self.layer(hidden) - target["value"]) ** 2).sum(-1)

    def predict(self, hidden):
        return {"value": self.layer(hidden)}


class Readings(Maskable, Windowed, Exportable):
    """A series: values in order."""

    source_columns: ClassVar = ("value",)
    hides: ClassVar = ("value",)
    window: int | None = None
    random_windows: ClassVar[bool] = True

    def tokenize(self, table):
        values = table["value"]
        return Stream({"value": values.values.astype(np.float64)[:, None]}, values.lengths)

    def embedding(self, dim):
        return Column("value", 1, dim)

    def readout(self, dim, embedding):
        return ValueReadout(dim)

    def token_labels(self, stream):
        return [f"t{i}" for i in range(int(stream.lengths.sum()))]

    def draw_hidden(self, sample, answer, axes):
        axes.plot(sample.stream.columns["value"][:, 0])
        axes.plot(answer["value"][:, 0], "o")


class Spots(Exportable):
    """A set: places without an order."""

    source_columns: ClassVar = ("x", "y")

    def tokenize(self, table):
        x, y = (table[name] for name in ("x", "y"))
        return Stream({"xy": np.stack([x.values, y.values], 1)}, x.lengths)

    def embedding(self, dim):
        return Column("xy", 2, dim)

    def token_labels(self, stream):
        return [f"s{i}" for i in range(int(stream.lengths.sum()))]


class Pair(Model):
    """A trunk for each stream, and attention from the stream that is asked about to the others."""

    def build(self, tokens, objective):
        return PairNetwork(self, tokens, objective)


class PairNetwork(nn.Module):
    def __init__(self, section, tokens, objective):
        super().__init__()
        asked = objective.asked_stream(tokens)
        own = {name: section.for_stream(name) for name in tokens}
        hides = {name: objective.hides and name == asked for name in tokens}
        self.entrance = nn.ModuleDict({name: Entrance(one, own[name], hides[name]) for name, one in tokens.items()})
        self.trunk = nn.ModuleDict({name: own[name].make_trunk(one) for name, one in tokens.items()})
        self.dim, self.pooling, self.between = section.dim, MeanPool(), Attention(section.dim, 2)
        self.heads = nn.ModuleDict(objective.heads(self.dim, tokens[asked]))
        read = {asked: tokens[asked].readout(self.dim, self.entrance[asked].embedding)} if objective.reads_out else {}
        self.readout = nn.ModuleDict(read)

    def encode(self, view, watch=None):
        found = {}
        for name, one in view.streams.items():
            x = self.trunk[name](
                self.entrance[name](one), one.valid, at=one.columns.get("at"), watch=inner_watch(watch, name)
            )
            found[name] = (one.valid.pad(x), one.valid.valid) if isinstance(one.valid, Ragged) else (x, one.valid)
        x = own = found.pop(view.name)[0]
        for name, (memory, valid) in found.items():
            x = x + self.between(own, memory, Sight(valid=valid), watch=inner_watch(watch, f"{view.name} to {name}"))
        return Encoded(view.valid.flatten(x) if isinstance(view.valid, Ragged) else x, view.valid)

    def tokens(self, encoded):
        return encoded.x

    def pool(self, encoded, watch=None):
        return self.pooling(encoded.x, encoded.valid)


class Caption(Model):
    """A text that is written about spots: their mean is added to each of its tokens."""

    def build(self, tokens, objective):
        return CaptionNetwork(self, tokens, objective)


class CaptionNetwork(nn.Module):
    def __init__(self, section, tokens, objective):
        super().__init__()
        asked = objective.asked_stream(tokens)
        self.entrance = nn.ModuleDict({name: Entrance(one, section, hides=False) for name, one in tokens.items()})
        self.trunk = nn.ModuleDict({asked: section.make_trunk(tokens[asked], causal=True)})
        self.heads, self.pooling = nn.ModuleDict(), MeanPool()
        self.readout = nn.ModuleDict({asked: tokens[asked].readout(section.dim, self.entrance[asked].embedding)})

    def decode(self, view, watch=None, cache=None):
        spots, more = view.streams["spots"], {} if cache is None else {"cache": cache}
        about = self.pooling(self.entrance["spots"](spots), spots.valid)[:, None]
        return self.trunk[view.name](
            self.entrance[view.name](view) + about, view.valid, at=view.columns.get("at"), watch=watch, **more
        )


@pytest.fixture(autouse=True, scope="module")
def _registered():
    toys = {"tokens": {"readings": Readings, "spots": Spots}, "model": {"pair": Pair, "caption": Caption}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "DOTS_PER_INCH", 24)
        for point, found in toys.items():
            patch.setitem(REGISTERED, point, {**REGISTERED[point], **found})
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place, rng = tmp_path_factory.mktemp("streams"), np.random.default_rng(0)
    series, spots = rng.integers(4, 11, N), rng.integers(1, 5, N)
    columns = {"value": (rng.normal(size=series.sum()), series)}
    columns |= {name: (rng.normal(size=spots.sum()), spots) for name in ("x", "y")}
    columns["tags"] = (np.where(columns["value"][0] > 0, "up", "down"), series)
    flat = {name: values for name, (values, _) in columns.items()}
    flat |= {f"{name}_lengths": lengths for name, (_, lengths) in columns.items()}
    text = ["".join(rng.choice(list("abcde"), n)) for n in rng.integers(3, 9, N)]
    np.savez(place / "pairs.npz", label=np.arange(N) % 2, size=rng.normal(size=N), text=text, **flat)
    return place


def recipe(folder, **changes):
    made = Recipe.from_dict(
        {
            "data": {"kind": "arrays", "files": [str(folder / "pairs.npz")], "split": {"valid": 0.25, "test": 0.0}},
            "tokens": {"series": {"kind": "readings"}, "spots": {"kind": "spots"}},
            "model": {"kind": "pair", "dim": 8, "depth": 1, "heads": 2, "dropout": 0.1, "position": "sinusoidal"}
            | {"spots": {"depth": 2, "position": "none"}},
            "objective": {"kind": "classify", "stream": "series"},
            "train": {"steps": 5, "batch": 8, "warmup": 1, "save_every": 2, "evaluate_every": 2, "device": "cpu"},
        }
    )
    return with_changes(made, changes)


@pytest.fixture(scope="module")
def run(folder):
    return go(recipe(folder), folder / "run")


def poisoned(table, *names):
    """The table with other values in these columns."""
    return {
        name: Lists(-1 - 3 * column.values, column.lengths) if name in names else column
        for name, column in table.items()
    }


def test_the_toys_keep_the_promises_of_tokens(folder):
    table = Assembly.open(recipe(folder)).splits.sources["train"].load(0)
    for tokens in (Readings(kind="readings"), Readings(kind="readings", window=3), Spots(kind="spots")):
        assert check_tokens(tokens, table) == []


def test_it_trains_and_resumes_bit_for_bit(folder, run, tmp_path):
    reference = left(run)

    def work():
        with at_step(3, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            go(recipe(folder), tmp_path / "run")

    assert fate(start(work)) == -signal.SIGKILL
    assert left(tmp_path / "run")[1]["step"] == 2
    assert_same(go(recipe(folder), tmp_path / "run"), reference)


def test_a_stream_that_is_not_there_or_not_named_is_refused(folder, tmp_path):
    for stream, words in (("", "series, spots"), ("spot", "spots")):
        with refuses(words, key="objective.stream"):
            go(recipe(folder, objective__stream=stream), tmp_path / "run")


@pytest.mark.parametrize("stream", ["series", "spots"])
def test_answers_depend_on_both_streams(folder, run, stream, tmp_path):
    if stream != "series":
        run = go(recipe(folder, objective__stream=stream), tmp_path / "run")
    table = run.samples("valid").source.load(0)
    judged, said = run.evaluate("valid"), run.predict(table)
    np.testing.assert_allclose(judged.outputs["probabilities"], said["probabilities"], atol=1e-6)
    for other in (("value",), ("x", "y")):
        changed = run.predict(poisoned(table, *other), watch=run.assembly.compare(accept_drift=True))
        assert np.abs(changed["probabilities"] - said["probabilities"]).max() > 1e-5


def test_beginnings_are_those_of_the_stream_that_is_asked_about(run):
    whole = run.samples("valid")
    first = run.assembly.samples(whole.source, until=2).all()
    assert first.streams["series"].lengths.tolist() == [3] * 10  # places 0, 1 and 2
    np.testing.assert_array_equal(first.streams["spots"].lengths, whole.all().streams["spots"].lengths)


def test_either_stream_has_vectors(run):
    table = run.samples("valid").source.load(0)
    assert embed(run, table).vectors.shape == (10, 8)
    np.testing.assert_array_equal(embed(run, table).vectors, embed(run, table, stream="series", pool="mean").vectors)
    assert not np.allclose(embed(run, table, stream="spots").vectors, embed(run, table).vectors)
    with refuses("spots", key="objective.stream"):
        embed(run, table, stream="spot")


def test_attention_is_found_by_stream(run):
    data = run.data()
    batch = data.dataset("valid").batch(np.arange(4))
    n, m = (batch.streams[name].lengths for name in ("series", "spots"))
    series, spots = (attention_maps(run.step, data, batch, name) for name in ("series", "spots"))
    assert list(series.watch.attention) == ["blocks.0.attention"]
    assert list(spots.watch.attention) == ["blocks.0.attention", "blocks.1.attention"]
    assert {name: list(maps) for name, maps in series.between.items()} == {"spots": ["attention"]}
    weights = series.between["spots"]["attention"]
    assert weights.shape == (4, 2, n.max(), m.max())
    assert (weights[0, :, :, m[0] :] == 0).all()
    assert spots.between["series"]["attention"].shape == (4, 2, m.max(), n.max())
    record = Watch()
    run.model.encode(
        prepare(batch, data.tokens, data.objective, SampleRandom(0, -1, batch.ids), False).inputs().view("series"),
        record,
    )
    torch.testing.assert_close(record.attention["series to spots"], weights)


def test_it_is_inspected_and_reported_stream_by_stream(run, tmp_path):
    drawn = {path.stem for path in inspect_run(run, tmp_path, samples=2)}
    expected = {"sample-1", "sample-2", "heads", "reach", "reasons-1", "faithfulness"}
    assert drawn >= {f"{stream}-{name}" for stream in ("series", "spots") for name in expected}
    assert drawn >= {"series-heads-to-spots", "spots-heads-to-series", "series-positions"}
    assert "spots-positions" not in drawn
    text = run.report().read_text()
    assert "series: Attention to spots" in text
    found = json.loads((run.path / "scores.json").read_text())["streams"]
    assert found["series"].keys() >= {"reach", "positions", "faithfulness"}
    assert found["spots"].keys() >= {"reach", "faithfulness"}


def test_leaving_out_tokens_of_a_stream_leaves_the_others(run):
    data = run.data()
    batch = data.dataset("valid").all()
    own, other = (faithfulness(run.step, data, batch, [0.5], stream=name) for name in ("series", "spots"))
    assert set(own.change) == {"attention", "rollout", "attribution", "gradient", "least attended", "random"}
    assert set(other.change) == {"gradient", "random"}
    assert all((found.change["gradient"] > 0).all() for found in (own, other))


def test_its_onnx_graph_has_inputs_named_by_stream(run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    export_model(run, tmp_path / "out", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    names = ["series.value", "series.valid", "spots.xy", "spots.valid"]
    assert [one.name for one in session.get_inputs()] == names
    about = json.loads((tmp_path / "out" / "preprocessing.json").read_text())
    assert about["tokens"]["spots"]["kind"] == "spots"
    assert about["padding"]["series"]["mask"] == "series.valid"
    batch = run.samples("valid").all()
    inputs = batch.inputs().streams
    given = {
        f"{stream}.{name}": column.numpy() for stream, one in inputs.items() for name, column in one.columns.items()
    }
    given |= {f"{stream}.valid": one.valid.numpy() for stream, one in inputs.items()}
    (answers,) = session.run(["probabilities"], given)
    np.testing.assert_allclose(answers, run.evaluate("valid").outputs["probabilities"], atol=1e-5)


def test_masked_pretraining_hides_in_the_named_stream_alone(folder, tmp_path):
    objective = {"kind": "masked", "stream": "series", "mask_ratio": 0.4}
    run = go(recipe(folder, objective=objective), tmp_path / "run")
    assert run.evaluate("valid").scores["loss"] > 0
    data = run.data()
    raw = data.dataset("valid").all()

    def ready(batch):
        return prepare(batch, data.tokens, data.objective, SampleRandom(0, 3, raw.ids), training=False)

    def said(batch):
        view = ready(batch).inputs().view("series")
        return run.model.readout["series"].predict(run.model.tokens(run.model.encode(view)))["value"]

    seen = ready(raw)
    hidden, expected = seen.streams["series"].columns["hidden"], said(raw)
    assert "hidden" not in seen.streams["spots"].columns
    assert 0 < seen.count == hidden.sum() < len(hidden)
    for poison in (1e6, np.nan, np.inf):
        values = np.where(hidden[:, None], poison, raw.streams["series"].columns["value"])
        assert torch.equal(
            said(raw.with_columns(Stream({"value": values}, raw.streams["series"].lengths), "series")), expected
        )
    moved = raw.streams["spots"].with_columns(xy=1 + raw.streams["spots"].columns["xy"])
    assert not torch.allclose(said(raw.with_columns(moved, "spots")), expected)  # the other stream is seen
    shown, answers = predict_masked(run.step, data, raw)
    assert list(shown.streams) == ["series"]
    np.testing.assert_array_equal(np.isfinite(answers["value"][:, 0]), shown.stream.columns["asked"])
    assert "series-hidden" in {path.stem for path in inspect_run(run, tmp_path / "drawn", samples=2)}


def test_tokens_of_the_named_stream_are_tagged(folder, tmp_path):
    tagged = {"kind": "tag", "stream": "series", "label": "tags"}
    run = go(recipe(folder, objective=tagged, train__steps=40, train__learning_rate=0.02), tmp_path / "run")
    assert run.evaluate("valid").scores["token_accuracy"] > 0.8
    table = run.samples("valid").source.load(0)
    assert [len(tags) for tags in run.predict(table)["tags"]] == table["value"].lengths.tolist()


def test_windows_of_a_stream_have_the_other_one_whole(folder, tmp_path):
    run = go(
        recipe(
            folder, tokens__series__window=3, objective={"kind": "regress", "stream": "series", "targets": ["size"]}
        ),
        tmp_path / "run",
    )
    whole, cut = run.samples("valid"), run.data().dataset("valid").all()
    assert cut.streams["series"].lengths.max() == 3
    assert len(cut) == (-(-whole.whole_lengths // 3)).sum()
    table = whole.source.load(0)
    np.testing.assert_array_equal(cut.streams["spots"].lengths, table["x"].lengths[cut.samples["window of"]])
    assert len(run.predict(table)["mean"]) == len(run.evaluate("valid").outputs["mean"]) == 10
    assert embed(run, table, stream="spots").vectors.shape == (10, 8)


def test_options_differ_by_stream(folder, tmp_path):
    made = recipe(folder, model__spots={"trunk": "deep_sets"})
    run = go(made, tmp_path / "run")
    assert isinstance(run.model.trunk["spots"], DeepSets)
    assert Run(tmp_path / "run").recipe == run.recipe
    assert "spots-sample-1" in {path.stem for path in inspect_run(run, tmp_path / "drawn", samples=1)}


def test_a_text_is_written_with_the_other_stream_beside_it(folder, tmp_path):
    tokens = {"text": {"kind": "text", "context": 12, "end": True}, "spots": {"kind": "spots"}}
    model = {"kind": "caption", "dim": 8, "depth": 1, "heads": 2}
    source = {**recipe(folder).to_dict(), "tokens": tokens, "model": model}
    made = Recipe.from_dict({**source, "objective": {"kind": "next_token", "stream": "text"}})
    run = go(made.change({"train.learning_rate": 0.05, "train.steps": 20}), tmp_path / "run")
    text, model = run.assembly.tokens["text"], run.model
    written = set()
    for place in (-9.0, 0.0, 9.0):
        beside = {name: Lists(np.array([place, 1.0]), np.array([2])) for name in ("x", "y")}
        spots = run.assembly.tokens["spots"].tokenize(beside)
        ids = text.encode("ab").tolist()
        for _ in range(6):
            batch = Batch({"text": Stream({"ids": np.array(ids)}, np.array([len(ids)])), "spots": spots})
            logits = model.readout["text"](model.decode(batch.inputs().view("text"))[0, -1])
            allowed = np.array(text.writable) | (np.arange(len(logits)) == text.end_id)
            ids.append(int(logits.masked_fill(~torch.as_tensor(allowed), -torch.inf).argmax()))
        expected = text.decode(ids[2 : ids.index(text.end_id) if text.end_id in ids else None])
        options = {"beside": beside, "temperature": 0.0}
        assert "".join(generate(run, "ab", 6, **options)) == expected
        assert generate_many(run, ["ab", "c", "ab"], 6, **options)[::2] == [expected] * 2
        assert len(generate_many(run, ["ab", "c"], 3, beside=beside, beam=2)) == 2
        written.add(expected)
    assert len(written) > 1
    with refuses("spots", hint="beside"):
        next(generate(run, "ab", 3))
