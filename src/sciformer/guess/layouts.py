"""What columns of events mean, by their names: momenta of particles, types, tracks, classes and weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..data.source import Array, Lists, Table
from ..errors import UserError

PARTS = {"px": "px", "py": "py", "pz": "pz", "energy": "energy", "e": "energy", "en": "energy", "pt": "pt"}
PARTS |= {"eta": "eta", "rapidity": "eta", "phi": "phi", "mass": "mass", "m": "mass"}
END = re.compile(rf"(?P<stem>|.*[_.]|.*[a-z0-9](?=(?-i:[A-Z])))(?P<part>{'|'.join(PARTS)})", re.IGNORECASE)
VECTOR = ("part_px", "part_py", "part_pz", "part_energy")
TYPES = ("isChargedHadron", "isNeutralHadron", "isPhoton", "isElectron", "isMuon")
CODES = ("pdgid", "pid", "pdg_id", "pdg")
TRACKS = {
    "part_d0val": ("d0val", "d0", "dxy"),
    "part_d0err": ("d0err", "errord0", "dxyerr"),
    "part_dzval": ("dzval", "dz"),
    "part_dzerr": ("dzerr", "errordz"),
}
KNOWN = {"part_": "JetClass", "PFCands_": "NanoAOD with PF candidates", "ParticleFlowCandidate.": "Delphes"}
KNOWN |= {"": "names without a prefix"}
LIKELY = ("part", "pfcand", "particleflow", "constit", "particle", "cand", "track")  # the likeliest first
OTHERS = re.compile(r"gen|truth|aux|sv|vert|jet|muon|electron|tau|photon|met|lep|tower|trig")
LABEL: tuple[str, ...] = (
    "label",
    "jet_label",
    "is_signal_new",
    "is_signal",
    "issignal",
    "truth_label",
    "target",
    "class",
    "jet_class",
)
LABEL += ("category", "y", "jet_flavour", "jet_flavor", "flavour", "flavor", "signal", "process")
FLAGS = ("label_", "jet_is", "fj_is", "is_", "is")
WEIGHT = ("weight", "weights", "eventweight", "evtweight", "mcweight", "genweight", "sampleweight")
WATCHED = re.compile(r"(jet|fj|ak\d+|fatjet)[_.](?!size$)\w+$|(event|run|luminosityblock)$", re.IGNORECASE)
CLASSES = 1000  # at most

Kinds = Mapping[str, str]  # of columns: `list` or `value`


@dataclass(frozen=True)
class Layout:
    """Particles as they lie in a file: where they are, and what could be added."""

    name: str
    parts: dict[str, str]
    own: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """All columns that may be of use."""
        known = {
            "charge",
            *(name.lower() for name in TYPES),
            *CODES,
            *(one for names in TRACKS.values() for one in names),
        }
        more = [name for end, name in self.own.items() if end in known]
        return list(dict.fromkeys([*self.parts.values(), *more]))


def particles(kinds: Kinds) -> Layout:
    """The particles in columns of these names; where there are several sets, the likeliest."""
    lists = [name for name, kind in kinds.items() if kind == "list"]
    whole = {stem: parts for stem, parts in groups(lists).items() if complete(parts)}
    if not any(map(_rank, whole)):
        lists = [name for parts in whole.values() for name in parts.values()] or lists
        shown = ", ".join(lists[:12]) + (", ..." if len(lists) > 12 else "")
        seen = f"only {'other objects: ' if whole else ''}{shown}"
        seen = seen if lists else f"no lists among {', '.join(list(kinds)[:12])}"
        needed = "lists of px, py, pz and energy, or of pt, eta, phi and energy or mass"
        raise UserError(
            f"particles are missing: each jet needs {needed}, and there are {seen}",
            hint="Make these columns in data.new of a recipe; its keys: sciformer recipes jets/part",
        )
    stem = max(whole, key=_rank)
    own = {name[len(stem) :].lower(): name for name in lists if name.startswith(stem)}
    others = [f"{one}{next(iter(whole[one].values()))[len(one) :]}" for one in whole if one != stem]
    notes = [f"Other sets of momenta, not used: {', '.join(others[:6])}"] if others else []
    if any("jet" in one.lower() for one in whole if one != stem):
        notes.append(
            "There are lists of jets: each entry seems to be an event, and its particles are taken as one set."
        )
    return Layout(KNOWN.get(stem, f"columns called {stem}..."), whole[stem], own, tuple(notes))


def groups(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Parts of momenta by what stands before them: {"part_": {"px": "part_px", ...}}."""
    made: dict[str, dict[str, str]] = {}
    for name in names:
        if match := END.fullmatch(name):
            made.setdefault(match["stem"], {}).setdefault(PARTS[match["part"].lower()], name)
    return made


def complete(parts: Kinds) -> bool:
    """Whether they make a four-vector; one of pt, eta and phi alone has no mass."""
    found = set(parts)
    return ({"px", "py", "pz"} <= found and bool({"energy", "mass"} & found)) or {"pt", "eta", "phi"} <= found


def _rank(stem: str) -> int:
    plain = re.sub(r"[^a-z]", "", stem.lower())
    if stem in KNOWN:
        return len(LIKELY) + 2
    if not plain.startswith(LIKELY[:3]) and OTHERS.search(plain):
        return 0
    return 1 + max((len(LIKELY) - place for place, word in enumerate(LIKELY) if word in plain), default=0)


def formulas(layout: Layout, table: Table) -> tuple[str, dict[str, str]]:
    """The set of features that the columns allow, and formulas for columns that have other names or none."""
    new = momenta(layout.parts)
    kinds, tracks = _types(layout.own), _tracks(table, layout.own)
    if kinds is None:
        return "kin", new
    return ("kinpid", new | kinds) if tracks is None else ("full", new | kinds | tracks)


