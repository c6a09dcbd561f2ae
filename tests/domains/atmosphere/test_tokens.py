"""Cubes: cut and put together, missing values, and tasks that are masks."""

import numpy as np
import pytest
import torch

from sciformer.data.batch import Batch
from sciformer.data.dataset import Dataset
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.data.source import Memory
from sciformer.domains.atmosphere.masks import coarse_cubes
from sciformer.domains.atmosphere.tokens import Cubes
from sciformer.models.encoder import Encoder
from sciformer.objectives.base import Step
from sciformer.objectives.masked import Masked
from tests.domains.atmosphere.neighbourhoods_table import neighbourhoods
from tests.errors import refuses

CUBE = (2, 2, 3)


def fitted(table, **keys):
    tokens = Cubes(kind="cubes", **{"field": "t", "cube": CUBE, **keys})
    tokens.fit([table])
    return tokens


def hidden(table, tokens, **keys):
    """The raw tokens after masking."""
    batch = Batch({"tokens": tokens.tokenize(table)}, {}, np.arange(len(table["t"])))
    objective = Masked(kind="masked", **keys)
    return objective.corrupt(batch, {"tokens": tokens}, SampleRandom(0, 0, batch.ids)).stream


def test_cubes_are_the_values_in_their_places():
    table = neighbourhoods(levels=2, missing=False)
    tokens = fitted(table)
    stream = tokens.tokenize(table)
    assert stream.lengths.tolist() == [2 * 3 * 2 * 2] * 5
    for token in (0, 13, 24 + 7):
        sample, (level, time, row, column) = token // 24, stream.columns["at"][token]
        box = table["t"][sample, level, 2 * time : 2 * time + 2, 2 * row : 2 * row + 2, 3 * column : 3 * column + 3]
        np.testing.assert_array_equal(stream.columns["value"][token], box.ravel())
    maps = tokens.maps(stream.columns["value"][:24], (2, 6, 4, 6))
    np.testing.assert_array_equal(maps, table["t"][0])


def test_normalised_values_are_anomalies_and_restored_exactly():
    table = neighbourhoods(missing=False)
    tokens = fitted(table)
    stream = tokens.tokenize(table)
    normal = tokens.normalise(stream)
    expected = (table["t"] - table["t climatology"]) / 2
    np.testing.assert_allclose(
        tokens.maps(normal.columns["value"][:12], (1, 6, 4, 6))[0], expected[0, 0], rtol=1e-4, atol=1e-5
    )
    back = tokens.restore_values(stream, {"value": normal.columns["value"], "std": np.ones((60, 12))})
    np.testing.assert_allclose(back["value"], stream.columns["value"], rtol=1e-6)
    assert (back["std"] == 2).all()


def test_cubes_that_do_not_fit_are_padded_with_missing_values():
    table = neighbourhoods(times=5, rows=3, columns=5, missing=False)
    tokens = fitted(table)
    stream = tokens.tokenize(table)
    assert tokens.grid_shape == (1, 3, 2, 2)
    np.testing.assert_array_equal(tokens.maps(stream.columns["value"][:12], (1, 5, 3, 5)), table["t"][0])
    assert int(np.isfinite(stream.columns["value"][:12]).sum()) == 5 * 3 * 5
    known = tokens.normalise(stream).columns
    assert np.isfinite(known["value"]).all()
    assert known["missing"].any()


# Missing values


def test_missing_values_have_no_loss_and_missing_cubes_are_hidden_but_not_asked_for():
    table = neighbourhoods()
    tokens = fitted(table)
    stream = hidden(table, tokens, mask_ratio=1.0)
    gone = ~np.isfinite(stream.columns["target value"]).any(1)
    assert gone.sum() > 0
    assert not stream.columns["asked"][gone].any()
    assert stream.columns["asked"][~gone].all()
    some = hidden(table, tokens, mask_ratio=0.1)
    assert tokens.normalise(some).columns["hidden"][gone].all()
    readout = tokens.readout(8, tokens.embedding(8))
    vectors = torch.randn(2, 8)
    target = torch.randn(2, 12)
    target[0, 3] = torch.nan
    target[1] = torch.nan
    loss = readout.loss(vectors, {"value": target})
    kept = [place for place in range(12) if place != 3]
    expected = ((readout(vectors)[0, 0] - target[0])[kept] ** 2).mean()
    torch.testing.assert_close(loss, torch.stack([expected, torch.zeros(())]))


def test_a_value_is_missing_whatever_stands_there_in_the_climatology():
    table = neighbourhoods()
    tokens = fitted(table)
    one = tokens.normalise(tokens.tokenize(table))
    other = {**table, "t climatology": np.where(np.isnan(table["t"]), 1e6, table["t climatology"]).astype(np.float32)}
    two = tokens.normalise(tokens.tokenize(other))
    for name in ("value", "missing", "info", "at"):
        np.testing.assert_array_equal(one.columns[name], two.columns[name])


# Masks


