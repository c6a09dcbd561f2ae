"""Guessed recipes for jets: columns of particles, classes and weights in files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...data.columns import Array, Lists, Table, concatenate
from ...data.fileset import split_tag
from ...data.readers.events.reader import EventFiles
from ...data.readers.formula import Formula
from ...data.source import find_files
from ...errors import UserError
from ...files.formats.base import Layout, TableFile, opened, release
from ...recipe import guess
from ...recipe.given import Given
from ...recipe.page import Found, Page
from .features import TYPE_FLAGS, VECTOR_COLUMNS

BACKGROUND_NAMES = ("qcd", "background", "bkg")
MASS_NAMES = ("jet_sdmass", "jet_msoftdrop", "jet_mass", "fj_sdmass", "fj_mass")
MAX_LISTED_FILES = 8  # unreadable files listed by name
MAX_OBSERVERS = 24
SIZES: guess.Sizes = {0: (32, 2, 4), 5000: (64, 4, 8)}
PAPER_JETS = 100_000  # number of jets for a model as large as in the paper
EPOCHS, BATCHES = 20, {0: 32, 5000: 128, PAPER_JETS: 512}
ROWS_PER_SAMPLE, SAMPLES_PER_FILE, MAX_SAMPLED_FILES = 400, 3, 8  # size of the inspected sample
MAX_COUNTED_FILES = 50  # files whose rows are counted
# The first of these trees is read if a file has several.
TREE_NAMES = ("tree", "Events", "Delphes", "events", "CollectionTree", "t")
PARTICLE_CODES = {0, 11, 12, 13, 22, 130, 211, 310, 321, 2112, 2212}  # PDG codes |id| of a column of particle types
FEATURE_REASONS = {
    "kin": "7, from momenta; no columns of charge and type (part_charge, part_isPhoton, ...)",
    "kinpid": "13: momenta, charge and type; no columns of impact parameters (part_d0val, part_d0err, ...)",
    "full": "17: momenta, charge, type and impact parameters (in mm, as in JetClass)",
}


class FoundJets(NamedTuple):
    """Content of files of jets, as found by `inspect_files`.

    table      sampled rows
    samples    number of jets
    form       layout of the files
    particles  columns of particles
    bad        notes on unreadable files
    columns    names of all columns
    """

    table: Table
    samples: int
    form: Layout
    particles: ParticleColumns
    bad: list[str]
    columns: list[str]


def guess_jets(names: list[str], paths: list[Path], given: Given) -> Page:
    """Guess a recipe of a Particle Transformer for the jets in the files."""
    parts = given.parts(names)
    keys = given.section(EventFiles, {"kind": "events"}, **guess.part_fields(parts))
    asked = [name for formula in (*keys.classes.values(), keys.weight) if formula for name in Formula(formula).names]
    asked += [*([keys.label] if keys.label else []), *given.listed("objective.targets")]
    seen = inspect_files(find_files([split_tag(name)[1] for name in parts["train"]]), keys, asked)
    ask = _find_question(seen.table, names, parts, keys, given)
    weight, why = find_weight(seen.table)
    observers = ["file"] * (len(paths) > 1) + ["entry", *find_observers(seen.table, [*ask.columns, weight])]
    if ask.base != "jets/part":  # masked modelling uses no weights
        weight = why = ""
    momenta = ", ".join(seen.particles.parts.values())
    left_out = len(seen.bad) - MAX_LISTED_FILES
    notes = [
        f"Found: {seen.samples:,} entries; {seen.particles.name}; momenta in {momenta}.",
        *seen.particles.notes,
        *seen.bad[:MAX_LISTED_FILES],
        *([f"... and {left_out:,} more unreadable files."] if left_out > 0 else []),
        *ask.notes,
        *([f"No weights: {why}."] if why else []),
    ]
    found = [
        Found("base", ask.base, "source of all other keys"),
        Found("data.kind", "events"),
        *guess.files(ask.parts, bool(seen.bad)),
        Found("data.tree", seen.form.tree or None, "one of several trees in the file"),
        Found("data.axes", seen.form.axes or None, "names of the entries of the array"),
        *_token_keys(seen),
        *ask.found,
        Found("data.observers", observers[:MAX_OBSERVERS], "copied to the predictions; `entry`: row in its `file`"),
        Found("data.weight", weight or None, f"column `{weight}`"),
        Found("objective.weight", "weight" if weight else None, "weight of each jet in the loss"),
        *guess.split(parts, seen.samples, "jets"),
        *(guess.model(seen.samples, "jets (in the paper 128)", SIZES, None) if seen.samples < PAPER_JETS else []),
        *guess.training(seen.samples, EPOCHS, BATCHES, parts=parts),
    ]
    roles = {**seen.particles.parts, "class": ", ".join(ask.columns), "weight": weight}
    used = {*seen.particles.columns, *ask.columns, weight, *observers}
    unused = [name for name in seen.columns if name not in used]
    return Page("Particle Transformer", paths, f"{seen.samples:,} jets", notes, "jets/part", found, roles, unused)


def _token_keys(seen: FoundJets) -> list[Found]:
    features, new = feature_formulas(seen.particles, seen.table)
    column = seen.table[next(iter(seen.particles.parts.values()))]
    assert isinstance(column, Lists)
    longest, mean = int(column.lengths.max(initial=1)), float(column.lengths.mean())
    most = min(128, max(8, -(-longest // 8) * 8))
    widths, pair_widths = ([64], [32]) if seen.samples < 5000 else ([64, 128], [64, 64])
    small = seen.samples < PAPER_JETS
    return [
        Found("data.new", new or None, "columns computed by formulas, named as in JetClass"),
        Found("tokens.kind", "particles"),
        Found("tokens.vector", list(VECTOR_COLUMNS), "momentum and energy; the feature scales assume GeV"),
        Found("tokens.features", features, FEATURE_REASONS[features]),
        Found("tokens.max_tokens", most, f"highest pT first; {mean:.0f} particles on average, at most {longest}"),
        Found("tokens.widths", widths if small else None, f"small model for {seen.samples:,} jets"),
        Found("tokens.pair_widths", pair_widths if small else None),
    ]


# Contents of the files


def inspect_files(paths: Sequence[Path], keys: EventFiles | None = None, asked: Sequence[str] = ()) -> FoundJets:
    """Find the columns of the first readable file, and sample rows of several files.

    keys    section `data` with the keys set by the user
    asked   further columns of jets to read
    """
    keys = keys or EventFiles(kind="events")
    try:
        some, form, bad = _readable_files(paths[:: max(1, len(paths) // MAX_COUNTED_FILES)], keys)
        kinds = {name.rpartition("/")[2]: kind for name, kind in opened(some[0], form).columns.items()}
        particles = find_particles(kinds)
        wanted = list(dict.fromkeys([*particles.columns, *event_columns(kinds), *asked]))
        tables: list[Table] = []
        for path in some[:: max(1, len(some) // MAX_SAMPLED_FILES)]:
            if len(tables) < MAX_SAMPLED_FILES * SAMPLES_PER_FILE:
                tables += _sample_rows(opened(path, form), wanted)
        count = sum(opened(path, form).rows for path in some)
        count = guess.check_count(round(count * len(paths) / (len(some) + len(bad))), "jets", bad)
        return FoundJets(concatenate(tables), count, form, particles, bad, list(kinds))
    finally:
        release(paths)


def _readable_files(paths: Sequence[Path], keys: EventFiles) -> tuple[list[Path], Layout, list[str]]:
    """Readable files, layout of the first file, and notes on unreadable files."""
    form: Layout | None = None
    good, wrong = list[Path](), dict[Path, UserError]()
    for path in paths:
        try:
            form = form or _file_layout(path, keys)
            opened(path, form)
            good.append(path)
        except UserError as error:
            wrong[path] = error
    if form is None or not good:
        raise next(iter(wrong.values()))
    return good, form, [f"left out {path}: {e.message}." for path, e in wrong.items()]


def _sample_rows(file: TableFile, names: Sequence[str]) -> list[dict[str, Array | Lists]]:
    """Sample rows at the start, middle and end: files may be sorted by class."""
    real = {name: file.need(name, f"as in the first of the files, {name}") for name in names}
    starts = sorted({int(start) for start in np.linspace(0, max(0, file.rows - ROWS_PER_SAMPLE), SAMPLES_PER_FILE)})
    if len(starts) > 1 and starts[1] < ROWS_PER_SAMPLE:
        starts = [0]
    stop = file.rows if len(starts) == 1 else ROWS_PER_SAMPLE
    found = [file.read(list(real.values()), start, min(file.rows, start + stop)) for start in starts]
    return [{name: table[column] for name, column in real.items()} for table in found]


def _file_layout(path: Path, keys: EventFiles) -> Layout:
    """Layout of a file: name of the tree, and names for the last axis of arrays."""
    given = Layout(keys.tree, keys.mask, keys.axes, keys.label)
    try:
        file = opened(path, given)
        axes = keys.axes or _guess_axes(file)
    except UserError as error:
        if error.key != "data.tree":
            raise
        for tree in TREE_NAMES:
            with suppress(UserError):
                opened(path, replace(given, tree=tree))
                return replace(given, tree=tree)
        raise
    if keys.label:
        return replace(given, axes=axes)
    others = [name for name in LABEL_NAMES if name in file.others]
    words = next((name for name in others if name in opened(path, replace(given, words=name)).columns), "")
    return replace(given, axes=axes, words=words)


def _guess_axes(file: TableFile) -> dict[str, list[str]]:
    """Names for the last axis of an array (n, particles, 4), guessed from its values."""
    for stem in {name[:-2] for name in file.columns if name.endswith("_0")}:
        names = [f"{stem}_{number}" for number in range(4)]
        if not all(file.columns.get(name) == "list" for name in names) or f"{stem}_4" in file.columns:
            continue
        table: dict[str, Any] = file.read(names, 0, min(file.rows, ROWS_PER_SAMPLE))
        a, b, c, d = (table[name].values.astype(np.float64) for name in names)
        if (np.abs(d) == np.round(np.abs(d))).all() and set(np.abs(d).astype(int)) <= PARTICLE_CODES:
            return {stem: ["part_pt", "part_rapidity", "part_phi", "part_pid"]}
        if (a**2 * 1.001 >= b**2 + c**2 + d**2).all():
            return {stem: ["part_energy", "part_px", "part_py", "part_pz"]}
        if (d**2 * 1.001 >= a**2 + b**2 + c**2).all():
            return {stem: ["part_px", "part_py", "part_pz", "part_energy"]}
    return {}


# Objective


class Question(NamedTuple):
    """Guessed objective with its keys, notes, files of each part, and columns of the target."""

    found: list[Found]
    notes: list[str]
    parts: dict[str, list[str]]
    columns: list[str]
    base: str = "jets/part"


def _find_question(
    table: Table, names: list[str], parts: dict[str, list[str]], keys: EventFiles, given: Given
) -> Question:
    """Choose the objective: classification, regression, or masked particles.

    Classification needs classes in the files, regression needs targets from the user.
    """

    def classify() -> Question | str:
        return _find_classes(table, names, parts, keys)

    def regress() -> Question | str:
        targets = given.listed("objective.targets")
        if not targets:
            return "No values: name them with --objective.targets." if given.get("objective.kind") == "regress" else ""
        return Question(guess.regress(targets[0], "given").found, [], parts, targets)

    def masked() -> Question:
        return Question([], ["The model learns to predict hidden particles."], parts, [], "jets/part-masked")

    kind = "classify" if given.get("objective.kind") == "classify" else "discriminate"
    return guess.choose(given, {kind: classify, "regress": regress, "masked": masked})


def _find_classes(table: Table, names: list[str], parts: dict[str, list[str]], keys: EventFiles) -> Question | str:
    flags, column = keys.classes or find_class_flags(table), keys.label or find_label(table)
    if keys.label:
        flags = {}
    tags = sorted({split_tag(name)[0] for name in names})
    if any(tags):
        for missing in (name for name in names if not split_tag(name)[0]):
            hint = "Write CLASS:NAME for all files, or NAME for all files."
            raise UserError(f"{missing} has no class tag, but other files have one", hint=hint, file=missing)
        notes = [f"Classes, from the tags of the files: {', '.join(tags)}."]
        return Question(_rejection_keys(tags, table), notes, parts, [])
    if flags:
        empty = [name for name, one in flags.items() if one in table and not np.asarray(table[one]).any()]
        seen = [name for name in flags if name not in empty]
        notes = [f"Classes: {', '.join(seen)}."]
        notes += [f"Classes without a jet in the sampled rows: {', '.join(empty)}."] if empty else []
        classes = Found("data.classes", flags, "column of each class, 1 for its jets")
        return Question([classes, *_rejection_keys(seen, table)], notes, parts, list(flags.values()))
    if column:
        values = np.unique(np.asarray(table[column]))
        words = values.tolist() if values.dtype.kind == "U" else []
        shown = guess.list_names(words or [f"{value:g}" for value in values.tolist()])
        rare = guess.rare_classes(np.asarray(table[column]), "jets")
        label = Found("data.label", column, "column of the class")
        notes = [f"Classes, from `{column}` in the sampled rows: {shown}.", *rare]
        return Question([label, *_rejection_keys(words, table)], notes, parts, [column])
    if tag_by_class(parts["train"]):
        parts = {part: tag_by_class(some) for part, some in parts.items()}
        notes = ["No class column was found: the file names are used as classes."]
        return Question(_rejection_keys([], table), notes, parts, [])
    return "No class column was found: set --data.label or data.classes, or tag the files: HToBB:a.root QCD:b.root"


def _rejection_keys(names: Sequence[str], table: Table) -> list[Found]:
    lower = {name.lower(): name for name in names}
    background = next((lower[name] for name in BACKGROUND_NAMES if name in lower and len(names) > 1), "")
    mass = next((name for name in MASS_NAMES if name in table), None) if background else None
    rejected = "class to reject; scores are its rejections at 50 % signal efficiency"
    return [
        Found("objective.kind", "discriminate"),
        Found("objective.background", background, rejected if background else "class to reject, if any"),
        Found("objective.efficiencies", {}, "other signal efficiencies, {NAME: 0.99}"),
        Found("objective.spectrum", mass, "the report shows this background spectrum before and after cuts"),
    ]


JETS = guess.Guess(guess_jets, tagged=True)


# Meaning of columns by their names: momenta, types and tracks of particles, classes and weights of jets


MOMENTUM_NAMES = {name: name for name in ("px", "py", "pz", "energy", "pt", "eta", "phi", "mass")}
MOMENTUM_NAMES |= {"e": "energy", "en": "energy", "rapidity": "eta", "m": "mass"}
MOMENTUM_PATTERN = re.compile(
    rf"(?P<stem>|.*[_.]|.*[a-z0-9](?=(?-i:[A-Z])))(?P<part>{'|'.join(MOMENTUM_NAMES)})", re.IGNORECASE
)
PDG_CODE_NAMES = ("pdgid", "pid", "pdg_id", "pdg")
TRACK_NAMES = {
    "part_d0val": ("d0val", "d0", "dxy"),
    "part_d0err": ("d0err", "errord0", "dxyerr"),
    "part_dzval": ("dzval", "dz"),
    "part_dzerr": ("dzerr", "errordz"),
}
KNOWN_PREFIXES = {"part_": "JetClass", "PFCands_": "NanoAOD with PF candidates", "ParticleFlowCandidate.": "Delphes"}
KNOWN_PREFIXES[""] = "names without a prefix"
LIKELY_PREFIXES = ("part", "pfcand", "particleflow", "constit", "particle", "cand", "track")  # most likely first
OTHER_OBJECTS = re.compile(r"gen|truth|aux|sv|vert|jet|muon|electron|tau|photon|met|lep|tower|trig")
LABEL_NAMES = (
    *("label", "jet_label", "is_signal_new", "is_signal", "issignal", "truth_label", "target", "class", "jet_class"),
    *("category", "y", "jet_flavour", "jet_flavor", "flavour", "flavor", "signal", "process"),
)
CLASS_FLAG_PREFIXES = ("label_", "jet_is", "fj_is", "is_", "is")
WEIGHT_NAMES = ("weight", "weights", "eventweight", "evtweight", "mcweight", "genweight", "sampleweight")
OBSERVER_PATTERN = re.compile(r"(jet|fj|ak\d+|fatjet)[_.](?!size$)\w+$|(event|run|luminosityblock)$", re.IGNORECASE)

ColumnKinds = Mapping[str, str]  # kind of each column: `list` or `value`


class ParticleColumns(NamedTuple):
    """Columns of a set of particles.

    name    description of the set
    parts   columns of the momenta, by component
    own     all columns of the set, by the name without the common prefix
    notes   notes on other sets in the files
    """

    name: str
    parts: dict[str, str]
    own: dict[str, str]
    notes: list[str]

    @property
    def columns(self) -> list[str]:
        known = {"charge", *(name.lower() for name in TYPE_FLAGS), *PDG_CODE_NAMES, *chain(*TRACK_NAMES.values())}
        more = [name for end, name in self.own.items() if end in known]
        return list(dict.fromkeys([*self.parts.values(), *more]))


def find_particles(kinds: ColumnKinds) -> ParticleColumns:
    """Find the columns that most likely hold the particles."""
    lists = [name for name, kind in kinds.items() if kind == "list"]
    whole = {stem: parts for stem, parts in group_momenta(lists).items() if is_four_vector(parts)}
    if not any(map(_rank_prefix, whole)):
        lists = [name for parts in whole.values() for name in parts.values()] or lists
        seen = f"no column has lists; the columns are {', '.join(list(kinds)[:12])}"
        if lists:
            begins = "the momenta belong to other objects" if whole else "the columns with lists are"
            seen = f"{begins}: {', '.join(lists[:12])}{', ...' * (len(lists) > 12)}"
        needed = "px, py, pz and energy, or pt, eta, phi and energy or mass"
        raise UserError(
            f"the files have no lists of particle momenta ({needed}); {seen}",
            hint="Define these columns in data.new; `sciformer recipes jets/part` shows this key.",
        )
    stem = max(whole, key=_rank_prefix)
    own = {name[len(stem) :].lower(): name for name in lists if name.startswith(stem)}
    others = [f"{one}{next(iter(whole[one].values()))[len(one) :]}" for one in whole if one != stem]
    notes = [f"Other sets of momenta (not used): {', '.join(others[:6])}"] if others else []
    if any("jet" in one.lower() for one in whole if one != stem):
        notes.append("The files have lists of jets: each row seems to be an event with one set of particles.")
    return ParticleColumns(KNOWN_PREFIXES.get(stem, f"columns called {stem}..."), whole[stem], own, notes)


def group_momenta(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Group components of momenta by prefix: {"part_": {"px": "part_px", ...}}."""
    made: dict[str, dict[str, str]] = {}
    for name in names:
        if match := MOMENTUM_PATTERN.fullmatch(name):
            made.setdefault(match["stem"], {}).setdefault(MOMENTUM_NAMES[match["part"].lower()], name)
    return made


