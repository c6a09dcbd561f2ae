"""Which column of a table of light curves is what: as the user says, or by the names that surveys give."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

from ....errors import UserError, nearest

NONE = "none"  # what the user writes where a column of a usual name is not meant
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
INDEX = "indexlevel0"  # of a table of pandas without a name, in Parquet
LABEL = (
    *("label", "class", "classname", "vartype", "variabletype", "classification", "type", "labels", "simtypename"),
    *("target", "truelabel", "truetarget", "category", "spectype"),
)
QUALITY = ("quality", "sapquality", "catflags", "flags")
POINTS = ("time", "value", "error", "band", "limit", "quality")  # what an observation has
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


class Kind(NamedTuple):
    """What a column has for each row: a list of them or one, words or numbers."""

    listed: bool
    words: bool


@dataclass(frozen=True)
class Names:
    """Names of columns for what is known of an object and of its observations; empty where there is none."""

    time: str = ""
    value: str = ""
    error: str = ""
    band: str = ""
    limit: str = ""
    id: str = ""
    label: str = ""
    quality: str = ""

    def used(self) -> dict[str, str]:
        """What has a column."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {role: name for role, name in found.items() if name}


def plain(name: str) -> str:
    """A name without its case, signs, and the column it is nested in."""
    return re.sub(r"[^a-z0-9]", "", name.rpartition(".")[2].lower())


def find(name: str, names: Iterable[str]) -> list[str]:
    """The columns that a name means: its own, or those that have another case, or are nested and end so."""
    known = list(names)
    if name in known:
        return [name]
    ways = (lambda one: one.lower() == name.lower(), lambda one: one.rpartition(".")[2].lower() == name.lower())
    return next((found for way in ways if (found := [one for one in known if way(one)])), [])


def on_disk(path: Path | str) -> Path | None:
    """The path of a file, for the fields of an error; a table in memory has none."""
    return path if isinstance(path, Path) else None


def need(name: str, names: Iterable[str], path: Path | str, why: str, key: str | None = None) -> str:
    """The one column that a name means, or an error that names what is like it."""
    known = list(names)
    found = find(name, known)
    if len(found) == 1:
        return found[0]
    if found:
        several = f"`{name}` {why} means several columns of {path}: {', '.join(found)}"
        raise UserError(several, hint="Give the whole name.", key=key, file=on_disk(path))
    lacking = f"{path} has no column `{name}` {why}"
    raise UserError(lacking, hint=nearest(name, known), key=key, file=on_disk(path))


def resolve(kinds: Mapping[str, Kind], given: Names, path: Path | str) -> Names:
    """The columns of a table that has such ones: as given, others by their usual names; times and values must be."""
    named = {
        role: need(name, kinds, path, f"for data.{role}", f"data.{role}")
        for role, name in given.used().items()
        if name != NONE
    }
    refused = {role for role, name in given.used().items() if name == NONE}
    numbers = [name for name, kind in kinds.items() if not kind.words]
    nest = _nest(named)
    if "time" not in named:
        named["time"] = _one(TIME, numbers, kinds, nest, "time", path)
    listed, nest = kinds[named["time"]].listed, nest or _prefix(named["time"])
    beside = [name for name in numbers if kinds[name].listed == listed and _prefix(name) == nest]
    beside = [name for name in beside if name not in named.values()]
    if "value" not in named:
        named["value"] = _value(beside, refused, path)
    for role in ("time", "value", "error"):
        if role in named and kinds[named[role]].listed != listed:
            many, few = "a list for each object", "a number in each row"
            must, has = (many, few) if listed else (few, many)
            raise UserError(
                f"`{named[role]}` of {path} must have {must}, as `{named['time']}` has, not {has}",
                key=f"data.{role}",
                file=on_disk(path),
            )
        if role in named and kinds[named[role]].words:
            raise _worded(named[role], role, path)
    if not {"error"} & (named.keys() | refused):
        named["error"] = error_of(named["value"], beside)
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


ADVICE = {"time": "Write times as numbers of days, such as MJD."}


def error_of(value: str, names: Iterable[str]) -> str:
    """The column with the errors of a column of values, or nothing."""
    known = {plain(name): name for name in names}
    own = plain(value)
    ends = [f"{own}{end}" for end in ("err", "error", "sigma", "unc", "uncertainty", "std", "errs")]
    starts = [f"{start}{own}" for start in ("e", "err", "error", "sigma", "sig", "d", "unc")]
    apart = [own.replace(kind, f"{kind}err") for kind in ("flux", "mag") if kind in own and not own.endswith(kind)]
    return next((known[name] for name in (*ends, *starts, *apart, *ERROR) if name in known and name != own), "")


def hits(usual: Sequence[str], names: Iterable[str]) -> list[str]:
    """The columns with the first of the usual names that is there."""
    known = list(names)
    return next((found for one in usual if (found := [name for name in known if plain(name) == one])), [])


def _nest(named: Mapping[str, str]) -> str:
    """The column in which those that were named are nested."""
    return next((nest for role in POINTS if role in named and (nest := _prefix(named[role]))), "")


def _prefix(name: str) -> str:
    return name.rpartition(".")[0]


def _one(
    usual: Sequence[str], names: Sequence[str], kinds: Mapping[str, Kind], nest: str, role: str, path: Path | str
) -> str:
    """The column of the times: lists before numbers."""
    inside = [name for name in names if not nest or _prefix(name) == nest]
    found = hits(usual, [name for name in inside if kinds[name].listed]) or hits(usual, inside)
    if len(found) == 1:
        return found[0]
    if found:
        raise _several(role, found, path)
    if told := hits(usual, [name for name, kind in kinds.items() if kind.words]):
        raise _worded(told[0], role, path)
    raise _missing(role, kinds, path)


def _worded(name: str, role: str, path: Path | str) -> UserError:
    return UserError(
        f"`{name}` of {path} must have numbers for data.{role}, not words",
        hint=ADVICE.get(role, ""),
        key=f"data.{role}",
        file=on_disk(path),
    )


def _several(role: str, names: Sequence[str], path: Path | str) -> UserError:
    return UserError(
        f"{path} has several columns with {WORDS[role]}: {', '.join(names)}",
        hint=f"Say which: --data.{role} NAME",
        key=f"data.{role}",
        file=on_disk(path),
    )


def _missing(role: str, names: Iterable[str], path: Path | str) -> UserError:
    known = list(names)
    shown = ", ".join(known[:12]) + (f" and {len(known) - 12:,} more" if len(known) > 12 else "")
    return UserError(
        f"{path} has no column with a usual name for {WORDS[role]}: it has {shown or 'no columns'}",
        hint=f"Say which: --data.{role} NAME",
        key=f"data.{role}",
        file=on_disk(path),
    )


def _value(names: Sequence[str], refused: set[str], path: Path | str) -> str:
    """The column of the values: one with errors before others, and fluxes, which may be negative, before magnitudes."""
    usual = [name for one in (*FLUX, *MAGNITUDE) for name in names if plain(name) == one]
    paired = [name for name in usual if error_of(name, [other for other in names if other != name])]
    if usual:
        return (paired or usual)[0]
    odd = ("err", "sig", "lim", "unc", "std", "dmag", "dflux", "bkg", "background", "ref", "num", "zero")
    near = [name for name in names if re.search("mag|flux", plain(name)) and not any(o in plain(name) for o in odd)]
    if len(near) == 1:
        return near[0]
    if near:
        raise _several("value", near, path)
    raise _missing("value", names, path)