def hours_of(stream, tokens, flag):
    """Hours of the neighbourhood whose cubes have this mark, by sample."""
    columns = stream.columns
    first = np.round(columns["time"][:, 0] - columns["time"][:, 2]).astype(int)
    return [
        sorted({int(hour) + step for hour in first[columns[flag] & (stream.sample == i)] for step in range(2)})
        for i in range(5)
    ]


@pytest.mark.parametrize(
    ("mask", "length", "hours"), [("forecast", 2, [4, 5]), ("forecast", 4, [2, 3, 4, 5]), ("between", 3, [2, 3])]
)
def test_masks_with_a_length_hide_those_hours(mask, length, hours):
    table = neighbourhoods(missing=False)
    tokens = fitted(table)
    stream = hidden(table, tokens, mask=mask, mask_length=length)
    assert hours_of(stream, tokens, "hidden") == [hours] * 5
    np.testing.assert_array_equal(stream.columns["hidden"], stream.columns["asked"])


def test_masks_without_a_length_hide_a_share():
    table = neighbourhoods(missing=False)
    tokens = fitted(table, cube=(1, 1, 1))
    for mask, ratio, axes in (("forecast", 0.5, 1), ("between", 0.34, 1), ("inpaint", 0.25, (2, 3))):
        stream = hidden(table, tokens, mask=mask, mask_ratio=ratio)
        at = stream.columns["at"][stream.columns["hidden"]]
        share = stream.columns["hidden"].mean()
        assert share == pytest.approx(ratio, abs=0.05)
        if axes == 1:
            assert len(set(at[:, 1])) == round(6 * ratio)
        else:
            assert set(at[:, 2]) == {1, 2}
            assert set(at[:, 3]) == {1, 2, 3}
    assert hidden(table, tokens, mask="bias").columns["hidden"].all()


def test_the_share_of_random_masks_differs_between_samples():
    table = neighbourhoods(count=40, missing=False)
    tokens = fitted(table)
    stream = hidden(table, tokens, mask_ratio=(0.1, 0.5))
    counts = np.bincount(stream.sample, stream.columns["asked"]) / stream.lengths
    assert counts.min() >= 1 / 12
    assert counts.max() <= 0.5
    assert len(set(counts.tolist())) > 3


def test_downscaling_shows_block_means_and_hides_nothing():
    table = neighbourhoods(rows=4, columns=4)
    tokens = fitted(table, cube=(1, 4, 4))
    stream = hidden(table, tokens, mask="downscale", coarse_factor=2)
    assert not stream.columns["hidden"].any()
    known = np.isfinite(stream.columns["target value"]).any(1)
    assert (stream.columns["asked"] == known).all()
    block = table["t"][0, 0, 0, :2, :2]
    assert stream.columns["value"][0].reshape(4, 4)[0, 1] == pytest.approx(block.mean(), rel=1e-6)
    first = table["t"][0, 0, 1, 2:, 2:]  # with a missing value
    assert stream.columns["value"][1].reshape(4, 4)[3, 3] == pytest.approx(np.nanmean(first), rel=1e-6)
    with refuses(3, key="objective.coarse_factor"):
        coarse_cubes(stream.columns["value"], (1, 4, 4), 3)
    poisoned = {**table, "t": table["t"].copy()}
    poisoned["t"][:, :, :, 0, 0] += 3
    poisoned["t"][:, :, :, 0, 1] -= 3  # the mean of the block stays
    again = hidden(poisoned, tokens, mask="downscale", coarse_factor=2)
    np.testing.assert_allclose(stream.columns["value"], again.columns["value"], rtol=1e-6)


def test_coarse_and_noisy_cubes_are_a_share_of_the_masked_ones():
    table = neighbourhoods(count=60, rows=4, columns=4, missing=False)
    tokens = fitted(table, cube=(1, 2, 2))
    stream = hidden(table, tokens, mask_ratio=0.5, random=0.2, coarse=0.3, coarse_factor=2)
    columns = stream.columns
    asked = columns["asked"]
    flat = np.ptp(columns["value"], 1) < 1e-3
    assert (asked & columns["hidden"]).sum() / asked.sum() == pytest.approx(0.5, abs=0.06)
    assert (asked & flat & ~columns["hidden"]).sum() / asked.sum() == pytest.approx(0.3, abs=0.06)
    np.testing.assert_array_equal(columns["value"][~asked], columns["target value"][~asked])


BAD = {
    "a share of a cube": ({"mask": "forecast", "mask_length": 3}, "objective.mask_length"),
    "all hours": ({"mask": "forecast", "mask_length": 8}, "objective.mask_length"),
    "a gap without a step": ({"mask": "between", "mask_length": 1}, "objective.mask_length"),
    "a mask without length": ({"mask": "inpaint", "mask_length": 3}, "objective.mask_length"),
    "a length without a mask": ({"mask_length": 3}, None),
    "an unknown mask": ({"mask": "forcast"}, None),
    "too many shares": ({"random": 0.6, "coarse": 0.6}, "objective.random"),
}


