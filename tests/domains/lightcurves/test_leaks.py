"""Nothing hidden leaks: another value under the mask changes no input and no prediction, and padding enters nothing."""

import itertools

import numpy as np
import pytest
import torch

from sciformer.data.batch import Batch
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.models.encoder import Encoder
from sciformer.objectives.base import Objective
from sciformer.objectives.masked import Masked
from tests.domains.lightcurves.curves_table import curves, fitted, regular
from tests.models.sections import section
from tests.objectives.examples import frozen_step_of, shaken

SIZES = {"kind": "encoder", "dim": 8, "depth": 2, "heads": 2}
CASES = {
    "plain": ({}, curves()),
    "astromer": ({"errors": "weight", "scale": "none"}, curves((30, 2, 12))),
    "bands": (
        {"errors": "both", "weighting": "chi2", "times": "both", "centre": "median", "scale": "deviation"},
        curves(bands=("g", "r"), limits=True),
    ),
    "own": ({"by_band": True, "gaussian": True, "errors": "both"}, curves(bands=("g", "r", "i"))),
    "beside": ({"extra": ["redshift", "field"], "gaussian": True}, curves(extra=True, clean=True)),
    "patches": ({"patch": 4, "errors": "both", "gaussian": True, "weighting": "chi2"}, regular()),
    "differences": ({"times": "differences", "scale": "deviation"}, curves()),
}
LAYOUTS = [{}, {"packed": True}, {"multiple": 16}]


def setting(case, random=0.2, same=0.1):
    fields, table = CASES[case]
    tokens, objective = fitted(table, **fields), Masked(kind="masked", mask_ratio=0.5, random=random, same=same)
    return tokens, objective, frozen_step_of(({"tokens": tokens}, objective), depth=2), tokens.tokenize(table)


def ready(tokens, objective, stream):
    batch = Batch({"tokens": stream}, ids=np.arange(len(stream)))
    return prepare(batch, {"tokens": tokens}, objective, SampleRandom(1, 0, batch.ids), training=False)


def poisoned(stream, where, by):
    columns = {}
    for name in ("value", "error"):
        columns[name] = stream.columns[name].copy()
        columns[name][where] = columns[name][where] * by + 1
    return stream.with_columns(**columns)


def predictions(step, batch, **layout):
    """Inputs and the answers of all tokens that were asked for, in the order of the stream."""
    view = batch.inputs(**layout).stream
    answer = step.model.readout.predict(step.model.tokens(step.model.encode(view)))
    real = view.valid if isinstance(view.valid, torch.Tensor) else slice(None)
    asked = view.columns["asked"][real].bool()
    inputs = {name: column[real] for name, column in view.columns.items() if not name.startswith("target ")}
    return inputs, {name: column[real][asked] for name, column in answer.items()}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_a_hidden_value_changes_no_input_and_no_prediction(case, layout):
    tokens, objective, step, stream = setting(case)
    batch = ready(tokens, objective, stream)
    known = batch.stream.columns
    gone = known["hidden"].astype(bool) | ~np.isnan(known["drawn"])  # hidden, or replaced by another
    assert gone.sum() > 3
    assert (~np.isnan(known["drawn"])).any()
    for by in (-7.0, 1e6):
        other = ready(tokens, objective, poisoned(stream, gone, by))
        for (name, one), two in zip(batch.samples.items(), other.samples.values()):
            np.testing.assert_array_equal(one, two, err_msg=name)
        for one, two in zip(predictions(step, batch, **layout), predictions(step, other, **layout)):
            assert one.keys() == two.keys()
            assert [name for name in one if not torch.equal(one[name], two[name])] == []
        assert not np.array_equal(known["target value"], other.stream.columns["target value"])


@pytest.mark.parametrize("case", CASES)
def test_what_is_seen_does_matter(case):
    """The test above would pass for a model that looks at nothing."""
    tokens, objective, step, stream = setting(case, random=0.0)
    batch = ready(tokens, objective, stream)
    seen = ~batch.stream.columns["hidden"].astype(bool) & tokens.maskable(stream)
    other = ready(tokens, objective, poisoned(stream, np.flatnonzero(seen)[1::2], 2.0))
    first, second = (predictions(step, one)[1]["value"] for one in (batch, other))
    assert (first != second).any(dim=-1 if first.dim() > 1 else 0).any()


