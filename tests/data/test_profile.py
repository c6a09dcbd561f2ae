"""The profile of the training data: what it stores, what it refuses, what it notes, and when it is silent."""

import json
import shutil
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from sciformer.assembly import Assembly
from sciformer.cli.main import main
from sciformer.data.columns import Lists, rows_of, select
from sciformer.data.profile import ProfileBuilder, describe_profile, find_codes, hash_samples, is_code
from sciformer.evaluation.embed import embed
from sciformer.recipe import Recipe
from sciformer.run import Run
from tests.errors import refuses
from tests.shipped import tiny
from tests.training.tiny import go, image_recipe

SIMULATIONS = {
    "images/galaxies": {},
    "images/lenses": {},
    "images/cues-vit": {},
    "jets/part": {"data.number": 200},
    "lightcurves/transformer": {"data.number": 200},
    "lightcurves/astromer": {"data.number": 200},
    "lightcurves/timemodattn": {"data.number": 200},
    "lightcurves/denoiser": {},
    "signals/gravitational-wave": {},
    "spins/ising-vit": {},
    "text/recall-transformer": {},
    "text/pronouns-transformer": {},
}


def opened(name, folder, **changes):
    recipe = tiny(name, folder).change({**SIMULATIONS.get(name, {}), **changes})
    return recipe, Assembly.open(recipe)


def compared(assembly, table, **options):
    """The comparison of a table with the training data."""
    watch = assembly.compare(**options)
    assembly.samples(table, watch=watch).all()
    return watch


def scaled(table, factor, names):
    """The table with some columns times a factor."""

    def times(column):
        return Lists(column.values * factor, column.lengths) if isinstance(column, Lists) else column * factor

    return {name: times(column) if name in names else column for name, column in table.items()}


# Samples of the same distribution


@pytest.mark.parametrize("name", SIMULATIONS)
def test_other_samples_of_a_simulation_are_silent(name, tmp_path):
    recipe, assembly = opened(name, tmp_path)
    assert assembly.profile_notes == []
    for seed in (1, 2) if "seed" in type(recipe.data).model_fields else (None,):
        changed = recipe if seed is None else recipe.change({"data.seed": seed})
        table = Assembly.open(changed, assembly.state()).splits.sources["valid"].load(0)
        rows = [np.arange(rows_of(table)), np.arange(min(20, rows_of(table))), np.arange(1)]
        if "label" in table:
            rows += [np.flatnonzero(table["label"] == one) for one in np.unique(table["label"])]
        for some in rows:
            watch = compared(assembly, select(table, some))
            assert watch.notes == []
            if len(some) > 1 and seed is not None:
                assert watch.describe_overlap() == []


@pytest.mark.parametrize("count", [20, 20_000])
@pytest.mark.parametrize("kind", ["normal", "lognormal", "cauchy", "integers"])
def test_draws_of_one_distribution_are_silent(kind, count):
    rng = np.random.default_rng(0)
    draw = {
        "normal": lambda n: rng.normal(size=(n, 6)),
        "lognormal": lambda n: np.exp(2 * rng.normal(size=(n, 6))),
        "cauchy": lambda n: rng.standard_cauchy((n, 6)),
        "integers": lambda n: rng.integers(0, 3, (n, 6)),
    }[kind]
    for size in (20, 200, 20_000):
        assembly = of_images({"image": draw(size)[:, None]})
        for n in (1, 5, count):
            assert compared(assembly, {"image": draw(n)[:, None]}).notes == []


def of_images(table):
    """An assembly that was fitted on a table."""
    recipe = Recipe.from_dict(
        {
            "data": {"kind": "arrays", "files": ["none.npz"]},
            "tokens": {"kind": "patches", "patch": 1},
            "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
            "objective": {"kind": "classify"},
        }
    )
    made = Assembly(recipe, None)
    next(iter(made.tokens.values())).fit([table])
    builder = ProfileBuilder(made.tokens.values(), ["label"])
    made.samples(table, watch=builder).all()
    made.profile = builder.finish(len(table["image"]))
    return made