@pytest.mark.parametrize("case", BAD)
def test_impossible_masks_are_refused(case):
    keys, key = BAD[case]
    table = neighbourhoods()
    with refuses(key=key):
        hidden(table, fitted(table), **keys)


@pytest.mark.parametrize("keys", [{"members": 4}, {"loss": "crps", "members": 1}, {"loss": "gaussian", "members": 3}])
def test_members_must_fit_to_the_loss(keys):
    with pytest.raises(ValueError, match=r"tokens\.members"):
        Cubes(kind="cubes", field="t", **keys)


# Exactness


def step_of(tokens, objective):
    torch.manual_seed(0)
    section = Encoder(kind="encoder", dim=16, depth=2, heads=2)
    return Step(section.build({"tokens": tokens}, objective), objective).eval()


def answers(step, tokens, stream):
    view = Batch({"tokens": tokens.normalise(stream)}, aside={"tokens": tokens.host_columns}).inputs().stream
    with torch.no_grad():
        return step.model.readout.predict(step.model.tokens(step.model.encode(view)))["value"]


def test_forecast_equals_hiding_the_same_cubes_by_hand():
    table = neighbourhoods()
    tokens = fitted(table)
    step = step_of(tokens, Masked(kind="masked"))
    masked = hidden(table, tokens, mask="forecast", mask_length=2)
    raw = tokens.tokenize(table)
    last = (raw.columns["at"][:, 1] == 2) & np.isfinite(raw.columns["value"]).any(1)
    value = raw.columns["value"].copy()
    value[last] = 0
    by_hand = raw.with_columns(value=value, hidden=last)
    assert torch.equal(answers(step, tokens, masked), answers(step, tokens, by_hand))


@pytest.mark.parametrize("mask", ["forecast", "between", "inpaint", "bias", ""])
def test_a_change_of_hidden_values_changes_no_answer(mask):
    table = neighbourhoods()
    tokens = fitted(table)
    step = step_of(tokens, Masked(kind="masked"))
    first = hidden(table, tokens, mask=mask, mask_ratio=0.4)
    flags = tokens.cutting.assemble(
        np.repeat(first.columns["hidden"][:, None], tokens.size, 1).reshape(5, -1, tokens.size), (6, 4, 6)
    )[..., 0]
    poisoned = {**table, "t": np.where(flags[:, None], table["t"] * -7 + 3, table["t"]).astype(np.float32)}
    second = hidden(poisoned, tokens, mask=mask, mask_ratio=0.4)
    assert not np.array_equal(first.columns["target value"], second.columns["target value"], equal_nan=True)
    assert torch.equal(answers(step, tokens, first), answers(step, tokens, second))


@pytest.mark.parametrize("loss", ["squared", "gaussian", "crps", "statistical"])
def test_training_lowers_every_loss(loss):
    table = neighbourhoods(count=8)
    table["t"] = (table["t climatology"] + 2 * np.sin(table["hours"])[:, None, :, None, None]).astype(np.float32)
    tokens = {"tokens": fitted(table, loss=loss)}
    objective = Masked(kind="masked", mask_ratio=0.3)
    dataset = Dataset(Memory(table), tokens)
    step = step_of(tokens["tokens"], objective).train()
    batch = prepare(dataset.all(), tokens, objective, SampleRandom(0, 0, np.arange(8)), True)
    optimizer = torch.optim.Adam(step.parameters(), 3e-3)
    losses = []
    for _ in range(60):
        total, _ = step(batch.inputs())
        losses.append(total.item() / batch.count)
        optimizer.zero_grad()
        (total / batch.count).backward()
        optimizer.step()
    assert losses[-1] < losses[0] - 0.2


def test_several_fields_are_counted_without_reading_them():
    """Data larger than memory are not read to know how many tokens they have."""

    class Pieces:
        def __init__(self):
            self.sizes, self.loaded = [5, 5, 5], []

        def load(self, piece):
            self.loaded.append(piece)
            table = neighbourhoods(missing=False, seed=piece)
            return {**table, **{name.replace("t", "u", 1): table[name] for name in table if name[:2] in ("t", "t ")}}

        def known_column(self, name, lists=False):
            return np.arange(15) if name == "neighbourhood" else None

    source = Pieces()
    table = source.load(0)
    tokens = {"t": fitted(table), "u": fitted(table, field="u", cube=(2, 4, 6))}
    source.loaded.clear()
    dataset = Dataset(source, tokens)
    assert len(dataset) == 15
    assert dataset.lengths.tolist() == [12 + 3] * 15
    assert dataset.widths.tolist() == [12] * 15
    assert source.loaded == []
    batch = dataset.batch(np.array([7, 1]))
    assert sorted(source.loaded) == [0, 1]
    assert {name: stream.lengths.tolist() for name, stream in batch.streams.items()} == {"t": [12, 12], "u": [3, 3]}
