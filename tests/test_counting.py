"""Samples, windows and passes are the same numbers in every place that names them."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sciformer.checks.check import check
from sciformer.cli.main import main
from sciformer.inspection.cost import format_large
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from tests.domains.jets.jets_table import jets
from tests.training.tiny import go, listening

TINY = {"model.dim": 8, "model.depth": 1, "model.heads": 2, "train.device": "cpu"}
SHORT = {"train.steps": 2, "train.batch": 4, "train.warmup": 1, "train.evaluate_every": 2, "train.log_every": 1}


def text(folder):
    words = np.random.default_rng(0).choice(["to", "be", "or", "not", "that"], 1000)
    (folder / "a.txt").write_text(" ".join(words))
    return "text", folder / "a.txt", {"tokens.context": 16}


def curves(folder):
    rng = np.random.default_rng(0)
    rows = [(f"s{n}", t + rng.random(), 15 + rng.random(), "ab"[n % 2]) for n in range(30) for t in range(40 + n)]
    lines = [f"{name},{time:.3f},{value:.3f},{label}\n" for name, time, value, label in rows]
    (folder / "a.csv").write_text("id,time,value,label\n" + "".join(lines))
    return "lightcurves", folder / "a.csv", {"tokens.window": 16}


def images(folder):
    rng = np.random.default_rng(0)
    for number in range(24):
        path = folder / "sky" / ("star" if number % 2 else "galaxy") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (8, 8)).astype(np.uint8)).save(path)
    return "images", folder / "sky", {}


def particles(folder):
    table = jets(np.arange(40) % 7 + 1)
    lists = {name: pa.array([row.tolist() for row in apart(column)]) for name, column in table.items()}
    pq.write_table(
        pa.table({**lists, "label_QCD": np.arange(40) % 2, "label_Hbb": 1 - np.arange(40) % 2}), folder / "a.parquet"
    )
    return "jets", folder / "a.parquet", {"tokens.widths": [8], "tokens.pair_widths": [4]}


def apart(column):
    return np.split(column.values, column.lengths.cumsum()[:-1]) if hasattr(column, "lengths") else column


def spins(folder):
    rng = np.random.default_rng(0)
    image = rng.choice(np.array([-1, 1], np.int8), (40, 4, 4))
    np.savez(folder / "a.npz", image=image, phase=np.array(["ordered", "disordered"])[np.arange(40) % 2])
    return "arrays", folder / "a.npz", {"tokens.patch": 2}


def numbers(words):
    return [int(word.replace(",", "")) for word in words]


@pytest.mark.parametrize("make", [text, curves, images, particles, spins])
def test_one_number_everywhere(make, tmp_path, capsys):
    kind, file, changes = make(tmp_path)
    findings = []
    path = new(kind, [file], tmp_path / "a.yaml", log=findings.append)
    found = check(Recipe.load(path, TINY))
    assert not found.problems
    parts = [name.removeprefix("samples_") for name in found.figures if name.startswith("samples_")]
    counts = [int(found.figures[f"samples_{part}"]) for part in parts]
    stated = f"{format_large(len(file.read_text()))} characters" if kind == "text" else f"{sum(counts):,} "
    assert findings[0].startswith(f"Found: {stated}")
    (passes,) = map(float, re.findall(r"about ([\d.]+) passes", path.read_text()))
    assert passes == pytest.approx(found.figures["passes"], rel=0.06)

    recipe = Recipe.load(path, TINY | changes | SHORT)
    found = check(recipe)
    windows = {part: int(found.figures[f"windows_{part}"]) for part in parts if f"windows_{part}" in found.figures}
    assert bool(windows) == (make in (text, curves))
    assert [int(found.figures[f"samples_{part}"]) for part in parts] == counts

    with listening() as said:
        run = go(recipe, tmp_path / "run", report=True)
    line = next(text for text in said if "; samples: " in text)
    for part, count in zip(parts, counts):
        assert f"{part} {count:,}" + (f" ({windows[part]:,} windows)" if part in windows else "") in line
    assert f"({found.figures['passes']:.3g} passes" in line
    assert f"({found.figures['passes']:.3g} passes" in found.facts["Time"]["the training"]
    assert run.about["samples"] == dict(zip(parts, counts))
    assert run.about.get("windows", {}) == windows

    scores = json.loads((run.path / "scores.json").read_text())["parts"]
    for part, about in scores.items():
        assert (about["samples"], about["judged"]) == (run.about["samples"][part],) * 2
        assert about.get("windows") == about.get("judged_windows") == windows.get(part)
    rows = [
        re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)
        for row in re.findall(r"<tr>.*?</tr>", run.folder.report.read_text())
    ]
    assert numbers(next(row for row in rows if row[0] == "samples")[1:]) == counts
    if windows:
        assert numbers(filter(None, next(row for row in rows if row[0] == "windows")[1:])) == list(windows.values())
    for part in scores:
        assert main(["evaluate", str(run.path), "--part", part]) == 0
        said = capsys.readouterr().out
        assert f"the part {part}, {counts[parts.index(part)]:,} sample" in said
        assert (f"{windows.get(part, 0):,} window" in said) == (part in windows)
