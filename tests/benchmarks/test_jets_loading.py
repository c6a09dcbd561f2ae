"""The benchmark of loading: both sides are asked for the same, and rows are made of times."""

import argparse

import jets_loading
from sciformer.domains.jets.interop.data_config import translate_options


def test_the_other_side_is_asked_for_our_features():
    made = translate_options(jets_loading.description())
    assert (made.notes, made.tokens["features"]) == ([], "full")
    assert list(made.data["classes"]) == list(jets_loading.CLASSES)


def test_the_fastest_way_of_each_side_counts(versions):
    times = {"ours.0": [1e-4, 1e-4], "ours.1": [2e-4, 2e-4], "weaver.0": [4e-4, 4e-4], "weaver.2": [3e-4, 3e-4]}
    rows = jets_loading.rows([times, times], argparse.Namespace(number=1000))
    found = {row["id"]: row["value"] for row in rows}
    assert found == {
        "root_loading.ratio_weaver": 3.0,
        "root_loading.ours.jets_per_s": 10_000,
        "root_loading.weaver.jets_per_s": 3333,
    }
    assert "ours 0, weaver 2" in rows[0]["settings"]