def is_four_vector(parts: ColumnKinds) -> bool:
    """Whether components of a momentum form a four-vector.

    With only pt, eta and phi, the mass is 0.
    """
    cartesian = {"px", "py", "pz"} <= set(parts) and ("energy" in parts or "mass" in parts)
    return cartesian or {"pt", "eta", "phi"} <= set(parts)


def _rank_prefix(stem: str) -> int:
    plain = re.sub(r"[^a-z]", "", stem.lower())
    if stem in KNOWN_PREFIXES:
        return len(LIKELY_PREFIXES) + 2
    if not plain.startswith(LIKELY_PREFIXES[:3]) and OTHER_OBJECTS.search(plain):
        return 0
    return 1 + max((len(LIKELY_PREFIXES) - i for i, word in enumerate(LIKELY_PREFIXES) if word in plain), default=0)


def feature_formulas(layout: ParticleColumns, table: Table) -> tuple[str, dict[str, str]]:
    """Largest feature set that the columns allow, and formulas for features without a column."""
    new = momentum_formulas(layout.parts)
    kinds, tracks = _type_formulas(layout.own), _track_formulas(table, layout.own)
    if kinds is None:
        return "kin", new
    return ("kinpid", new | kinds) if tracks is None else ("full", new | kinds | tracks)


