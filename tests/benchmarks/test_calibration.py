"""The benchmark of `calibrate`: rows before and after, of the test part."""

import argparse
import json

import calibration
from tests.evaluation.test_calibrate import images


def test_rows_before_and_after(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(calibration.PARTS, "jets", lambda options: images(tmp_path, "classify"))
    options = argparse.Namespace(seeds=[0, 1], out=tmp_path, steps=0, results=tmp_path / "rows.json")
    calibration.measure("jets", options)
    found = {row["id"]: row for row in json.loads(options.results.read_text())}
    assert set(found) == {
        f"calibration.jets.{score}.{when}" for score in ("error", "loss") for when in ("before", "after")
    }
    before, after = (found[f"calibration.jets.loss.{when}"] for when in ("before", "after"))
    assert before["values"] != after["values"]
    assert (before["seeds"], before["fitted_to"], len(before["factors"])) == (2, 160, 2)
    assert "temperature" in capsys.readouterr().out
