"""The benchmarks of light curves: folds, periodogram, filters, peaks of spectra, the matched filter."""

import argparse
from pathlib import Path

import numpy as np
import pytest

import lightcurves_classic as classic
import lightcurves_data as data
from lightcurves import PARTS
from sciformer.domains.lightcurves.simulate.lightcurves import LightCurves
from sciformer.domains.lightcurves.simulate.oscillators import STEP_DAYS
from tuning import Tuning

LABELS = np.repeat(["EC", "MIRA", "RRC"], [40, 31, 12])


def test_folds_judge_every_object_once_and_share_the_classes():
    fold = data.folds(LABELS)
    assert np.array_equal(fold, data.folds(LABELS))
    for label in np.unique(LABELS):
        counts = np.bincount(fold[label == LABELS], minlength=5)
        assert counts.max() - counts.min() <= 1
    tests = [data.parts(LABELS, one)["test"] for one in range(5)]
    assert sorted(np.concatenate(tests)) == list(range(len(LABELS)))


def test_what_is_pretrained_is_what_few_labels_begin_with(tmp_path):
    options = argparse.Namespace(rates=[1e-3], seeds=[0, 1], folds=5, paired=True, tiny=False, out=tmp_path)
    options.sizes, options.ways = ["20"], ["pretrained", "supervised", "folded_supervised"]
    options.number, options.epochs, options.steps, options.workers = 60_000, 2, 0, 0
    options.compile, options.device, options.pretrain_rate, options.widen = False, "", 1e-3, 0
    few = Tuning(options, "fewshot", PARTS["fewshot"], "x")
    bodies = Tuning(options, "pretrain", PARTS["pretrain"], "x").tasks()
    runs = few.runs(("20", "transformer", "pretrained"))
    begun = set()
    for key in few.groups:
        for fold, seed in runs:
            begun.add(Path(PARTS["fewshot"].recipe(few.task(key, fold, 1e-3, seed)[1]).train.init_from).name)
    assert begun == set(bodies)
    folded = PARTS["pretrain"].recipe(bodies["pretrain-all-folded-supervised-0"])
    assert (folded.tokens.periods, folded.data.number, folded.train.steps) == (2, 30_000, 30_000 * 4 // 256)


@pytest.mark.parametrize("widen", [0, 1])
def test_rates_are_tried_once_then_all_seeds_at_the_best(tmp_path, widen):
    options = argparse.Namespace(rates=[1e-3, 1e-2], seeds=[0, 1], folds=2, paired=False, tiny=False, out=tmp_path)
    options.models, options.compile, options.device, options.widen = ["gru"], False, "", widen
    options.number = options.epochs = options.steps = options.workers = 0
    tuning = Tuning(options, "asas", PARTS["asas"], "x")
    scores = {1e-4: 0.5, 1e-3: 0.7, 1e-2: 0.6}
    left, done = dict(tuning.tasks()), []
    while left:
        name, task = left.popitem()
        done.append(name)
        keys = ("fold", "rate", "seed")
        left |= tuning.then(name, {key: task[key] for key in keys} | {"valid": {"macro_f1": scores[task["rate"]]}})
    others = [f"asas-all-gru-scratch-{fold}-0.001-{seed}" for fold, seed in ((0, 1), (1, 0), (1, 1))]
    grid = [f"asas-all-gru-scratch-0-{rate}-0" for rate in ("0.001", "0.01")]
    assert sorted(done) == sorted([*grid, *others, *(["asas-all-gru-scratch-0-0.0001-0"] if widen else [])])


def test_the_peak_of_a_spectrum_gives_the_gravity():
    stars = LightCurves(what="oscillators", classes=["giant"], points=2000, gaps=False).make(40)
    y = 1000 * stars["value"].values.reshape(40, -1)
    found = classic.peak_frequency(y, STEP_DAYS)
    assert np.median(np.abs(found / stars["numax"] - 1)) < 0.08
    scaling = classic.Scaling(found[:30], stars["logg"][:30], 1)
    assert np.median(np.abs(scaling(found[30:]) - stars["logg"][30:])) < 0.06


def test_the_matched_filter_is_normal_in_noise_and_finds_signals():
    rng = np.random.default_rng(0)
    template = np.sin(np.linspace(0, 30, 256) ** 1.3) * np.hanning(256)
    template *= 4 / np.linalg.norm(template)
    noise = rng.standard_normal((2000, 256))
    alone, beside = (classic.matched(some, np.tile(template, (2000, 1))) for some in (noise, noise + template))
    assert (alone.mean(), alone.std()) == (pytest.approx(0, abs=0.1), pytest.approx(1, abs=0.1))
    assert beside.mean() == pytest.approx(4, abs=0.1)
    assert classic.efficiency(alone, alone) == pytest.approx(0.01, abs=0.001)
    assert classic.efficiency(beside, alone) == pytest.approx(0.95, abs=0.02)
    shifted = np.roll(template, 40)[None]
    assert classic.bank(shifted, template[None]) == pytest.approx([4], rel=0.05)
    assert classic.bank(template[None], template[None], shifts=False) == pytest.approx([4])
    assert classic.overlap(shifted, shifted * 3) == pytest.approx([1])