# Another scale

PIXELS = np.random.default_rng(0).integers(0, 200, (60, 8, 8)).astype(np.uint8)


@pytest.mark.parametrize(
    ("before", "after", "factor"),
    [
        (PIXELS, PIXELS.astype(np.uint16) * 257, "Divide the values by 257"),
        (PIXELS, (PIXELS.astype(np.uint16) * 256), "Divide the values by 257"),
        (PIXELS, (PIXELS / 255).astype(np.float32), "Multiply the values by 255"),
        ((PIXELS / 255).astype(np.float32), PIXELS, "Divide the values by 255"),
        (PIXELS.astype(np.float32), (PIXELS / 255).astype(np.float32), "Multiply the values by 255"),
        (PIXELS.astype(np.uint16) * 257, PIXELS, "Multiply the values by 257"),
        (PIXELS.astype(np.uint16) * 257, (PIXELS / 255).astype(np.float32), "Multiply the values by 65,535"),
    ],
)
@pytest.mark.parametrize("count", [1, 60])
def test_pixels_on_another_scale_are_refused(before, after, factor, count):
    assembly = of_images({"image": before})
    with refuses("`image`", key="--accept-drift", hint=factor):
        compared(assembly, {"image": after[:count]})
    watch = compared(assembly, {"image": after[:count]}, accept_drift=True)
    assert ["`image`" in note for note in watch.notes] == [True]


def test_a_wider_type_with_the_same_values_is_silent():
    assembly = of_images({"image": PIXELS})
    for same in (PIXELS.astype(np.uint16), PIXELS.astype(np.float32), PIXELS[:, ::-1]):
        assert compared(assembly, {"image": same}).notes == []


def test_momenta_in_mev_are_refused(tmp_path):
    _, assembly = opened("jets/part", tmp_path)
    table = assembly.splits.sources["test"].load(0)
    section = next(iter(assembly.tokens.values()))
    units = {*section.vector, section.jet[0], section.jet[3]}
    for factor, words in ((1000, "Divide the values by 1,000"), (1e-3, "Multiply the values by 1,000")):
        with refuses("`part_energy`", key="--accept-drift", hint=words):
            compared(assembly, scaled(table, factor, units))


def test_times_have_no_origin_but_a_unit(tmp_path):
    _, assembly = opened("lightcurves/transformer", tmp_path)
    table = dict(assembly.splits.sources["test"].load(0))
    time = table["time"]
    assert compared(assembly, table | {"time": Lists(time.values + 2_400_000.5, time.lengths)}).notes == []
    with refuses("`time`", key="--accept-drift", hint="Divide the values by 86,400"):
        compared(assembly, scaled(table, 86_400, {"time"}))


def test_values_that_tokens_scale_themselves_are_not_compared():
    for section, silent in (({"scale": "image"}, True), ({"scale": "channel"}, False)):
        made = of_images({"image": PIXELS})
        made.tokens = {name: one.model_copy(update=section) for name, one in made.tokens.items()}
        assert (compared(made, {"image": PIXELS * 257.0}, accept_drift=True).notes == []) == silent


def test_a_part_on_another_scale_is_noted_before_the_training(tmp_path):
    label = np.arange(60) % 2
    np.savez(tmp_path / "a.npz", image=PIXELS.astype(np.float32), label=label)
    np.savez(tmp_path / "b.npz", image=PIXELS * np.float32(1 / 255), label=label)
    recipe = image_recipe(tmp_path).change(
        {"data.kind": "images", "data.files": [str(tmp_path / "a.npz")], "data.valid": [str(tmp_path / "b.npz")]}
    )
    notes = Assembly.open(recipe).profile_notes
    assert [note.startswith("In the part valid:") and "`image`" in note for note in notes] == [True]


