"""Supernovae, oscillators, transits and chirps: colours, spectra, depths and the meaning of SNR."""

import numpy as np
import pytest

from sciformer.domains.lightcurves.simulate import chirps, oscillators, supernovae, transits
from sciformer.domains.lightcurves.simulate.lightcurves import LightCurves


def of(column):
    return np.repeat(np.arange(len(column.lengths)), column.lengths)


def test_limits_come_before_the_rise():
    table = LightCurves(what="supernovae", seed=1).make(300)
    row, time, limit = of(table["time"]), table["time"].values, table["limit"].values
    first = np.full(300, np.inf)
    np.minimum.at(first, row[~limit], time[~limit])
    assert np.bincount(row, ~limit).min() >= supernovae.MIN_DETECTIONS
    assert 0.05 < limit.mean() < 0.5
    assert (time - first[row] >= -supernovae.LIMIT_DAYS).all()
    assert np.mean(time[limit] < first[row[limit]]) > 0.5
    assert np.mean(np.bincount(row[limit], minlength=300) > 0) > 0.8
    assert np.median(table["error"].values[~limit]) < 0.15
    np.testing.assert_allclose(table["error"].values[limit], 0.217, atol=0.001)


def test_types_differ_in_time_and_distance():
    table = LightCurves(what="supernovae", seed=2).make(800)
    row, seen = of(table["time"]), ~table["limit"].values
    long, z = {}, {}
    for name in supernovae.CLASSES:
        own = np.flatnonzero(table["label"] == name)
        long[name] = np.median([np.ptp(table["time"].values[seen & (row == i)]) for i in own[:60]])
        z[name] = np.median(table["redshift"][own])
    assert long["SLSN"] > long["II"] > long["Ia"]
    assert z["SLSN"] > 2 * z["Ia"] > 3 * z["II"]
    assert set(table["band"].values) == set("griz")


def test_fluxes_are_the_truth_and_noise():
    table = LightCurves(what="supernovae", seed=3, unit="flux", bands=("g", "r")).make(200)
    assert "limit" not in table
    assert set(table["band"].values) == {"g", "r"}
    pull = (table["value"].values - table["clean"].values) / table["error"].values
    assert pull.std() == pytest.approx(1, abs=0.05)
    assert (table["value"].values < 0).any()


def test_distances_and_the_model_of_the_rise():
    assert supernovae.distance_modulus(np.array([0.05, 0.5])) == pytest.approx([36.7, 42.27], abs=0.05)
    light = supernovae.LightModel(*(np.array([x]) for x in (0.0, 3.0, 20.0, 30.0, 0.5)))
    time = np.linspace(-60, 300, 2000)
    flux = light.at(time)
    assert ((flux >= 0) & np.isfinite(flux)).all()
    assert flux[0] < 1e-6
    assert 0 < time[flux.argmax()] < 20
    late = flux[(time > 100) & (time < 130)]
    assert np.log(late[0] / late[-1]) == pytest.approx(1, abs=0.05)  # falls by e in 30 days


def test_scaling_relations_give_the_sun():
    stars = oscillators.draw_stars("giant", 200, np.random.default_rng(7))
    mass = (stars.numax / 3090) ** 3 * (stars.dnu / 135.1) ** -4 * (stars.heat / 5777) ** 1.5
    assert ((mass > 0.89) & (mass < 2.01)).all()
    gravity = stars.numax / 3090 * np.sqrt(stars.heat / 5777)
    np.testing.assert_allclose(np.log10(gravity) + 4.438, stars.logg)


def test_oscillations_have_their_spectrum():
    table = LightCurves(what="oscillators", seed=1, classes=["giant"], gaps=False).make(128)
    clean = table["clean"].values.reshape(128, oscillators.DEFAULT_POINTS)
    nu = np.fft.rfftfreq(oscillators.DEFAULT_POINTS, oscillators.STEP_DAYS * 0.0864)
    power = np.abs(np.fft.rfft(clean)) ** 2
    ratio, spacing = [], []
    for numax, dnu, one in zip(table["numax"], table["dnu"], power):
        if 20 < numax < 125:
            near, low = np.abs(nu - numax) < 0.5 * numax**0.88 * 0.66, (nu > 1.7 * numax) & (nu < 2.2 * numax)
            ratio.append(one[near].mean() / one[low].mean())
            echo = np.abs(np.fft.rfft(one * (np.abs(nu - numax) < 0.8 * numax**0.88 * 0.66), 1 << 15))
            lag = np.fft.rfftfreq(1 << 15, nu[1])
            window = (lag > 1.5 / dnu) & (lag < 2.5 / dnu)  # degrees 0 and 1 take turns, half a spacing apart
            spacing.append(lag[window][echo[window].argmax()] * dnu / 2)
    assert len(ratio) > 30
    assert np.median(ratio) > 3
    assert np.median(spacing) == pytest.approx(1, abs=0.03)
    scatter = clean.std(1)
    assert np.corrcoef(np.log(scatter), table["logg"])[0, 1] < -0.9


def test_noise_and_gaps_of_regular_series():
    for what in ("oscillators", "transits"):
        table = LightCurves(what=what, seed=2).make(64)
        pull = (table["value"].values - table["clean"].values) / table["error"].values
        assert pull.std() == pytest.approx(1, abs=0.02)
        whole = LightCurves(what=what, seed=2, gaps=False).make(64)
        assert 0.85 < len(table["value"].values) / len(whole["value"].values) < 0.99
        step = whole["time"].values[1]
        np.testing.assert_allclose(np.diff(whole["time"].values[: whole["time"].lengths[0]]), step)
        multiple = table["time"].values / step
        np.testing.assert_allclose(multiple, np.rint(multiple), atol=1e-6)


