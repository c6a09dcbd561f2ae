"""Light curves in files of every format, for the tests of the reader."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from astropy.io import fits
from astropy.table import Table

from sciformer.data.columns import Lists
from sciformer.data.readers.series.reader import SeriesFiles
from sciformer.data.split import Split
from tests.data.readers.events.examples import whole as whole
from tests.paths import SHARED as DATA

SHARED = DATA / "lightcurves"
ALL = Split(valid=0, test=0)
SINGLE = {"objectId": "12A", "type": "4A", "redshift": "D"}  # what an object has, and its form in FITS
POINTS = {"time": "mjd", "value": "mag", "error": "magerr", "band": "filter"}  # ours, and those of the files


def objects(count=7, seed=0, least=1):
    """Random objects with the column names of the files."""
    draw = np.random.default_rng(seed)
    made = []
    for number in range(count):
        size = int(draw.integers(least, least + 9))
        made.append(
            {
                "objectId": f"star{number:03d}",
                "type": ("RRAB", "MIRA")[number % 2],
                "redshift": float(draw.uniform(0, 1)),
                "mjd": np.sort(59000 + draw.uniform(0, 300, size)),
                "mag": draw.normal(15, 1, size).astype(np.float32),
                "magerr": draw.uniform(0.01, 0.1, size).astype(np.float32),
                "filter": draw.choice(["g", "r"], size),
            }
        )
    return made


def long(rows):
    """Columns of a table with a row for each observation."""
    names = list(rows[0])
    return {
        name: np.concatenate(
            [np.asarray(r[name]) if np.ndim(r[name]) else np.full(len(r["mjd"]), r[name]) for r in rows]
        )
        for name in names
    }


def write_lists(path, rows, **options):
    columns = {
        name: [np.asarray(row[name]).tolist() if np.ndim(row[name]) else row[name] for row in rows] for name in rows[0]
    }
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def write_letters(path, rows):
    return write_lists(path, [{**row, "filter": "".join(row["filter"])} for row in rows])


def _nested(row):
    return {name: np.asarray(value).tolist() for name, value in row.items() if np.ndim(value)}


def write_struct(path, rows, nest=_nested):
    """Write nested columns as nested-pandas does: a struct of lists."""
    single = {name: [row[name] for row in rows] for name in rows[0] if not np.ndim(rows[0][name])}
    pq.write_table(pa.table({**single, "lc": [nest(row) for row in rows]}), path)
    return str(path)


def write_records(path, rows):
    """Write nested columns as a list of records."""
    return write_struct(path, rows, lambda row: [dict(zip(_nested(row), one)) for one in zip(*_nested(row).values())])


def write_long(path, rows, order=None, **options):
    columns = long(rows)
    columns = {name: column if order is None else column[order] for name, column in columns.items()}
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def write_csv(path, rows, sign=",", order=None):
    columns = long(rows)
    order = range(len(columns["mjd"])) if order is None else order
    lines = [sign.join(str(column[place]) for column in columns.values()) for place in order]
    path.write_text("\n".join([sign.join(columns), *lines]) + "\n")
    return str(path)


def write_astropy(path, rows):
    Table(long(rows)).write(path, format="ascii.ecsv" if path.suffix == ".ecsv" else "fits")
    return str(path)


def write_fits_arrays(path, rows):
    """A row for each object, arrays of any length; bands are a string with a letter for each point."""
    columns = [fits.Column(name, form, array=[row[name] for row in rows]) for name, form in SINGLE.items()]
    columns.append(fits.Column("filter", "20A", array=["".join(row["filter"]) for row in rows]))
    for name, form in {"mjd": "PD()", "mag": "PE()", "magerr": "PE()"}.items():
        column = np.empty(len(rows), object)
        column[:] = [row[name] for row in rows]
        columns.append(fits.Column(name, form, array=column))
    fits.BinTableHDU.from_columns(columns).writeto(path)
    return str(path)


def write_fits_padded(path, rows):
    """A row for each object, arrays as long as the longest, filled with NaN."""
    longest = max(len(row["mjd"]) for row in rows)
    columns = [fits.Column(name, form, array=[row[name] for row in rows]) for name, form in SINGLE.items()]
    for name in ("mjd", "mag", "magerr"):
        filled = np.full((len(rows), longest), np.nan)
        for number, row in enumerate(rows):
            filled[number, : len(row[name])] = row[name]
        columns.append(fits.Column(name, f"{longest}D", array=filled))
    fits.BinTableHDU.from_columns(columns).writeto(path)
    return str(path)


def write_star(path, row, **header):
    """Write one object in a file, as lightkurve does."""
    columns = [fits.Column("TIME", "D", array=row["mjd"], unit="BJD - 2457000, days")]
    for name, values in (("SAP_FLUX", -row["mag"]), ("PDCSAP_FLUX", row["mag"]), ("PDCSAP_FLUX_ERR", row["magerr"])):
        columns.append(fits.Column(name, "E", array=values, unit="e-/s"))
    columns.append(fits.Column("QUALITY", "J", array=np.arange(len(row["mjd"])) == 1))
    table = fits.BinTableHDU.from_columns(columns, name="LIGHTCURVE")
    first = fits.PrimaryHDU(header=fits.Header({"OBJECT": row["objectId"], "TEFF": 5000.0 + len(row["mjd"]), **header}))
    aperture = fits.ImageHDU(np.zeros((3, 3), np.int32), name="APERTURE")
    fits.HDUList([first, table, aperture]).writeto(path)
    return str(path)


def section(*files, **more):
    return SeriesFiles(kind="series", files=[str(file) for file in files], **more)


def apart(table, name):
    """Split a column of lists into arrays."""
    column = table[name]
    assert isinstance(column, Lists)
    return np.split(column.values, column.lengths.cumsum()[:-1])


def same(table, rows, bands=True):
    """Assert that a table has these objects, in any order."""
    assert sorted(table["id"].tolist()) == sorted(row["objectId"] for row in rows)
    place = {name: number for number, name in enumerate(table["id"].tolist())}
    found = {ours: apart(table, ours) for ours in POINTS if ours in table}
    assert {"time", "value", "error"} <= set(found)
    assert ("band" in found) == bands
    assert found["time"][0].dtype == np.float64
    for row in rows:
        for ours, column in found.items():
            np.testing.assert_array_equal(column[place[row["objectId"]]], row[POINTS[ours]], err_msg=ours)
