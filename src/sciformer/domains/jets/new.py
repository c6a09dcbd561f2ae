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
from ...data.readers.events.objects import ROW, Objects, prefix_of
from ...data.readers.events.reader import EventFiles
from ...data.readers.formula import Formula
from ...data.source import find_files
from ...errors import UserError
from ...files.formats.base import Layout, TableFile, opened, release
from ...recipe import guess
from ...recipe.given import Given
from ...recipe.page import Found, Page
from .features import TYPE_FLAGS, VECTOR_COLUMNS, guess_unit, sum_jet_momenta

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
POSITIVE_HADRONS = (211, 321, 2212)  # charged hadrons; the charge of their code is +1
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

    @property
    def objects(self) -> Objects | None:
        found = self.form.objects
        assert found is None or isinstance(found, Objects)
        return found

    def guess_unit(self) -> tuple[str, str]:
        """Guess the unit of the momenta; also return the reason."""
        table = dict(self.table)
        for name, formula in momentum_formulas(self.particles.parts).items():
            table[name] = Formula(formula).of(self.table)
        px, py = (table[name] for name in VECTOR_COLUMNS[:2])
        assert isinstance(px, Lists)
        assert isinstance(py, Lists)
        vector = np.stack([px.values, py.values, 0 * px.values, 0 * px.values], -1).astype(np.float64)
        vector[~np.isfinite(vector).all(-1)] = 0
        return guess_unit(float(np.median(sum_jet_momenta(vector, px.lengths)[:, 0])))

    @property
    def what(self) -> str:
        return f"jets in events ({self.objects.of}...)" if self.objects else "entries"


def guess_jets(names: list[str], paths: list[Path], given: Given) -> Page:
    """Guess a recipe of a Particle Transformer for the jets in the files."""
    parts = given.parts(names)
    keys = given.section(EventFiles, {"kind": "events"}, **guess.part_fields(parts))
    asked = [name for formula in (*keys.classes.values(), keys.weight) if formula for name in Formula(formula).names]
    asked += [*([keys.label] if keys.label else []), *given.listed("objective.targets")]
    seen = inspect_files(find_files([split_tag(name)[1] for name in parts["train"]]), keys, asked)
    parts = {"train": parts["train"], **_readable_parts(parts, seen)}
    ask = _find_question(seen.table, names, parts, keys, given)
    weight, why = find_weight(seen.table)
    observers = ["file"] * (len(paths) > 1) + ["entry", *find_observers(seen.table, [*ask.columns, weight])]
    if ask.base != "jets/part":  # masked modelling uses no weights
        weight = why = ""
    momenta, (unit, reason) = ", ".join(seen.particles.parts.values()), seen.guess_unit()
    left_out = len(seen.bad) - MAX_LISTED_FILES
    notes = [
        f"Found: {seen.samples:,} {seen.what}; {seen.particles.name}; momenta in {momenta}.",
        *([] if "tokens.unit" in given else [f"The momenta are taken in {unit}: {reason}."]),
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
        *_object_keys(seen),
        *_token_keys(seen),
        *ask.found,
        Found("data.observers", observers[:MAX_OBSERVERS], "copied to the predictions; `entry`: row in its `file`"),
        Found("data.weight", weight or None, f"column `{weight}`"),
        Found("objective.weight", "weight" if weight else None, "weight of each jet in the loss"),
        *guess.split(parts, seen.samples, "jets", by=ROW if seen.objects else ""),
        *(guess.model(seen.samples, "jets (in the paper 128)", SIZES, None) if seen.samples < PAPER_JETS else []),
        *guess.training(seen.samples, EPOCHS, BATCHES, parts=parts),
    ]
    roles = {**seen.particles.parts, "class": ", ".join(ask.columns), "weight": weight}
    used = {*seen.particles.columns, *ask.columns, weight, *observers}
    unused = [name for name in seen.columns if name not in used]
    return Page("Particle Transformer", paths, f"{seen.samples:,} jets", notes, "jets/part", found, roles, unused)


def _object_keys(seen: FoundJets) -> list[Found]:
    if seen.objects is None:
        return []
    found = seen.objects.model_dump(exclude_defaults=True)
    whys = {
        "of": "each jet of an event is a sample",
        "index": "jet of each particle",
        "members": "particles",
        "at": "place of each particle among the particles of the event",
    }
    return [Found("data.objects"), *(Found(f"data.objects.{key}", value, whys[key]) for key, value in found.items())]