def momenta(parts: Kinds) -> dict[str, str]:
    """Formulas for the columns of VECTOR that have other names, or none."""
    if {"px", "py", "pz"} <= set(parts):
        px, py, pz = (parts[key] for key in ("px", "py", "pz"))
        energy = parts.get("energy") or f"sqrt({px}**2 + {py}**2 + {pz}**2 + {parts.get('mass')}**2)"
        wanted = dict(zip(VECTOR, (px, py, pz, energy)))
    else:
        pt, eta, phi = (parts[key] for key in ("pt", "eta", "phi"))
        momentum = f"{pt} * cosh({eta})"
        energy = parts.get("energy") or (f"sqrt(({momentum})**2 + {parts['mass']}**2)" if "mass" in parts else momentum)
        wanted = dict(zip(VECTOR, (f"{pt} * cos({phi})", f"{pt} * sin({phi})", f"{pt} * sinh({eta})", energy)))
    return {name: formula for name, formula in wanted.items() if formula != name}


def _types(own: Kinds) -> dict[str, str] | None:
    """Formulas for charge and types; none where they cannot be known."""
    code = next((own[name] for name in CODES if name in own), None)
    charge = own.get("charge")
    if charge is not None and all(name.lower() in own for name in TYPES):
        wanted = {"part_charge": charge, **{f"part_{name}": own[name.lower()] for name in TYPES}}
        return {name: column for name, column in wanted.items() if name != column}
    if charge is None or code is None:
        return None
    lepton = f"(abs({code}) == 11) | (abs({code}) == 13)"
    made = {
        "part_charge": charge,
        "part_isChargedHadron": f"({charge} != 0) & ~({lepton})",
        "part_isNeutralHadron": f"({charge} == 0) & (abs({code}) != 22)",
        "part_isPhoton": f"abs({code}) == 22",
        "part_isElectron": f"abs({code}) == 11",
        "part_isMuon": f"abs({code}) == 13",
    }
    return {name: formula for name, formula in made.items() if name != formula}


def _tracks(table: Table, own: Kinds) -> dict[str, str] | None:
    """Formulas for impact parameters and their errors, zero where a particle has none; none without such columns."""
    made = {}
    for wanted, names in TRACKS.items():
        name = next((own[one] for one in names if one in own), None)
        if name is None:
            return None
        column = table[name]
        whole = isinstance(column, Lists) and bool(np.isfinite(column.values).all())
        if name != wanted or not whole:
            made[wanted] = name if whole else f"where(isfinite({name}), {name}, 0)"
    return made


# What stands beside the particles


def useful(kinds: Kinds) -> list[str]:
    """Values of events that may be classes, weights or observers."""
    values = [name for name, kind in kinds.items() if kind == "value"]
    return [
        name
        for name in values
        if name.lower() in LABEL or name.startswith(FLAGS) or _weight_like(name) or WATCHED.match(name)
    ]


def classes(table: Table) -> dict[str, str]:
    """Columns with 1 for jets of a class, by the names of the classes, if there are such."""
    flat = {name: column for name, column in table.items() if not isinstance(column, Lists) and column.ndim == 1}
    for start in FLAGS:
        names = [name for name in flat if re.match(rf"{start}\w", name) and _flags(flat[name])]
        if len(names) > 1 and (np.sum([flat[name] for name in names], 0) == 1).all():
            return {name.removeprefix(start): name for name in names}
    return {}


def _flags(column: Array) -> bool:
    return column.dtype.kind in "biuf" and bool(np.isin(column, (0, 1)).all())


def label(table: Table) -> str:
    """The column with the class, or nothing."""
    lower = {name.lower(): name for name in table}
    return next((lower[name] for name in LABEL if name in lower and _whole(table[lower[name]])), "")


def _whole(column: Array | Lists) -> bool:
    if isinstance(column, Lists) or column.ndim != 1 or column.dtype.kind not in "biufU":
        return False
    if column.dtype.kind == "f" and not (np.isfinite(column).all() and (column == np.round(column)).all()):
        return False
    return 1 <= len(np.unique(column)) <= CLASSES


def weight(table: Table) -> tuple[str, str]:
    """The column with a weight for each jet, if there is one that can be used; or why not."""
    for name, column in table.items():
        if _weight_like(name) and not isinstance(column, Lists) and column.ndim == 1:
            good = column.dtype.kind in "iuf" and bool(np.isfinite(column).all() and (column >= 0).all())
            return (name, "") if good else ("", f"`{name}` has weights below zero, or NaN: it is not used")
    return "", ""


def _weight_like(name: str) -> bool:
    return name.lower().replace("_", "") in WEIGHT


def observers(table: Table, but: Iterable[str]) -> list[str]:
    """Numbers of jets that are worth keeping beside the answers."""
    left = set(but)
    return [
        name
        for name, column in table.items()
        if name not in left and WATCHED.match(name) and not isinstance(column, Lists) and column.ndim == 1
    ]


def by_class(names: Sequence[str]) -> list[str]:
    """The names with a tag for the class that each tells, where they tell two or more: HToBB:a/HToBB_000.root."""
    stems = {name: re.sub(r"[_.-]?\d+$", "", Path(name).name.partition(".")[0]) for name in names}
    told = all(re.fullmatch(r"[A-Za-z]\w*", stem) for stem in stems.values())
    return [f"{stem}:{name}" for name, stem in stems.items()] if told and len(set(stems.values())) > 1 else []
