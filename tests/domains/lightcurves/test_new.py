"""Recipes for light curves: columns found in every form, and that the recipes load, check and train."""

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from astropy.io import fits

from sciformer.cli.main import main
from sciformer.data import read_series
from sciformer.data.readers.series.names import Kind, Names, error_of, resolve
from sciformer.evaluation.embed import embed
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from sciformer.run import train
from tests.data.readers.series import examples
from tests.data.readers.series.examples import SHARED, objects
from tests.errors import refuses
from tests.recipe.written import TINY, written

ROWS = objects(60, least=4)


pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    "form", [examples.write_letters, examples.write_struct, examples.write_csv, examples.write_fits_arrays]
)
def test_classes_of_any_form(form, tmp_path):
    name = f"stars.{form.__name__.partition('_')[2].partition('_')[0]}"
    form(tmp_path / name, ROWS)
    recipe, page = written("lightcurves", [name])
    assert recipe.objective.kind == "classify"
    assert "MIRA (30), RRAB (30)" in page
    assert recipe.data.label == "type"
    assert recipe.data.value.endswith("mag")
    assert recipe.data.split.stratify == "label"
    assert "Bands: g (" in page
    assert recipe.tokens.window == 16
    run = train(recipe.change(TINY | {"train.batch": 8}), "run", show=False, report=False)
    answers = run.predict([name])
    assert answers["probabilities"].shape == (60, 2)
    assert list(answers["id"]) == [row["objectId"] for row in ROWS]
    scores = run.evaluate(files=[name]).scores
    assert 0 <= scores["macro_f1"] <= 1
    found = embed(run, [name])
    assert found.vectors.shape == (60, 8)
    columns = [[row[key] for row in ROWS] for key in ("mjd", "mag", "magerr", "filter")]
    np.testing.assert_allclose(embed(run, read_series(*columns)).vectors, found.vectors, atol=1e-6)
    np.testing.assert_allclose(run.predict(read_series(*columns))["probabilities"], answers["probabilities"], atol=1e-6)


def test_values_and_nothing_to_learn(tmp_path):
    examples.write_lists(tmp_path / "a.parquet", [{n: v for n, v in row.items() if n != "type"} for row in ROWS])
    recipe, page = written("lightcurves", ["a.parquet"])
    assert (recipe.objective.kind, recipe.objective.targets) == ("regress", ["redshift"])
    nearly = [{**row, "type": "SN Ia" if place else "SN Ib"} for place, row in enumerate(ROWS)]
    examples.write_lists(tmp_path / "b.parquet", nearly)
    recipe, page = written("lightcurves", ["b.parquet"])
    assert recipe.objective.kind == "regress"
    bare = [{n: v for n, v in row.items() if np.ndim(v) or n == "objectId"} for row in ROWS]
    examples.write_lists(tmp_path / "c.parquet", bare)
    recipe, page = written("lightcurves", ["c.parquet"])
    assert recipe.objective.kind == "masked"
    assert "RRAB:rr/*.fits" in page


def test_an_object_in_each_file(tmp_path):
    for place, row in enumerate(ROWS[:24]):
        examples.write_star(tmp_path / f"{'ab'[place % 2]}{place}.fits", row)
    recipe, _ = written("lightcurves", ["RRAB:a*.fits", "MIRA:b*.fits"])
    assert recipe.data.files == ["RRAB:a*.fits", "MIRA:b*.fits"]
    assert (recipe.data.value, recipe.data.error, recipe.data.quality) == ("PDCSAP_FLUX", "PDCSAP_FLUX_ERR", "QUALITY")
    assert not recipe.tokens.magnitudes
    assert recipe.objective.kind == "classify"


def write_stars(folder, count):
    """A file for each star, and a table that tells their classes and brightness."""
    folder.mkdir()
    rng, lines = np.random.default_rng(0), ["name,type,bright"]
    for place in range(count):
        times = np.sort(rng.uniform(58000, 58300, 12))
        rows = [f"{time:.4f},{15 + place % 2 * np.sin(time):.3f},0.02" for time in times]
        (folder / f"star{place}.csv").write_text("\n".join(["MJD,mag,mag_err", *rows]))
        lines.append(f"star{place},{('CEP', 'RRAB')[place % 2]},{place / 7}")
    (folder.parent / "labels.csv").write_text("\n".join(lines))