def test_what_a_planet_covers():
    none = np.zeros(1)
    size = np.array([0.1])
    assert transits.occulted_share(np.array([0.0]), size, none, none) == pytest.approx(0.01)
    assert transits.occulted_share(np.array([1.2]), size, none, none) == 0
    half = transits.occulted_share(np.array([1.0]), size, none, none)[0]
    assert 0.004 < half < 0.005  # the edge of the star is curved
    for u1, u2 in ((0.4, 0.2), (0.2, 0.3)):
        limb = np.array([u1]), np.array([u2])
        middle = transits.occulted_share(np.array([0.0]), size, *limb)
        assert middle == pytest.approx(0.01 / (1 - u1 / 3 - u2 / 6))
        assert transits.occulted_share(np.array([0.85]), size, *limb) < middle


def test_transits_stand_where_they_are_told():
    table = LightCurves(what="transits", seed=3, gaps=False).make(128)
    clean = table["clean"].values.reshape(128, -1)
    time = table["time"].values[: clean.shape[1]]
    planet = table["label"] == "transit"
    assert np.isnan(table["period"][~planet]).all()
    assert (table["depth"][~planet] == 0).all()
    deep = np.flatnonzero(planet & (table["depth"] > 8))
    assert len(deep) > 3
    for row in deep:
        phase = (time - table["epoch"][row]) / table["period"][row]
        away = np.abs(phase - np.rint(phase)) * table["period"][row]
        inside, outside = away < 0.3 * table["duration"][row], away > 0.6 * table["duration"][row]
        steps = np.abs(np.diff(clean[row]))
        assert steps[outside[1:] & outside[:-1]].max() < 0.3 * table["depth"][row]
        assert np.median(clean[row][outside]) - np.median(clean[row][inside]) > 0.5 * table["depth"][row]


def test_snr_is_that_of_the_matched_filter():
    table = LightCurves(what="signals", seed=1, snr=(8.0, 30.0)).make(256)
    clean, value = (table[name].values.reshape(256, -1).astype(float) for name in ("clean", "value"))
    loud = table["label"] == "signal"
    white_clean, white_value = (chirps.whiten_series(part[loud]) for part in (clean, value))
    own = np.sqrt((white_clean**2).sum(1))
    np.testing.assert_allclose(own, table["snr"][loud], rtol=1e-3)
    assert ((own > 7.9) & (own < 30.1)).all()
    assert (table["snr"][~loud] == 0).all()
    assert not clean[~loud].any()
    filtered = (white_value * white_clean).sum(1) / own - own  # unit normal
    assert filtered.std() == pytest.approx(1, abs=0.2)
    assert abs(filtered.mean()) < 0.35


def test_noise_has_the_spectrum_of_the_detector():
    table = LightCurves(what="signals", seed=2, classes=["noise"]).make(256)
    value = table["value"].values.reshape(256, -1)
    nu = np.fft.rfftfreq(value.shape[1], chirps.STEP_SECONDS)
    power = (np.abs(np.fft.rfft(value)) ** 2).mean(0) * 2 * chirps.STEP_SECONDS / value.shape[1]
    band = np.isfinite(chirps.noise_power(nu))
    ratio = power[band] / chirps.noise_power(nu)[band]
    assert ratio.mean() == pytest.approx(1, abs=0.01)
    assert ratio.std() < 0.1
    assert (power[~band] < 1e-6).all()
    amplitude = np.sqrt(chirps.noise_power(np.array([1e-3, 5e-3, 1.0]))[:2]) * chirps.STRAIN_UNIT
    assert amplitude == pytest.approx([1e-19, 1.1e-20], rel=0.5)  # of LISA, per root Hz


def test_white_series_are_the_same_divided_by_the_noise():
    plain, white = (LightCurves(what="signals", seed=3, white=white).make(64) for white in (False, True))
    for name in ("value", "clean"):
        expected = chirps.whiten_series(plain[name].values.reshape(64, -1).astype(float))
        np.testing.assert_allclose(white[name].values.reshape(64, -1), expected, atol=2e-3)
    clean = white["clean"].values.reshape(64, -1).astype(float)
    np.testing.assert_allclose(np.sqrt((clean**2).sum(1)), white["snr"], rtol=1e-3, atol=1e-6)
    assert (white["value"].values - white["clean"].values).std() == pytest.approx(1, abs=0.01)


def test_a_chirp_rises_in_frequency_and_stops():
    time = np.arange(4096) * chirps.STEP_SECONDS
    wave = chirps.chirp(time, np.array([2e6]), np.array([0.24]), np.array([40000.0]), np.array([0.0]))[0]
    assert np.abs(wave).max() <= 1
    assert np.abs(wave[time > 42000]).max() < 1e-3
    crossings = time[:-1][np.diff(np.sign(wave)) != 0]
    ranges = ((5e3, 1.5e4), (3.7e4, 4e4))
    early, late = (np.diff(crossings[(crossings > a) & (crossings < b)]).mean() for a, b in ranges)
    assert early > 1.5 * late
    assert np.abs(wave[(time > 39000) & (time < 40000)]).max() > 2 * np.abs(wave[(time > 5000) & (time < 9000)]).max()