def _note_objects(way: Objects) -> str:
    keys = " ".join(f"--data.objects.{key} {value}" for key, value in way.model_dump(exclude_defaults=True).items())
    return f"The files also have particles of the jets {way.of}...: {keys}"


def _readable_parts(parts: Mapping[str, list[str]], seen: FoundJets) -> dict[str, list[str]]:
    """Parts besides train with readable files; adds unreadable files to the notes."""
    kept = dict[str, list[str]]()
    for part, names in parts.items():
        paths = find_files([split_tag(name)[1] for name in names]) if part != "train" else []
        some = paths[:: max(1, len(paths) // MAX_COUNTED_FILES)]
        wrong = {path: error for path in some if (error := _open_error(path, seen.form))}
        seen.bad.extend(_note_bad_file(path, error) for path, error in wrong.items())
        release(paths)
        if len(wrong) < len(some):
            kept[part] = names
        elif part != "train":
            seen.bad.append(f"No file of the part {part} can be read: it is left out.")
    return kept


def _open_error(path: Path, form: Layout) -> UserError | None:
    try:
        opened(path, form)
    except UserError as error:
        return error
    return None


def _note_bad_file(path: Path, error: UserError) -> str:
    return f"left out {path}: {error}" + "." * (not error.hint)


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
        Found("tokens.vector", list(VECTOR_COLUMNS), "momentum and energy"),
        Found("tokens.unit", *seen.guess_unit()),
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
        ways = find_objects(opened(some[0], replace(form, objects=None)).columns) if form.objects else []
        particles = find_particles(kinds, getattr(opened(some[0], form), "members", ""))
        particles.notes.extend(_note_objects(way) for way in ways if way != form.objects)
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
    return good, form, [_note_bad_file(path, error) for path, error in wrong.items()]


def _sample_rows(file: TableFile, names: Sequence[str]) -> list[dict[str, Array | Lists]]:
    """Rows at the start, middle and end of a file.

    All three places are needed, because files may be sorted by class.
    """
    real = {name: file.need(name, "the comparison with the first file") for name in names}
    starts = sorted({int(start) for start in np.linspace(0, max(0, file.rows - ROWS_PER_SAMPLE), SAMPLES_PER_FILE)})
    if len(starts) > 1 and starts[1] < ROWS_PER_SAMPLE:
        starts = [0]
    stop = file.rows if len(starts) == 1 else ROWS_PER_SAMPLE
    found = [file.read(list(real.values()), start, min(file.rows, start + stop)) for start in starts]
    return [{name: table[column] for name, column in real.items()} for table in found]


def _file_layout(path: Path, keys: EventFiles) -> Layout:
    """Layout of a file, guessed where the keys of the section `data` do not set it.

    The layout is the tree, the names of the last axis of arrays, the class column, and the columns that assign
    particles of an event to jets.
    """
    given = Layout(keys.tree, keys.mask, keys.axes, keys.label)
    given = replace(given, tree=_find_tree(path, given))
    file = opened(path, given)
    axes, objects = keys.axes or _guess_axes(file), keys.objects or next(iter(find_objects(file.columns)), None)
    if keys.label:
        return replace(given, axes=axes, objects=objects)
    others = [name for name in LABEL_NAMES if name in file.others]
    words = next((name for name in others if name in opened(path, replace(given, words=name)).columns), "")
    return replace(given, axes=axes, words=words, objects=objects)


def _find_tree(path: Path, given: Layout) -> str:
    """Name of the tree: the given tree, the only tree, or the first of TREE_NAMES."""
    try:
        opened(path, given)
    except UserError as error:
        if error.key != "data.tree":
            raise
        for tree in TREE_NAMES:
            with suppress(UserError):
                opened(path, replace(given, tree=tree))
                return tree
        raise
    return given.tree


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
    """Guessed objective: keys, notes, files of each part, and columns of the target."""

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
    flags = {} if keys.label else keys.classes or find_class_flags(table)
    column = keys.label or find_label(table)
    rest = ""
    if not flags and not keys.label and (not column or FLAG_PATTERN.fullmatch(column)):
        flags, rest = find_partial_flags(table, column)
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
        notes += [f"The class {rest} has the other jets: {flags[rest]}."] if rest else []
        notes += [f"Classes without a jet in the sampled rows: {', '.join(empty)}."] if empty else []
        classes = Found("data.classes", flags, "column or formula of each class, 1 for its jets")
        columns = [name for name in flags.values() if name in table]
        return Question([classes, *_rejection_keys(seen, table, rest)], notes, parts, columns)
    if column:
        values = np.unique(np.asarray(table[column]))
        words = values.tolist() if values.dtype.kind == "U" else []
        shown = guess.list_names(words or [f"{value:g}" for value in values.tolist()])
        notes = [f"Classes, from `{column}` in the sampled rows: {shown}."]
        notes += guess.rare_classes(np.asarray(table[column]), "jets")
        binary = not words and values.tolist() == [0, 1]
        if binary:
            words = ["False", "True"] if values.dtype.kind == "b" else ["0", "1"]
            notes.append(f"To name them: --data.classes '{{NAME: {column}, OTHER: 1 - {column}}}'.")
        found = [Found("data.label", column, "column of the class")]
        return Question([*found, *_rejection_keys(words, table, words[0] if binary else "")], notes, parts, [column])
    if tag_by_class(parts["train"]):
        parts = {part: tag_by_class(some) for part, some in parts.items()}
        notes = ["No class column was found: the file names are used as classes."]
        return Question(_rejection_keys([], table), notes, parts, [])
    return (
        "No class column was found. Name it and write the recipe again: sciformer new jets ... --data.label COLUMN "
        "(or --data.classes '{NAME: FORMULA, ...}'), or tag the files: HToBB:a.root QCD:b.root"
    )


def _rejection_keys(names: Sequence[str], table: Table, usual: str = "") -> list[Found]:
    """Keys of the objective `discriminate`.

    usual   background class, if no class name suggests a background
    """
    lower = {name.lower(): name for name in names}
    background = next((lower[name] for name in BACKGROUND_NAMES if name in lower and len(names) > 1), usual)
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
JET_INDEX = re.compile(r"(\w*jet)_?(?:idx|index)", re.IGNORECASE)
OTHER_OBJECTS = re.compile(r"gen|truth|aux|sv|vert|jet|muon|electron|tau|photon|met|lep|tower|trig")
LABEL_NAMES = (
    *("label", "jet_label", "is_signal_new", "is_signal", "issignal", "truth_label", "target", "class", "jet_class"),
    *("category", "y", "jet_flavour", "jet_flavor", "flavour", "flavor", "signal", "process"),
    *("hadronflavour", "partonflavour"),
)
CLASS_FLAG_PREFIXES = ("label_", "jet_is", "fj_is", "is_", "is")
FLAG_PATTERN = re.compile(r"(?P<start>(?:\w*[_.])?(?:label_|is_|is(?=[A-Z])))(?P<name>\w+?)(?:_new)?")
JET_PREFIX = re.compile(r"(?:ak\d+_?)?(?:fat)?(?:jet|fj)s?[_.]", re.IGNORECASE)
WEIGHT_NAMES = ("weight", "weights", "eventweight", "evtweight", "mcweight", "genweight", "sampleweight")
OBSERVER_PATTERN = re.compile(r"(jet|fj|ak\d+|fatjet)[_.](?!size$)\w+$|(event|run|luminosityblock)$", re.IGNORECASE)

ColumnKinds = Mapping[str, str]  # kind of each column: `list` or `value`


class ParticleColumns(NamedTuple):
    """Columns of a set of particles.

    name    description of the set
    parts   columns of the momenta, by component
    own     all columns of the set, by name without the common prefix
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


def find_particles(kinds: ColumnKinds, members: str = "") -> ParticleColumns:
    """Find the columns of the particles.

    members   prefix of the particles of jets in events
    """
    lists = [name for name, kind in kinds.items() if kind == "list"]
    whole = {stem: parts for stem, parts in group_momenta(lists).items() if is_four_vector(parts)}
    if members not in whole and not any(map(_rank_prefix, whole)):
        lists = [name for parts in whole.values() for name in parts.values()] or lists
        seen = f"no column has lists; the columns are {', '.join(list(kinds)[:12])}"
        if lists:
            begins = "the momenta belong to other objects" if whole else "the columns with lists are"
            seen = f"{begins}: {', '.join(lists[:12])}{', ...' * (len(lists) > 12)}"
        raise UserError(
            f"the files have no lists of particle momenta (px, py, pz or pt, eta, phi); {seen}",
            hint="Define these columns, and energy or mass if known, in data.new; `sciformer recipes jets/part` shows "
            "this key.",
        )
    stem = members if members and members in whole else max(whole, key=_rank_prefix)
    own = {name[len(stem) :].lower(): name for name in lists if name.startswith(stem)}
    others = [f"{one}{next(iter(whole[one].values()))[len(one) :]}" for one in whole if one != stem]
    notes = [f"Other sets of momenta (not used): {', '.join(others[:6])}"] if others else []
    if any("jet" in one.lower() for one in whole if one != stem):
        notes.append(
            "The files have lists of jets: each row seems to be an event with one set of particles. If a column has "
            "the jet of each particle, name it with data.objects."
        )
    if not {"energy", "mass"} & set(whole[stem]):
        notes.append("There is no column of energy or mass: the particles are taken as massless.")
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

    Without energy and mass, the mass is 0.
    """
    return {"px", "py", "pz"} <= set(parts) or {"pt", "eta", "phi"} <= set(parts)


def _rank_prefix(stem: str) -> int:
    plain = re.sub(r"[^a-z]", "", stem.lower())
    if stem in KNOWN_PREFIXES:
        return len(LIKELY_PREFIXES) + 2
    if not plain.startswith(LIKELY_PREFIXES[:3]) and OTHER_OBJECTS.search(plain):
        return 0
    return 1 + max((len(LIKELY_PREFIXES) - i for i, word in enumerate(LIKELY_PREFIXES) if word in plain), default=0)


def find_objects(kinds: ColumnKinds) -> list[Objects]:
    """Possible assignments of the particles of an event to its jets; large jets first.

    For example, NanoAOD has a column FatJetPFCands_jetIdx with the index of the jet, and FatJetPFCands_pFCandsIdx with
    the index of the particle in PFCands_.
    """
    lists = [name for name, kind in kinds.items() if kind == "list"]
    groups = {prefix: parts for prefix, parts in group_momenta(lists).items() if is_four_vector(parts)}
    found = list[Objects]()
    for index in lists:
        beside = prefix_of(index)
        if not (match := JET_INDEX.fullmatch(index[len(beside) :])) or re.search("gen|truth", index, re.IGNORECASE):
            continue
        named = [of for of in groups if of.lower().rstrip("_.").endswith(match[1].lower())]
        of = max((of for of in named if beside.startswith(of.rstrip("_.")) and beside != of), key=len, default="")
        of = of or next((of for of in named if of.lower().rstrip("_.") == match[1].lower()), "")
        own = {
            members: name
            for members in groups
            for name in lists
            if name != index
            and name.startswith(beside)
            and name[len(beside) :].lower() == f"{members.rstrip('_.')}idx".lower()
        }
        members, at = next(iter(own.items())) if own else (beside, "")
        if of and members in groups and of != members and _rank_prefix(members.removeprefix(of.rstrip("_."))):
            found.append(Objects(of=of, index=index, members=members if own else "", at=at))
    return sorted(found, key=lambda one: not re.search(r"fat|ak8|ak10|ak15", one.of, re.IGNORECASE))


def feature_formulas(layout: ParticleColumns, table: Table) -> tuple[str, dict[str, str]]:
    """Largest feature set for the columns, and formulas for features without a column."""
    new = momentum_formulas(layout.parts)
    kinds, tracks = _type_formulas(layout.own, table), _track_formulas(table, layout.own)
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


def _type_formulas(own: ColumnKinds, table: Table) -> dict[str, str] | None:
    code = next((own[name] for name in PDG_CODE_NAMES if name in own), None)
    charge, formulas = own.get("charge"), [own[name.lower()] for name in TYPE_FLAGS if name.lower() in own]
    if charge is None and code is not None:
        charge = _charge_formula(code, table[code])
    if charge is None or (code is None and len(formulas) < len(TYPE_FLAGS)):
        return None
    if len(formulas) < len(TYPE_FLAGS):
        known = own.get("charge", "part_charge")
        formulas = [f"({known} != 0) & ~((abs({code}) == 11) | (abs({code}) == 13))"]
        formulas += [f"({known} == 0) & (abs({code}) != 22)"]
        formulas += [f"abs({code}) == {number}" for number in (22, 11, 13)]
    return _renamed({"part_charge": charge, **{f"part_{name}": made for name, made in zip(TYPE_FLAGS, formulas)}})


def _charge_formula(code: str, column: Array | Lists) -> str | None:
    """Formula of the charge from PDG codes; None if a code is of an unknown particle."""
    assert isinstance(column, Lists)
    seen = {abs(int(value)) for value in np.unique(column.values[np.isfinite(column.values)])}
    if not seen <= PARTICLE_CODES:
        return None
    positive = " | ".join(f"(abs({code}) == {number})" for number in POSITIVE_HADRONS)
    return f"sign({code}) * (({positive}) - ((abs({code}) == 11) | (abs({code}) == 13)))"


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
    """Columns of jets with names for a class, a weight or an observer."""

    def wanted(name: str) -> bool:
        known = _plain_name(name) in LABEL_NAMES or name.startswith(CLASS_FLAG_PREFIXES) or _is_weight_name(name)
        return known or bool(FLAG_PATTERN.fullmatch(name) or OBSERVER_PATTERN.match(name))

    return [name for name, kind in kinds.items() if kind == "value" and wanted(name)]


def _values_of_jets(table: Table) -> dict[str, Array]:
    return {name: column for name, column in table.items() if not isinstance(column, Lists) and column.ndim == 1}


def _flags(table: Table) -> dict[str, Array]:
    """Columns of jets with only the values 0 and 1, by name."""
    flags = {name: flag for name, flag in _values_of_jets(table).items() if flag.dtype.kind in "biuf"}
    return {name: flag for name, flag in flags.items() if np.isin(flag, (0, 1)).all()}


def find_class_flags(table: Table) -> dict[str, str]:
    """Columns of class flags, by class: 1 for jets of the class, otherwise 0."""
    flat = _flags(table)
    for start in CLASS_FLAG_PREFIXES:
        names = [name for name in flat if re.match(rf"{start}\w", name)]
        if len(names) > 1 and (np.sum([flat[name] for name in names], 0) == 1).all():
            return {name.removeprefix(start): name for name in names}
    return {}


def find_partial_flags(table: Table, only: str = "") -> tuple[dict[str, str], str]:
    """Columns of 0 and 1 as classes, and the name of the class of all other jets.

    {"Top": "Jet_isTop", "other": "1 - Jet_isTop"}, "other"

    only   the only column to use (default: all columns)
    """
    groups: dict[str, dict[str, str]] = {}
    for name, flag in _flags(table).items():
        match = FLAG_PATTERN.fullmatch(name)
        if match and (name == only if only else 0 < np.count_nonzero(flag) < len(flag)):
            groups.setdefault(match["start"], {})[match["name"]] = name
    for found in groups.values():
        if (np.sum([np.asarray(table[name]) for name in found.values()], 0, dtype=int) <= 1).all():
            rest = "background" if [name.lower() for name in found] == ["signal"] else "other"
            return {**found, rest: " - ".join(["1", *found.values()])}, rest
    return {}, ""


def _plain_name(name: str) -> str:
    """Lower-case name of a column of jets, without the prefix of its collection."""
    return name.lower() if name.lower() in LABEL_NAMES else JET_PREFIX.sub("", name.lower())


def find_label(table: Table) -> str:
    """Name of the column with the class, or an empty string."""
    lower = {_plain_name(name): name for name in reversed(list(table))}
    found = (lower[name] for name in LABEL_NAMES if name in lower and guess.is_discrete(table[lower[name]]))
    return next((name for name in found if 1 <= len(np.unique(np.asarray(table[name]))) <= guess.MAX_CLASSES), "")


def find_weight(table: Table) -> tuple[str, str]:
    """Name of the weight column, and the reason if no weights are used."""
    for name, column in _values_of_jets(table).items():
        if _is_weight_name(name):
            good = column.dtype.kind in "iuf" and bool(np.isfinite(column).all() and (column >= 0).all())
            return (name, "") if good else ("", f"`{name}` has negative or non-finite weights")
    return "", ""


def _is_weight_name(name: str) -> bool:
    return name.lower().replace("_", "") in WEIGHT_NAMES


def find_observers(table: Table, but: Iterable[str]) -> list[str]:
    """Columns of jets to repeat in the predictions, such as the jet mass."""
    return [name for name in _values_of_jets(table) if name not in set(but) and OBSERVER_PATTERN.match(name)]


def tag_by_class(names: Sequence[str]) -> list[str]:
    """Add class tags (CLASS:NAME) to files by the classes in the file names.

    The result is empty for a single class.
    """
    stems = {name: re.sub(r"[_.-]?\d+$", "", Path(name).name.partition(".")[0]) for name in names}
    told = all(re.fullmatch(r"[A-Za-z]\w*", stem) for stem in stems.values())
    return [f"{stem}:{name}" for name, stem in stems.items()] if told and len(set(stems.values())) > 1 else []