@pytest.mark.parametrize("names", [["stars/*.csv", "labels.csv"], ["labels.csv", "stars/*.csv"]], ids=str)
def test_a_table_of_objects_beside_the_curves(tmp_path, names):
    write_stars(tmp_path / "stars", 24)
    recipe, page = written("lightcurves", names)
    assert (recipe.data.files, recipe.data.objects) == (["stars/*.csv"], "labels.csv")
    assert recipe.objective.kind == "classify"
    assert "CEP (12), RRAB (12)" in page
    assert "labels.csv" not in page.splitlines()[0]
    assert ": bright\n" in page  # neither the name nor the class enters as a token
    assert recipe.data.bad_files == "stop"
    with refuses("labels.csv", "times"):
        new("lightcurves", ["labels.csv"])


def write_observations(path, head, labels, count=40, value=lambda star, place, own: own):
    """A row for each observation of pulsating stars, star after star."""
    rng, lines = np.random.default_rng(0), [head]
    for star, label in enumerate(labels):
        time = np.sort(rng.uniform(0, 400, count))
        own = 12 + np.sin(2 * np.pi * time / (0.6 if star % 2 else 50)) + rng.normal(0, 0.02, count)
        lines += [
            f"{900 + star},{label[place % len(label)]},{time[place]:.5f},{value(star, place, own[place]):.4f},0.02"
            for place in range(count)
        ]
    path.write_text("\n".join(lines))


CLASSES = [["EC"], ["RRAB"]] * 12


def test_objects_by_the_contents_of_a_column(tmp_path, capsys):
    """Any name with id or star; other names if the column has many objects that are observed at the same time."""
    write_observations(tmp_path / "a.csv", "ID_STAR,Type,JD,m,sigma", CLASSES)
    recipe, page = written("lightcurves", ["a.csv"])
    assert (recipe.data.id, recipe.data.label) == ("ID_STAR", "Type")
    assert recipe.objective.kind == "classify"
    write_observations(tmp_path / "b.csv", "Nr,Art,JD,m,sigma", CLASSES)
    recipe, page = written("lightcurves", ["b.csv"])
    assert recipe.data.id == "Nr"
    assert "Art (EC, RRAB)" in page  # offered, as its name does not say that it has classes
    assert "# Columns without a role: Art." in page
    new("lightcurves", ["b.csv"], "c.yaml", changes={"data.label": "Art"})
    assert Recipe.load("c.yaml").objective.kind == "classify"
    with refuses("10 objects", "have 1"):
        new("lightcurves", ["b.csv"], "d.yaml", changes={"data.id": "none"})
    nights = [f"{night},{night + place / 30:.4f},{12 + place / 9},0.02" for night in range(30) for place in range(20)]
    (tmp_path / "one.csv").write_text("\n".join(["night,JD,m,sigma", *nights]))
    with refuses("have 1", hint="night"):  # a column without a role, and no ids
        new("lightcurves", ["one.csv"])


def test_reasons_against_classes(tmp_path):
    write_observations(tmp_path / "two.csv", "id,type,JD,m,sigma", [["EC", "RRAB"], *CLASSES])
    recipe, page = written("lightcurves", ["two.csv"])
    assert recipe.objective.kind == "masked"
    assert "same object, 900: EC, RRAB" in page
    write_observations(tmp_path / "one.csv", "id,type,JD,m,sigma", [["EC"]] * 12)
    recipe, page = written("lightcurves", ["one.csv"])
    assert recipe.objective.kind == "masked"
    assert "same class in `type`, EC" in page
    assert recipe.tokens.periods == 0  # they would tell the hidden points
    assert not recipe.tokens.summary