@pytest.mark.parametrize("case", CASES)
def test_loss_and_predictions_do_not_depend_on_the_layout(case):
    tokens, objective, step, stream = setting(case)
    batch = ready(tokens, objective, stream)
    losses = [step(batch.inputs(**layout))[0] for layout in LAYOUTS]
    found = [predictions(step, batch, **layout)[1] for layout in LAYOUTS]
    for loss, answers in zip(losses[1:], found[1:]):
        torch.testing.assert_close(loss, losses[0], rtol=1e-5, atol=1e-5)
        for name, answer in answers.items():
            torch.testing.assert_close(answer, found[0][name], rtol=1e-4, atol=1e-5)
    alone = [step(batch.take(np.array([row])).inputs())[0] for row in range(len(batch))]
    torch.testing.assert_close(sum(alone), losses[0], rtol=1e-4, atol=1e-4)


POOLS = ["mean", "max", "last", "class_attention", "attention"]


@pytest.mark.parametrize(
    ("trunk", "pool"),
    [("transformer", "class_token"), *itertools.product(["transformer", "gru", "convolution"], POOLS)],
)
def test_padding_enters_no_pooling(trunk, pool):
    table = curves(bands=("g", "r"), extra=True)
    tokens = fitted(table, extra=["redshift"])
    network = shaken(section(Encoder, **SIZES, trunk=trunk, pool=pool).build({"tokens": tokens}, Objective())).eval()
    stream = tokens.normalise(tokens.tokenize(table))
    batch = Batch({"tokens": stream}, aside={"tokens": tokens.host_columns})

    def pooled(junk=0.0, **layout):
        view = batch.inputs(**layout).stream
        if junk:
            for column in view.columns.values():
                column[~view.valid] = int(junk) if column.dtype != torch.float32 else junk
        with torch.no_grad():
            return network.pool(network.encode(view))

    plain = pooled()
    for other in (pooled(multiple=64), pooled(junk=1.0, multiple=64), pooled(packed=True)):
        torch.testing.assert_close(other, plain, rtol=1e-4, atol=1e-5)


def test_targets_are_hidden_values_in_units_of_what_is_seen():
    tokens, objective, _, stream = setting("astromer", random=0.0, same=0.0)
    batch = ready(tokens, objective, stream).stream
    hidden, raw = batch.columns["hidden"].astype(bool), stream.columns["value"].astype(float)
    for row in range(len(stream)):
        mine = batch.sample == row
        middle = raw[mine & ~hidden].mean()
        np.testing.assert_allclose(batch.columns["target value"][mine], raw[mine] - middle, atol=1e-5)
        assert (batch.columns["features"][mine & hidden] == 0).all()


def test_losses():
    """Plain, weighted, and by errors; a Gaussian with and without the errors in its variance."""
    torch.manual_seed(0)
    hidden = torch.randn(6, 8)
    target = {"value": torch.randn(6), "error": torch.rand(6) + 0.1, "weight": torch.rand(6) + 0.1}
    table = curves()

    def readout(**fields):
        tokens = fitted(table, **fields)
        return tokens.readout(8, tokens.embedding(8))

    plain = readout()
    answer = plain.predict(hidden)
    torch.testing.assert_close(plain.loss(hidden, target), target["weight"] * (answer["value"] - target["value"]) ** 2)
    assert (answer["error"] == 0).all()
    for weighting, more in (("minmax", 0), ("chi2", 1)):
        normal = readout(gaussian=True, errors="both", weighting=weighting)
        answer = normal.predict(hidden)
        spread = (answer["error"] ** 2 + more * target["error"] ** 2).sqrt()
        expected = -torch.distributions.Normal(answer["value"], spread).log_prob(target["value"])
        torch.testing.assert_close(normal.loss(hidden, target), target["weight"] * expected)