def momentum_formulas(parts: ColumnKinds) -> dict[str, str]:
    """Formulas for missing columns of the particle momenta (px, py, pz, energy)."""
    if {"px", "py", "pz"} <= set(parts):
        wanted = [parts[key] for key in ("px", "py", "pz")]
        squared = " + ".join(f"{part}**2" for part in wanted)
        momentum = f"sqrt({squared})"
    else:
        pt, eta, phi = (parts[key] for key in ("pt", "eta", "phi"))
        wanted = [f"{pt} * cos({phi})", f"{pt} * sin({phi})", f"{pt} * sinh({eta})"]
        momentum = f"{pt} * cosh({eta})"
        squared = f"({momentum})**2"
    energy = f"sqrt({squared} + {parts['mass']}**2)" if "mass" in parts else momentum
    return _renamed(dict(zip(VECTOR_COLUMNS, (*wanted, parts.get("energy") or energy))))


def _renamed(formulas: dict[str, str]) -> dict[str, str]:
    return {name: formula for name, formula in formulas.items() if name != formula}


def _type_formulas(own: ColumnKinds) -> dict[str, str] | None:
    code = next((own[name] for name in PDG_CODE_NAMES if name in own), None)
    charge, formulas = own.get("charge"), [own[name.lower()] for name in TYPE_FLAGS if name.lower() in own]
    if charge is None or (code is None and len(formulas) < len(TYPE_FLAGS)):
        return None
    if len(formulas) < len(TYPE_FLAGS):
        formulas = [f"({charge} != 0) & ~((abs({code}) == 11) | (abs({code}) == 13))"]
        formulas += [f"({charge} == 0) & (abs({code}) != 22)"]
        formulas += [f"abs({code}) == {number}" for number in (22, 11, 13)]
    return _renamed({"part_charge": charge, **{f"part_{name}": made for name, made in zip(TYPE_FLAGS, formulas)}})


