"""A recipe for jets in ROOT, HDF5, Parquet or NumPy files: which columns are particles, classes, weights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.readers.event_files import EventFile, opened, release
from ..data.readers.event_files import Layout as Form
from ..data.readers.tagged import split_tag
from ..data.source import Array, Lists, Table, joined
from ..errors import UserError
from .layouts import LABEL, VECTOR, Layout, by_class, classes, formulas, label, observers, particles, useful, weight
from .page import RELATIVE, SKIPS, WHY, Line, by_part, files_of, named, put, write

BACKGROUND = ("qcd", "background", "bkg")
MASS = ("jet_sdmass", "jet_msoftdrop", "jet_mass", "fj_sdmass", "fj_mass")
LEAST = 10  # jets worth training on
SHOWN = 8  # bad files that are named
RARE = 10  # jets of a class
KEPT = 24  # observers at most
ROWS, PLACES, FILES = 400, 3, 8  # that are looked at: so many rows at so many places of so many files
COUNTED = 50  # files whose entries are counted
TREES = ("tree", "Events", "Delphes", "events", "CollectionTree", "t")  # of several, the first that is there
SIGNS = {0, 11, 12, 13, 22, 130, 211, 310, 321, 2112, 2212}  # of particles in arrays without names


def untagged(name: str) -> str:
    """A name without the class before it: HToBB:a.root is a.root."""
    return split_tag(name)[1]


class Seen(NamedTuple):
    """What was found in the files."""

    table: Table
    jets: int
    form: Form
    layout: Layout
    features: str
    new: dict[str, str]
    bad: list[str]


def jets(names: list[str], paths: list[Path]) -> str:
    """A Particle Transformer on the jets of the files."""
    seen = look(paths)
    parts = by_part(names)
    tagged = [name for name in names if split_tag(name)[0]]
    if tagged and len(tagged) < len(names):
        missing = next(name for name in names if name not in tagged)
        raise UserError(
            f"{missing} has no class before it, but other files do",
            hint="Write CLASS:NAME for all files, or NAME for all.",
            file=missing,
        )
    ask = _ask(seen.table, tagged, parts)
    judged = _judged(ask.classes, seen.table) if ask.objective else []
    used = [*ask.columns, weight(seen.table)[0]]
    kept = [*["file"] * (len(paths) > 1), "entry", *observers(seen.table, used)][:KEPT]
    name, why = weight(seen.table) if ask.objective else ("", "")
    head = [
        f"A Particle Transformer for {named(paths)}, written by `sciformer new jets`.",
        f"Found: {seen.jets:,} entries; {seen.layout.name}; momenta in {', '.join(seen.layout.parts.values())}.",
        *seen.layout.notes,
        *seen.bad[:SHOWN],
        *([f"... and {len(seen.bad) - SHOWN:,} more files like that."] if len(seen.bad) > SHOWN else []),
        *ask.notes,
        *([f"No weights: {why}."] if why else []),
        "",
        WHY,
        "All other keys and their meaning: sciformer recipes jets/part",
    ]
    lines = [
        Line("base", ask.base, "the other keys come from there", 1),
        Line("about"),
        Line("title", f"Particle Transformer on {named(paths)}", "", 2),
        Line("data", f"{named(paths)}, {seen.jets:,} jets", "", 2),
        Line("data"),
        Line("kind", "events", "", 2),
        *_files(ask.parts),
        *([SKIPS] if seen.bad else []),
        *put({"tree": seen.form.tree}, "tree", "of several in the file"),
        *put({"axes": seen.form.axes}, "axes", "what the numbers of the array mean"),
        *put({"new": seen.new}, "new", "columns by formulas, under the names of JetClass"),
        *ask.lines,
        *put({"observers": kept}, "observers", "kept beside the answers of predict; `entry` is the row in its `file`"),
        *put({"weight": name}, "weight", f"the column `{name}`"),
        *_split(parts, seen.jets),
        Line("tokens"),
        Line("kind", "particles", "", 2),
        Line("vector", list(VECTOR), "momentum and energy of a particle; GeV is what the scales of features fit", 2),
        Line("features", seen.features, _features(seen), 2),
        *_most(seen),
        *_size(seen.jets),
        Line("objective"),
        *ask.objective,
        *judged,
        *([Line("weight", "weight", "of each jet in the loss", 2)] if name else []),
        *_learning(seen.jets),
    ]
    return write(head, [line for place, line in enumerate(lines) if not _empty(lines, place)])


def _empty(lines: Sequence[Line], place: int) -> bool:
    """Whether a section has nothing in it."""
    line = lines[place]
    return line.depth == 1 and line.value is None and (place + 1 == len(lines) or lines[place + 1].depth == 1)


# What is in the files


def look(paths: Sequence[Path]) -> Seen:
    """The columns of the first file, and rows of some of the others."""
    try:
        return _looked(paths)
    finally:
        release(paths)


def _looked(paths: Sequence[Path]) -> Seen:
    some, form, bad = _readable(paths[:: max(1, len(paths) // COUNTED)])
    kinds = _kinds(opened(some[0], form))
    layout = particles(kinds)
    wanted = [*layout.columns, *useful(kinds)]
    tables: list[Table] = []
    count = 0
    step = max(1, len(some) // FILES)
    for number, path in enumerate(some):
        file = opened(path, form)
        count += file.rows
        if number % step == 0 and len(tables) < FILES * PLACES:
            tables += _rows(file, wanted)
    count = round(count * len(paths) / (len(some) + len(bad)))
    if count < LEAST:
        raise UserError(
            f"training needs {LEAST} jets or more, not {count}", hint=" ".join(["Bring more of them.", *bad[:4]])
        )
    table = joined(tables)
    return Seen(table, count, form, layout, *formulas(layout, table), bad)


def _readable(paths: Sequence[Path]) -> tuple[list[Path], Form, list[str]]:
    """The files that can be read, the form of the first of them, and what is wrong with the others."""
    form: Form | None = None
    good, wrong = list[Path](), dict[Path, UserError]()
    for path in paths:
        try:
            form = form or _form(path)
            opened(path, form)
            good.append(path)
        except UserError as error:
            wrong[path] = error
    if form is None or not good:
        raise next(iter(wrong.values()))
    return good, form, [f"left out {path}: {e.message}." for path, e in wrong.items()]


def _kinds(file: EventFile) -> dict[str, str]:
    """Columns by the names that formulas can spell."""
    return {name.rpartition("/")[2]: kind for name, kind in file.columns.items()}


def _rows(file: EventFile, names: Sequence[str]) -> list[dict[str, Array | Lists]]:
    """Rows at the beginning, in the middle and at the end: files may be sorted by class."""
    real = {name: file.need(name, f"as in the first of the files, {name}") for name in names}
    starts = sorted({int(start) for start in np.linspace(0, max(0, file.rows - ROWS), PLACES)})
    if len(starts) > 1 and starts[1] < ROWS:
        starts = [0]
    stop = file.rows if len(starts) == 1 else ROWS
    found = [file.read(list(real.values()), start, min(file.rows, start + stop)) for start in starts]
    return [{name: table[column] for name, column in real.items()} for table in found]


def _form(path: Path) -> Form:
    """The tree of a file with several, and names for the numbers of an array without."""
    try:
        file = opened(path, Form())
        axes = _axes(file)
    except UserError as error:
        if error.key != "data.tree":
            raise
        for tree in TREES:
            with suppress(UserError):
                opened(path, Form(tree))
                return Form(tree)
        raise
    return Form(axes=axes, words=next((name for name in LABEL if _worded(path, file, name)), ""))


def _worded(path: Path, file: EventFile, name: str) -> bool:
    """Whether a column has a word for each jet."""
    return name in file.others and name in opened(path, Form(words=name)).columns


def _axes(file: EventFile) -> dict[str, list[str]]:
    """Names for an array (n, particles, 4) without: by its values momenta, or pt, rapidity, phi and type."""
    for stem in {name[:-2] for name in file.columns if name.endswith("_0")}:
        names = [f"{stem}_{number}" for number in range(4)]
        if not all(file.columns.get(name) == "list" for name in names) or f"{stem}_4" in file.columns:
            continue
        table: dict[str, Any] = file.read(names, 0, min(file.rows, ROWS))
        a, b, c, d = (table[name].values.astype(np.float64) for name in names)
        if (np.abs(d) == np.round(np.abs(d))).all() and set(np.abs(d).astype(int)) <= SIGNS:
            return {stem: ["part_pt", "part_rapidity", "part_phi", "part_pid"]}
        if (a**2 * 1.001 >= b**2 + c**2 + d**2).all():
            return {stem: ["part_energy", "part_px", "part_py", "part_pz"]}
        if (d**2 * 1.001 >= a**2 + b**2 + c**2).all():
            return {stem: ["part_px", "part_py", "part_pz", "part_energy"]}
    return {}


# What is asked


class Ask(NamedTuple):
    """The question of a recipe: how the class is found, and what is said about it."""

    base: str
    lines: list[Line]
    objective: list[Line]
    columns: list[str]
    parts: dict[str, list[str]]
    notes: list[str]
    classes: list[str] = []  # noqa: RUF012 (a tuple has no state)


def _ask(table: Table, tagged: Sequence[str], parts: dict[str, list[str]]) -> Ask:
    flags, column = classes(table), label(table)
    goal = [Line("kind", "classify", "", 2)]
    if tagged:
        found = sorted({split_tag(name)[0] for name in tagged})
        return Ask("jets/part", [], goal, [], parts, [f"Classes, by the tags of the files: {', '.join(found)}."], found)
    if flags:
        lines = put({"classes": flags}, "classes", "the column that is 1 for jets of the class")
        seen = [name for name, one in flags.items() if np.asarray(table[one]).any()]
        notes = [f"Classes: {', '.join(seen)}."]
        if len(seen) < len(flags):
            notes.append(f"Without a jet in the rows looked at: {', '.join(one for one in flags if one not in seen)}.")
        return Ask("jets/part", lines, goal, list(flags.values()), parts, notes, seen)
    if column:
        values, counts = np.unique(np.asarray(table[column]), return_counts=True)
        words = values.dtype.kind == "U"
        shown = ", ".join(value if words else f"{value:g}" for value in values[:12].tolist())
        shown += " and others" * (len(values) > 12)
        notes = [f"Classes, by `{column}` in the rows looked at: {shown}."]
        if rare := int((counts < RARE).sum()):
            notes.append(
                f"{rare} of {len(values)} have fewer than {RARE} jets there: too few to be learned and judged."
            )
        line, names = Line("label", column, "the column with the class", 2), values.tolist() if words else []
        return Ask("jets/part", [line], goal, [column], parts, notes, names)
    told = by_class(parts["train"])
    if told:
        parts = {part: by_class(names) for part, names in parts.items()}
        note = "No column with a class was found: the names of the files are taken for it."
        return Ask("jets/part", [], goal, [], parts, [note])
    note = "No column with a class was found: the model learns to fill in hidden particles. For a class, name it in"
    more = "data.label or data.classes, or put it before the names of files: HToBB:a.root QCD:b.root"
    return Ask("jets/part-masked", [], [], [], parts, [note, more])


def _judged(names: Sequence[str], table: Table) -> list[Line]:
    """What is rejected, where a class is called like a background, and the mass whose spectrum should stay."""
    lower = {name.lower(): name for name in names}
    background = next((lower[name] for name in BACKGROUND if name in lower and len(names) > 1), "")
    mass = next((name for name in MASS if name in table), "")
    if not background:
        return [Line("background", "", "the class to reject, if there is one", 2), Line("efficiencies", {}, "", 2)]
    return [
        Line("background", background, "scores say how much of it is rejected where half of another class is kept", 2),
        Line("efficiencies", {}, "other shares of a class, {NAME: 0.99}", 2),
        *([Line("spectrum", mass, "the report shows how a cut changes this of the background", 2)] if mass else []),
    ]


def _files(parts: dict[str, list[str]]) -> list[Line]:
    return files_of(parts) if len(parts) > 1 else [Line("files", parts["train"], RELATIVE, 2)]


def _split(parts: dict[str, list[str]], count: int) -> list[Line]:
    """Shares for parts that have no files."""
    shares = {"valid": (0.1, "to choose the best model"), "test": (0.1, "to judge it in the end")}
    if count < 100:
        shares["test"] = (0.0, "too few for one")
    left = {part: share for part, share in shares.items() if part not in parts}
    if not left:
        return []
    lines = [Line(part, *share, 3) for part, share in left.items()]
    return [Line("split", None, f"of {count:,} jets", 2), *lines]


def _features(seen: Seen) -> str:
    return {
        "kin": "7 that follow from momenta; there are no charge and type (part_charge, part_isPhoton, ...)",
        "kinpid": "13: momenta, charge and type; there are no impact parameters (part_d0val, part_d0err, ...)",
        "full": "17: momenta, charge, type and impact parameters; JetClass has these in mm",
    }[seen.features]


def _most(seen: Seen) -> list[Line]:
    column = seen.table[next(iter(seen.layout.parts.values()))]
    assert isinstance(column, Lists)
    longest, mean = int(column.lengths.max(initial=1)), float(column.lengths.mean())
    most = min(128, max(8, -(-longest // 8) * 8))
    return [Line("most", most, f"the hardest particles; jets have {mean:.0f} in the mean, at most {longest}", 2)]


def _size(count: int) -> list[Line]:
    if count >= 100_000:
        return []
    dim, depth, heads, widths = (32, 2, 4, [64]) if count < 5000 else (64, 4, 8, [64, 128])
    return [
        Line("widths", widths, f"small, for {count:,} jets", 2),
        Line("pair_widths", [32] if count < 5000 else [64, 64], "", 2),
        Line("model"),
        Line("dim", dim, f"small, for {count:,} jets (128 in the paper)", 2),
        Line("depth", depth, "blocks (8)", 2),
        Line("heads", heads, "", 2),
    ]


def _learning(count: int) -> list[Line]:
    batch = 512 if count >= 100_000 else 128 if count >= 5000 else 32
    steps = int(np.clip(20 * count // batch, 100, 20_000))
    return [
        Line("train"),
        Line("steps", steps, f"about {steps * batch / count:.0f} times through the data", 2),
        Line("batch", batch, "", 2),
        Line("warmup", max(1, steps // 20), "", 2),
        Line("evaluate_every", max(10, steps // 10), "ten times in all", 2),
    ]
