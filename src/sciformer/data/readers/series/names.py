"""Roles of the columns of light curves, from the user or from common names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....errors import UserError, list_names, nearest
from ....files.formats.base import Kind

NONE = "none"  # value of a key that disables a column
TIME = (
    *("time", "mjd", "hjd", "bjd", "jd", "hmjd", "times", "t", "midpointmjdtai", "expmidptmjd", "obstime", "obsmjd"),
    *("timebjd", "bjdtdb", "btjd", "bkjd", "mjdobs", "epoch", "obsdate", "date", "day", "days"),
)
FLUX = (
    *("value", "pdcsapflux", "psfdiffflux", "psfflux", "forcediffimflux", "fluxcal", "scienceflux", "flux"),
    *("fluxes", "sapflux", "kspsapflux", "ujy", "detflux", "rate", "counts"),
)
MAGNITUDE = ("mag", "magnitude", "magpsf", "psfmag", "mags", "magnitudes", "m", "vmag", "imag", "gmag", "rmag", "y")
ERROR = ("error", "err", "errors", "uncertainty", "sigma", "sigmapsf", "yerr", "unc", "errs", "e")
BAND = (
    *("band", "bands", "filter", "passband", "fid", "filt", "filtername", "filterid", "bandpass", "filtercode", "flt"),
    "bandname",
)
LIMIT = ("limit", "upperlimit", "isupperlimit", "islimit", "uplim", "isul", "limits", "nondetection")
OBJECT = (
    *("objectid", "objid", "oid", "diaobjectid", "ztfid", "snid", "starid", "ticid", "tic", "kic", "epic", "keplerid"),
    *("sourceid", "object", "objectname", "objname", "obj", "star", "source", "targetid", "targname", "name", "cid"),
)
INDEX = "indexlevel0"  # unnamed pandas index in Parquet
LABEL = (
    *("label", "class", "classname", "vartype", "variabletype", "classification", "type", "labels", "simtypename"),
    *("target", "truelabel", "truetarget", "category", "spectype"),
)
QUALITY = ("quality", "sapquality", "catflags", "flags")
POINTS = ("time", "value", "error", "band", "limit", "quality")  # roles of an observation
WORDS = {
    "time": "times",
    "value": "magnitudes or fluxes",
    "error": "errors",
    "band": "bands",
    "limit": "upper limits",
    "id": "objects",
    "label": "classes",
    "quality": "flags",
}


@dataclass(frozen=True)
class Names:
    """Column name of each role; empty if no column has this role."""

    time: str = ""
    value: str = ""
    error: str = ""
    band: str = ""
    limit: str = ""
    id: str = ""
    label: str = ""
    quality: str = ""

    def used(self) -> dict[str, str]:
        """Roles with a column: {role: column name}."""
        return {role: name for role, name in vars(self).items() if name}


def plain(name: str) -> str:
    """Normalise a column name: lower case letters and digits of the inner name."""
    return re.sub(r"[^a-z0-9]", "", name.rpartition(".")[2].lower())


def find(name: str, names: Iterable[str]) -> list[str]:
    """Columns with this name: the exact name, else ignoring case, else the inner name.

    The inner name is the last part of `outer.inner`, compared ignoring case.
    """
    known = list(names)
    if name in known:
        return [name]
    ways = (lambda one: one.lower() == name.lower(), lambda one: one.rpartition(".")[2].lower() == name.lower())
    return next((found for way in ways if (found := [one for one in known if way(one)])), [])


def column_error(path: Path | str, message: str, hint: str = "", key: str | None = None) -> UserError:
    """A `UserError` with the file as a field (None for a table in memory)."""
    return UserError(message, hint=hint, key=key, file=path if isinstance(path, Path) else None)


def need(name: str, names: Iterable[str], path: Path | str, why: str, key: str | None = None) -> str:
    """Find the column of a name; no column, or several columns, are an error."""
    known = list(names)
    found = find(name, known)
    if len(found) == 1:
        return found[0]
    if found:
        several = f"`{name}` {why} matches several columns of {path}: {', '.join(found)}"
        raise column_error(path, several, "Give the full name.", key)
    raise column_error(path, f"{path} has no column `{name}` {why}", nearest(name, known), key)


def resolve(kinds: Mapping[str, Kind], given: Names, path: Path | str) -> Names:
    """Find the column of each role; times and values are required."""
    told = given.used()
    refused = {role for role, name in told.items() if name == NONE}
    named = {
        role: need(name, kinds, path, f"for data.{role}", f"data.{role}")
        for role, name in told.items()
        if role not in refused
    }
    numbers = [name for name, kind in kinds.items() if not kind.words]
    nest = next((prefix for role in POINTS if role in named and (prefix := _prefix(named[role]))), "")
    if "time" not in named:
        named["time"] = _time(numbers, kinds, nest, path)
    listed, nest = kinds[named["time"]].listed, nest or _prefix(named["time"])
    beside = [name for name in numbers if kinds[name].listed == listed and _prefix(name) == nest]
    beside = [name for name in beside if name not in named.values()]
    if "value" not in named:
        named["value"] = _value(beside, path)
    for role, name in named.items():
        expected = listed and role in POINTS
        if kinds[name].listed != expected and not (listed and role == "band"):
            forms = ("a value in each row", "a list in each row")
            like = f" as `{named['time']}` has," if role in POINTS else ""
            message = f"`{name}` of {path} must have {forms[expected]},{like} not {forms[not expected]}"
            raise column_error(path, message, key=f"data.{role}")
        if role in ("time", "value", "error") and kinds[name].words:
            raise _text_column_error(name, role, path)
    if "error" not in named.keys() | refused:
        named["error"] = error_of(named["value"], beside)
        texts = [name for name, kind in kinds.items() if kind.words and kind.listed == listed and _prefix(name) == nest]
        if not named["error"] and (worded := error_of(named["value"], texts)):
            raise _text_column_error(worded, "error", path)
    free = [name for name in kinds if name not in named.values()]
    points = [name for name in free if kinds[name].listed == listed and _prefix(name) == nest]
    single = [name for name in free if not kinds[name].listed]
    usual: dict[str, tuple[Sequence[str], Sequence[str]]] = {
        "band": (BAND, [*points, *single]),
        "limit": (LIMIT, points),
        "id": (("id", *OBJECT, INDEX) if listed else (*OBJECT, "id"), single),
        "label": (LABEL, single),
    }
    for role, (names, among) in usual.items():
        if role not in named and role not in refused:
            left = [name for name in among if name not in named.values()]
            named[role] = next(iter(hits(names, left)), "")
    return Names(**named)


def error_of(value: str, names: Iterable[str]) -> str:
    """Column name of the errors of the column `value`; "" if there is none."""
    known = {plain(name): name for name in names}
    own = plain(value)
    ends = [f"{own}{end}" for end in ("err", "error", "sigma", "unc", "uncertainty", "std", "errs")]
    starts = [f"{start}{own}" for start in ("e", "err", "error", "sigma", "sig", "d", "unc")]
    apart = [own.replace(kind, f"{kind}err") for kind in ("flux", "mag") if kind in own and not own.endswith(kind)]
    return next((known[name] for name in (*ends, *starts, *apart, *ERROR) if name in known and name != own), "")


def hits(usual: Sequence[str], names: Iterable[str]) -> list[str]:
    """Columns with a name in `usual`, in the order of `usual`."""
    known = list(names)
    return next((found for one in usual if (found := [name for name in known if plain(name) == one])), [])


def _prefix(name: str) -> str:
    return name.rpartition(".")[0]


def _time(names: Sequence[str], kinds: Mapping[str, Kind], nest: str, path: Path | str) -> str:
    """Name of the time column, preferably a column of lists."""
    inside = [name for name in names if not nest or _prefix(name) == nest]
    found = hits(TIME, [name for name in inside if kinds[name].listed]) or hits(TIME, inside)
    if len(found) == 1:
        return found[0]
    if not found and (worded := hits(TIME, [name for name, kind in kinds.items() if kind.words])):
        raise _text_column_error(worded[0], "time", path)
    raise _unclear_role_error("time", found, kinds, path)


def _text_column_error(name: str, role: str, path: Path | str) -> UserError:
    message = f"`{name}` of {path} must have numbers for data.{role}, not strings"
    hints = {"time": "Convert times to days, such as MJD.", "error": "Ignore the column: --data.error none."}
    return column_error(path, message, hints.get(role, ""), f"data.{role}")


def _unclear_role_error(role: str, found: Sequence[str], names: Iterable[str], path: Path | str) -> UserError:
    """Error for several columns, or no column, with a common name of a role."""
    shown = list_names(names) or "none"
    message = f"{path} has no column with a common name for {WORDS[role]}: its columns are {shown}"
    if found:
        message = f"{path} has several columns of {WORDS[role]}: {', '.join(found)}"
    return column_error(path, message, f"Choose one: --data.{role} NAME", f"data.{role}")


def _value(names: Sequence[str], path: Path | str) -> str:
    """Name of the value column.

    Columns that have errors are preferred, and then fluxes over magnitudes.
    """
    usual = [name for one in (*FLUX, *MAGNITUDE) for name in names if plain(name) == one]
    paired = [name for name in usual if error_of(name, [other for other in names if other != name])]
    if usual:
        return (paired or usual)[0]
    odd = ("err", "sig", "lim", "unc", "std", "dmag", "dflux", "bkg", "background", "ref", "num", "zero")
    near = [name for name in names if re.search("mag|flux", plain(name)) and not any(o in plain(name) for o in odd)]
    if len(near) == 1:
        return near[0]
    raise _unclear_role_error("value", near, names, path)