def _track_formulas(table: Table, own: ColumnKinds) -> dict[str, str] | None:
    made = {}
    for wanted, names in TRACK_NAMES.items():
        name = next((own[one] for one in names if one in own), None)
        if name is None:
            return None
        column = table[name]
        whole = isinstance(column, Lists) and bool(np.isfinite(column.values).all())
        if name != wanted or not whole:
            made[wanted] = name if whole else f"where(isfinite({name}), {name}, 0)"
    return made


# Columns of jets


def event_columns(kinds: ColumnKinds) -> list[str]:
    """Columns of jets whose names mean a class, a weight or an observer."""

    def wanted(name: str) -> bool:
        known = name.lower() in LABEL_NAMES or name.startswith(CLASS_FLAG_PREFIXES) or _is_weight_name(name)
        return known or bool(OBSERVER_PATTERN.match(name))

    return [name for name, kind in kinds.items() if kind == "value" and wanted(name)]


def _values_of_jets(table: Table) -> dict[str, Array]:
    return {name: column for name, column in table.items() if not isinstance(column, Lists) and column.ndim == 1}


def find_class_flags(table: Table) -> dict[str, str]:
    """Columns of class flags, by class: 1 for jets of the class, otherwise 0."""
    flags = {name: flag for name, flag in _values_of_jets(table).items() if flag.dtype.kind in "biuf"}
    flat = {name: flag for name, flag in flags.items() if np.isin(flag, (0, 1)).all()}
    for start in CLASS_FLAG_PREFIXES:
        names = [name for name in flat if re.match(rf"{start}\w", name)]
        if len(names) > 1 and (np.sum([flat[name] for name in names], 0) == 1).all():
            return {name.removeprefix(start): name for name in names}
    return {}