def test_other_data_than_those_of_the_pretrained_run_are_noted(run):
    made, folder = run
    pretrained = SimpleNamespace(state=made.assembly.state())
    for name, count in (("images", 0), ("new", 0), ("float", 1)):
        recipe = made.recipe.change({"data.files": [str(folder / f"{name}.npz")]})
        assert len(Assembly.open(recipe, pretrained=pretrained).profile_notes) == count


# A smaller drift


def test_a_smaller_drift_is_noted_and_scored():
    assembly = of_images({"image": np.random.default_rng(0).normal(size=(100, 4, 4))})
    moved = np.random.default_rng(1).normal(size=(30, 4, 4)) + 5
    watch = assembly.compare(scores=True)
    scores = assembly.samples({"image": moved}, watch=watch).all().samples["drift"]
    assert len(watch.notes) == 1
    assert "`image`" in watch.notes[0]
    assert scores.shape == (30,)
    assert scores.min() > 0.5
    same = assembly.samples({"image": moved - 5}, watch=assembly.compare(scores=True)).all().samples["drift"]
    assert same.max() < 0.1


# Codes of missing values


@pytest.mark.parametrize("code", [-99.0, 99.999, -999, 9999, 1e20, -1e30, 888])
@pytest.mark.parametrize("share", [0.001, 0.05, 1.0])
def test_codes_of_missing_values_are_found(code, share):
    values = np.random.default_rng(0).normal(15, 1, 4000).astype(np.float32)
    values[: round(share * len(values))] = code
    np.testing.assert_allclose(find_codes(np.sort(values)), [code], rtol=1e-6)


@pytest.mark.parametrize("code", [-99, 99.9])
def test_a_code_among_the_values_is_found(code):
    values = np.random.default_rng(0).normal(0, 100, 4000).astype(np.float32)
    assert find_codes(np.sort(values)) == []
    values[::20] = code
    np.testing.assert_allclose(find_codes(np.sort(values)), [code], rtol=1e-6)
    assert find_codes(np.sort(values.round())) == []  # rounded values repeat anyway


def test_usual_values_are_no_codes():
    rng = np.random.default_rng(0)
    for values in (rng.normal(99, 3, 1000).round(), np.arange(100.0), np.repeat([-1.0, 1.0], 9), np.zeros(9), PIXELS):
        assert find_codes(np.sort(values.ravel().astype(np.float64))) == []
    assert not any(is_code(value, 5) for value in (0, 1, -1, 9, 8, 255, 65535, 32767, 100, 1000, 1e6, 98.9))


def test_codes_and_constant_columns_are_named_in_notes(tmp_path):
    recipe = tiny("lightcurves/transformer", tmp_path)
    table = dict(Assembly.open(recipe).splits.sources["train"].load(0))
    value, error = (table[name] for name in ("value", "error"))
    bad = value.values.copy()
    bad[::20] = -99
    errors = np.full(len(error.values), 0.25, np.float32)
    made = {**table, "value": Lists(bad, value.lengths), "error": Lists(errors, error.lengths)}
    builder = ProfileBuilder(recipe.streams.values(), ())
    builder(made, {})
    first, second = describe_profile(builder.finish(rows_of(made)))
    assert "5 % of the values of `value` are -99," in first
    assert "`error`" in second
    assert "0.25" in second
    assembly = Assembly.open(recipe)
    assert ["-99" in note for note in compared(assembly, made).notes if "`value`" in note] == [True]


# Samples of the training


def test_samples_are_recognised_in_any_order_and_in_part():
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(2, 300, 4, 4))
    assembly = of_images({"image": old})
    assert "100 %" in compared(assembly, {"image": old[rng.permutation(300)[:50]]}).describe_overlap()[0]
    assert "33 %" in compared(assembly, {"image": np.concatenate([old[:50], new[:100]])}).describe_overlap()[0]
    assert compared(assembly, {"image": new}).describe_overlap() == []


