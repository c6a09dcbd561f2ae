"""A graph for series is fed by what stands in preprocessing.json alone, and answers as the library does."""

import json

import numpy as np
import onnxruntime
import pytest

from sciformer.data.columns import Lists, select
from sciformer.interop import export_model
from tests.domains.lightcurves.curves_table import curves
from tests.interop.shaken import graph_run, made_data

LENGTHS = np.random.default_rng(0).integers(3, 20, 24)


def labelled():
    return curves(LENGTHS, bands=("g", "r"), limits=True, extra=True) | {"label": np.array(["a", "b", "c"] * 8)}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("series")
    with made_data("made-series", labelled):
        run = graph_run(
            folder / "run",
            data={"kind": "made-series"},
            tokens={"kind": "observations", "window": 40, "times": "both", "extra": ["redshift", "field"]},
            model={"kind": "encoder", "dim": 16, "depth": 1, "heads": 4, "position": "sinusoidal"},
            objective={"kind": "classify"},
        )
        export_model(run, folder / "out", "onnx")
        yield run, folder / "out"


def fed(about, table):
    """The inputs of one series, by hand."""
    learned, setting = about["learned"], about["settings"]
    time, value, error = (table[name].values.astype(np.float64) for name in ("time", "value", "error"))
    limit, middle = table["limit"].values, value[~table["limit"].values].mean()
    scale = learned["level"][1]
    logs = (np.log(error / scale) - learned["error"][0]) / learned["error"][1]
    columns = {"value": (value - middle) / scale, "error": np.clip(logs, -5, 5), "no error": np.zeros(len(time))}
    columns |= {"since": np.log1p(np.diff(time, prepend=time[0])), "limit": limit}
    redshift, field = learned["extra"]
    features = np.stack([columns[name] for name in about["features"]], -1)
    beside = np.zeros((2, features.shape[1]))
    beside[:, about["features"].index("no error")] = 1
    number = table["redshift"][0]
    known = bool(np.isfinite(number))
    scaled = (number - redshift["mean"]) / redshift["deviation"] if known else 0
    return {
        "features": np.concatenate([beside, features])[None].astype(np.float32),
        "at": np.concatenate([[0, 0], time - time.mean()])[None].astype(np.float32) / setting["time_unit"],
        "band": np.array([[0, 0, *(learned["bands"].index(name) for name in table["band"].values)]]),
        "entry": np.array([[1 if known else 2, 3 + field["values"].index(table["field"][0]), *[0] * len(time)]]),
        "given": np.array([[scaled, *[0] * (len(time) + 1)]]),
        "valid": np.ones((1, len(time) + 2), bool),
    }


def test_the_description_is_enough_to_feed_the_graph(exported):
    run, folder = exported
    about = json.loads((folder / "preprocessing.json").read_text())
    assert about["most_tokens"] == 40
    table = curves((9, 17, 4), seed=5, bands=("g", "r"), limits=True, extra=True)
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    expected = run.predict(table)["probabilities"]
    names = [value.name for value in session.get_inputs()]
    for row in range(3):
        given = fed(about["tokens"], select(table, np.array([row])))
        feed = {name: given[name].astype(np.float32) if name == "given" else given[name] for name in names}
        (found,) = session.run(["probabilities"], feed)
        np.testing.assert_allclose(found[0], expected[row], atol=1e-4)
    assert np.ptp(expected, axis=0).max() > 0.01
    assert isinstance(table["time"], Lists)