def find_label(table: Table) -> str:
    """Name of the column with the class, or an empty string."""
    lower = {name.lower(): name for name in table}
    found = (lower[name] for name in LABEL_NAMES if name in lower and guess.is_discrete(table[lower[name]]))
    return next((name for name in found if 1 <= len(np.unique(np.asarray(table[name]))) <= guess.MAX_CLASSES), "")


def find_weight(table: Table) -> tuple[str, str]:
    """Name of the weight column, and the reason if it is not used."""
    for name, column in _values_of_jets(table).items():
        if _is_weight_name(name):
            good = column.dtype.kind in "iuf" and bool(np.isfinite(column).all() and (column >= 0).all())
            return (name, "") if good else ("", f"`{name}` has negative or non-finite weights")
    return "", ""


def _is_weight_name(name: str) -> bool:
    return name.lower().replace("_", "") in WEIGHT_NAMES


def find_observers(table: Table, but: Iterable[str]) -> list[str]:
    """Columns of jets that predictions should repeat, such as the jet mass."""
    return [name for name in _values_of_jets(table) if name not in set(but) and OBSERVER_PATTERN.match(name)]


def tag_by_class(names: Sequence[str]) -> list[str]:
    """Tag files with classes from their names (CLASS:NAME); empty for a single class."""
    stems = {name: re.sub(r"[_.-]?\d+$", "", Path(name).name.partition(".")[0]) for name in names}
    told = all(re.fullmatch(r"[A-Za-z]\w*", stem) for stem in stems.values())
    return [f"{stem}:{name}" for name, stem in stems.items()] if told and len(set(stems.values())) > 1 else []