def test_a_sample_that_occurs_twice_is_not_recognised():
    image = np.concatenate([np.zeros((20, 4, 4)), np.random.default_rng(0).normal(size=(20, 4, 4))])
    assembly = of_images({"image": image})
    assert compared(assembly, {"image": np.zeros((10, 4, 4))}).describe_overlap() == []
    assert len(assembly.profile["hashes"]) == 20


def test_hashes_do_not_depend_on_the_neighbours(tmp_path):
    _, assembly = opened("jets/part", tmp_path)
    stream = next(iter(assembly.tokens.values())).tokenize(assembly.splits.sources["test"].load(0))
    whole = hash_samples({"": stream})
    assert len(np.unique(whole)) == len(stream)
    rows = np.arange(len(stream))[::-3]
    np.testing.assert_array_equal(hash_samples({"": stream.take(rows)}), whole[rows])


# A run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    label = np.arange(60) % 2
    np.savez(folder / "images.npz", image=(PIXELS + 50 * label[:, None, None]).astype(np.uint8), label=label)
    recipe = image_recipe(folder).change({"tokens.patch": 4})
    np.savez(folder / "float.npz", image=(PIXELS / 255).astype(np.float32), label=label)
    np.savez(folder / "new.npz", image=PIXELS[:, ::-1], label=label)
    return go(recipe, folder / "run"), folder


def test_the_profile_is_part_of_the_run_and_stays(run):
    made, _ = run
    stored = json.loads((made.path / "model" / "statistics.json").read_text())["profile"]
    assert stored["columns"]["image"]["dtype"] == "uint8"
    assert stored["columns"]["label"]["values"] == 48
    assert stored["tokens"] == {"": [4] * 11} or [4] * 11 in stored["tokens"].values()
    assert next(iter(made.assembly.compare().usual_ranges()))[:2] == ("image", "uint8")  # for the card of an ONNX model
    again = go(made.recipe, made.path)
    assert again.assembly.profile == stored
    assert len(json.dumps(stored)) < 50_000


def test_commands_refuse_another_scale_unless_it_is_accepted(run, tmp_path, monkeypatch, capsys):
    made, folder = run
    monkeypatch.chdir(tmp_path)
    for verb in (["predict"], ["evaluate"], ["embed", "--out", "vectors.npy"]):
        line = [verb[0], str(made.path), str(folder / "float.npz"), *verb[1:]]
        assert main(line) == 2
        assert "Multiply the values by 255" in " ".join(capsys.readouterr().err.split())
        assert list(tmp_path.iterdir()) == []
        assert main([*line, "--accept-drift"]) == 0
        found = capsys.readouterr()
        assert "`image`" in found.out + found.err
        for path in tmp_path.iterdir():
            path.unlink()


def test_evaluate_names_samples_of_the_training(run, capsys):
    made, folder = run
    assert main(["evaluate", str(made.path), str(folder / "images.npz")]) == 0
    assert "was trained on 80 % of these samples" in " ".join(capsys.readouterr().out.split())
    assert main(["evaluate", str(made.path), str(folder / "new.npz")]) == 0
    assert "trained on" not in capsys.readouterr().out


def test_python_refuses_accepts_and_warns(run):
    made, folder = run
    table = dict(np.load(folder / "float.npz"))
    for call in (made.predict, lambda what, **options: embed(made, what, **options)):
        with refuses(key="--accept-drift"):
            call(table)
        with pytest.warns(UserWarning, match="`image`"):
            call(table, accept_drift=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert made.predict(dict(np.load(folder / "new.npz")))["drift"].max() == 0


def test_a_run_without_a_profile_still_answers(run, tmp_path):
    made, folder = run
    old = tmp_path / "old"
    shutil.copytree(made.path, old)
    state = made.folder.read_json("model/statistics.json")
    del state["profile"]
    Run(old).folder.seal({"model/statistics.json": json.dumps(state)})
    assert "drift" not in Run(old).predict(folder / "float.npz")
    assert Run(old).evaluate(files=[folder / "images.npz"]).notes == ()