def test_keywords_of_fits_headers(tmp_path):
    def write(keyword):
        for place in range(24):
            time = np.sort(np.random.default_rng(place).uniform(0, 100, 12))
            columns = [fits.Column(name, "D", array=column) for name, column in (("TIME", time), ("MAG", time % 3))]
            table = fits.BinTableHDU.from_columns(columns)
            table.header.update({keyword: ("EC", "RRAB")[place % 2], "OBJECT": f"star {place}", "TEFF": 4000.5 + place})
            table.writeto(tmp_path / f"{place}.fits", overwrite=True)

    write("VARTYPE")
    recipe, page = written("lightcurves", ["*.fits"])
    assert (recipe.data.label, recipe.objective.kind) == ("VARTYPE", "classify")
    assert "EC (12), RRAB (12)" in page
    write("GCVS")
    recipe, page = written("lightcurves", ["*.fits"])
    assert (recipe.data.label, recipe.objective.targets) == ("", ["TEFF"])
    assert "GCVS (EC, RRAB)" in page
    assert "OBJECT (" not in page


def test_codes_of_missing_values(tmp_path):
    code = lambda star, place, own: -99 if place % 20 == 3 else own  # noqa: E731
    write_observations(tmp_path / "some.csv", "id,type,JD,mag,magerr", CLASSES, value=code)
    recipe, page = written("lightcurves", ["some.csv"])
    assert recipe.data.missing_values == [-99]
    assert "# 48 of 960 points have a value of data.missing_values, -99: left out." in page
    source = recipe.data.open().sources["train"]
    assert min(source.load(0)["value"].values) > 10
    write_observations(tmp_path / "all.csv", "id,type,JD,mag,magerr", CLASSES, value=lambda *some: 99.999)
    with refuses("99.999", key="data.value"):
        new("lightcurves", ["all.csv"])


def test_periods_if_curves_repeat(tmp_path):
    write_observations(tmp_path / "stars.csv", "id,type,JD,mag,magerr", CLASSES)
    recipe, page = written("lightcurves", ["stars.csv"])
    assert (recipe.tokens.periods, recipe.tokens.summary) == (2, True)
    assert "24 of 24 inspected curves" in page
    noise = np.random.default_rng(1)
    write_observations(tmp_path / "a.csv", "id,type,JD,mag,magerr", CLASSES, value=lambda *some: noise.normal(12, 1))
    recipe, page = written("lightcurves", ["a.csv"])
    assert recipe.tokens.periods == 0
    fading = lambda star, place, own: 12 + place / 10 + noise.normal(0, 0.02)  # noqa: E731
    write_observations(tmp_path / "b.csv", "id,type,JD,mag,magerr", CLASSES, value=fading)
    recipe, page = written("lightcurves", ["b.csv"])
    assert recipe.tokens.periods == 0  # a trend repeats less than three times


def test_a_folder_for_each_class(tmp_path):
    """Files of two classes may have the same name: they are different objects."""
    for name in ("EC", "RRAB"):
        (tmp_path / "all" / name).mkdir(parents=True)
        for number in range(12):
            lines = [f"{time},{15 + number},0.02" for time in range(12)]
            (tmp_path / "all" / name / f"{number}.csv").write_text("\n".join(["MJD,mag,mag_err", *lines]))
    recipe, page = written("lightcurves", ["all"])
    assert recipe.data.files == ["EC:all/EC/*.csv", "RRAB:all/RRAB/*.csv"]
    assert recipe.objective.kind == "classify"
    assert "EC (12), RRAB (12)" in page
    assert "another curve" not in page


def test_bad_files_are_left_out_and_named(tmp_path):
    write_stars(tmp_path / "stars", 24)
    (tmp_path / "stars" / "star99.csv").write_text("MJD,mag,mag_err\n")
    recipe, page = written("lightcurves", ["stars/*.csv", "labels.csv"])
    assert (recipe.data.bad_files, recipe.data.objects) == ("skip", "labels.csv")
    assert "# left out stars/star99.csv: " in page


def test_parts_by_their_names_and_the_command(tmp_path, capsys):
    for name in ("train", "test"):
        examples.write_lists(tmp_path / f"{name}.parquet", ROWS)
    assert main(["new", "lightcurves", "train.parquet", "test.parquet"]) == 0
    assert (tmp_path / "train.yaml").is_file()
    recipe, _ = written("lightcurves", ["train.parquet", "test.parquet"])
    assert recipe.data.test == ["test.parquet"]
    assert main(["new", "lightcurves", "none.parquet"]) == 2
    assert "'none.parquet'" in capsys.readouterr().err
    examples.write_lists(tmp_path / "few.parquet", ROWS[:3])
    with refuses("10 objects", "have 3"):
        new("lightcurves", ["few.parquet"])


SURVEYS = {
    "ZTF alerts": ("oid fid jd magpsf sigmapsf diffmaglim", "jd magpsf sigmapsf fid"),
    "ZTF releases": ("*hmjd *mag *magerr *catflags filterid objectid", "hmjd mag magerr filterid"),
    "PLAsTiCC": ("object_id mjd passband flux flux_err detected", "mjd flux flux_err passband"),
    "Rubin": (
        "*lc.midpointMjdTai *lc.psfFlux *lc.psfFluxErr *lc.band objectId",
        "lc.midpointMjdTai lc.psfFlux lc.psfFluxErr lc.band",
    ),
    "SNANA": ("CID MJD FLT FLUXCAL FLUXCALERR PHOTFLAG", "MJD FLUXCAL FLUXCALERR FLT"),
    "ATLAS": ("MJD m dm uJy duJy F err", "MJD uJy duJy "),
    "ASAS-SN": ("hjd camera mag mag_err flux flux_err filter", "hjd flux flux_err filter"),
    "Gaia": ("source_id time band mag flux flux_error", "time flux flux_error band"),
    "Kepler": ("TIME SAP_FLUX SAP_FLUX_ERR PDCSAP_FLUX PDCSAP_FLUX_ERR", "TIME PDCSAP_FLUX PDCSAP_FLUX_ERR "),
    "VizieR": ("Name HJD Vmag e_Vmag", "HJD Vmag e_Vmag "),
}


@pytest.mark.parametrize("survey", SURVEYS)
def test_names_of_surveys(survey):
    given, wanted = SURVEYS[survey]
    kinds = {name.lstrip("*"): Kind(name.startswith("*"), False) for name in given.split()}
    found = resolve(kinds, Names(), survey)
    assert [found.time, found.value, found.error, found.band] == wanted.split(" ")


def test_columns_nested_in_several_others():
    kinds = {f"{outer}.{name}": Kind(True, False) for outer in ("forced", "sources") for name in ("mjd", "flux")}
    with refuses("times", "forced.mjd, sources.mjd", hint="data.time"):
        resolve(kinds, Names(), "it")
    found = resolve(kinds, Names(value="sources.flux"), "it")
    assert (found.time, found.value) == ("sources.mjd", "sources.flux")
    with refuses("`mjd`", "data.time", "forced.mjd", "sources.mjd"):
        resolve(kinds, Names(time="mjd"), "it")
    assert error_of("mag", ["Mag_Err"]) == "Mag_Err"


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data beside the repository")
@pytest.mark.parametrize(
    ("name", "kind"), [("asas_variables", "classify"), ("sdss_s82_rrlyrae", "classify"), ("ztf_bts_snia", "regress")]
)
def test_real_ones(name, kind):
    recipe, _ = written("lightcurves", [str(SHARED / f"{name}.parquet")])
    assert recipe.objective.kind == kind
    assert recipe.tokens.magnitudes


@pytest.mark.parametrize("form", [examples.write_csv, examples.write_lists])
def test_a_frame_is_answered_as_its_file(form, tmp_path):
    """With a row for each observation, and with a row for each object."""
    name = tmp_path / ("stars.csv" if form is examples.write_csv else "stars.parquet")
    form(name, ROWS)
    recipe, _ = written("lightcurves", [str(name)])
    run = train(recipe.change(TINY | {"train.batch": 8}), "run", show=False, report=False)
    read = pyarrow.csv.read_csv if name.suffix == ".csv" else pyarrow.parquet.read_table
    frame, file = run.predict(read(name)), run.predict(name)
    scores = np.stack([frame[f"score_{name}"].to_numpy() for name in run.classes], 1)
    np.testing.assert_allclose(scores, file["probabilities"], atol=1e-6)
    assert frame["id"].to_pylist() == list(file["id"])
    np.testing.assert_allclose(embed(run, read(name)).vectors, embed(run, name).vectors, atol=1e-6)
    for wrong in (3, [1, 2]):
        with refuses(hint="data frame") if wrong == 3 else refuses("time"):
            run.predict(wrong)
