"""Every simulation: reproducible samples in parts and pieces, cache, files."""

import numpy as np
import pytest

from sciformer.assembly import Assembly
from sciformer.data.columns import Lists, concatenate, rows_of
from sciformer.data.readers.simulation import SimulatedSequence, SimulatedTable, Simulation, write_simulation
from sciformer.data.source import known_column, pieces
from sciformer.domains.text.simulate.pronouns import Pronouns
from sciformer.domains.text.simulate.recall import Recall
from sciformer.recipe import Recipe
from sciformer.recipe.registry import find, names
from tests.data.readers.events.examples import same as assert_same
from tests.errors import refuses

COUNTS = {"number": 100, "valid": 30, "test": 10, "chunk_size": 40}
# Options that make each quick, and a change of each that makes other samples.
SEQUENCES = {
    "cues": [({"size": 24}, {"agree": 0.5}), ({"size": 24, "classes": ["star", "disk"]}, {"noise": 0.1})],
    "galaxies": [({"size": 16}, {"bands": 2}), ({"size": 16, "classes": ["merger", "round"]}, {"unit": "flux"})],
    "jets": [({}, {"most": 5}), ({"classes": ["Tbqq", "QCD"]}, {"classes": ["QCD", "Hbb"]})],
    "lenses": [({"size": 16}, {"light": False}), ({"size": 16, "bands": 3}, {"unit": "flux"})],
    "lightcurves": [
        ({}, {"cadence": "asas"}),
        ({"classes": ["RRAB", "EC"]}, {"points": 60}),
        ({"what": "supernovae"}, {"unit": "flux", "bands": ["r"]}),
        ({"what": "oscillators", "points": 64}, {"gaps": False}),
        ({"what": "transits", "points": 64}, {"points": 65}),
        ({"what": "signals", "points": 64}, {"snr": (8.0, 8.0)}),
    ],
    "scenes": [({}, {"things": (2, 3)}), ({"held_out": 1}, {"combinations": "all"})],
    "transients": [
        ({"size": 16}, {"bands": 1}),
        ({"size": 16, "classes": ["Ia", "SLSN"], "missing": 0.3}, {"unit": "flux"}),
    ],
}
TABLES = {
    "copying_memory": ({"number": 60, "lag": 4}, {"symbols": 3}),
    "lattices": ({"size": 4, "number": 6, "chains": 5, "samples": 1, "cache": ""}, {"boundary": "open"}),
    "pronouns": ({"number": 60, "farthest": 6}, {"farthest": 3}),
    "quantum": ({"number": 60, "size": 8}, {"j2": 0.5}),
}
MAPS = ("flows",)  # written as maps, not as samples: tests/domains/atmosphere/simulate
EVERY_SEQUENCE = [(kind, *case) for kind, cases in SEQUENCES.items() for case in cases]
EVERY_KIND = [(kind, cases[0][0]) for kind, cases in SEQUENCES.items()]
EVERY_SIMULATION = [(kind, {**COUNTS, **options}) for kind, options in EVERY_KIND] + [
    (kind, options) for kind, (options, _) in TABLES.items()
]


def section(kind, **options):
    return find("simulation", kind)(kind=kind, **options)


def sequence(kind, **options):
    return section(kind, **{**COUNTS, **options})


def fingerprint_of(table):
    """Numeric columns of a table as bytes."""
    columns = {name: one.values if isinstance(one, Lists) else one for name, one in table.items()}
    return b"".join(one.tobytes() for name, one in columns.items() if one.dtype.kind in "fu" and name != "lag")


def test_every_simulation_is_in_these_tests():
    assert sorted([*SEQUENCES, *TABLES, *MAPS]) == names("simulation")
    for kind in names("simulation"):
        assert find("data", kind) is find("simulation", kind)
        base = SimulatedSequence if kind in SEQUENCES else Simulation if kind in MAPS else SimulatedTable
        assert issubclass(find("data", kind), base)


# Sequences


@pytest.mark.parametrize(("kind", "options", "change"), EVERY_SEQUENCE)
def test_samples_are_the_same_whatever_they_are_asked_for_with(kind, options, change):
    own = sequence(kind, **options)
    first = own.chunk_rows() - 20
    whole = own.make(60, first, "train")  # of two chunks
    parts = [own.make(count, first + start, "train") for start, count in ((0, 7), (7, 30), (37, 23))]
    assert list(whole) == list(parts[0])
    assert_same(concatenate(parts), whole)
    for name in ("label", "einstein_radius"):
        known = own.known_column(name, first + 60, "train")
        assert (known is None) is (name not in whole)
        assert known is None or (known[first:] == whole[name]).all()
    others = [sequence(kind, **options, seed=1).make(12, part="train")]
    others += [sequence(kind, **{**options, **change}).make(12, part="train"), own.make(12, first, "train")]
    others += [own.make(12, part=part) for part in ("file", "train", "valid", "test")]
    assert len({fingerprint_of(table) for table in others}) == len(others)


@pytest.mark.parametrize(("kind", "options", "change"), EVERY_SEQUENCE)
def test_classes_are_equally_frequent(kind, options, change):
    own = sequence(kind, **options)
    chosen = [own.class_names()[number] for number in own.class_numbers()]
    if chosen:
        found, counts = np.unique(own.draw_labels(12 * len(chosen), part="test"), return_counts=True)
        assert sorted(found) == sorted(chosen)
        assert set(counts) == {12}


@pytest.mark.parametrize(("kind", "options"), EVERY_KIND)
def test_parts_come_in_pieces(kind, options):
    own = sequence(kind, **options)
    opened = own.open()
    more = {part: [10] for part in own.further_parts}
    assert {part: source.sizes for part, source in opened.sources.items()} == {
        "train": [40, 40, 20],
        "valid": [30],
        "test": [10],
    } | more
    assert_same(concatenate(list(pieces(opened.sources["train"]))), own.make(100, part="train"))
    source = opened.sources["valid"]
    assert known_column(source, "nothing") is None
    assert known_column(source, "label", lists=True) is None
    assert list(sequence(kind, **options, valid=0, test=0).open().sources) == ["train"]
    assert section(kind, number=500).counts() == {"train": 500, "valid": 50, "test": 50} | dict.fromkeys(more, 50)


@pytest.mark.parametrize(("kind", "options", "change"), EVERY_SEQUENCE)
def test_fingerprints_change_with_the_samples_alone(kind, options, change):
    changes = ({}, {"seed": 1}, {"number": 99}, change)
    assert len({str(sequence(kind, **{**options, **one}).open().fingerprint) for one in changes}) == len(changes)
    same = ({}, {"cache": "x"}, {"chunk_size": 50})
    assert len({str(sequence(kind, **{**options, **one}).open().fingerprint) for one in same}) == 1
    assert sequence(kind, **{**options, **change}).cache_prefix() != sequence(kind, **options).cache_prefix()


@pytest.mark.parametrize(("kind", "options"), EVERY_KIND)
def test_pieces_are_kept_where_asked_for_and_made_again_when_damaged(kind, options, tmp_path, monkeypatch):
    own = sequence(kind, **options, cache=str(tmp_path / "kept"))
    first = own.open().sources["train"].load(0)
    (path,) = (tmp_path / "kept").iterdir()
    with monkeypatch.context() as patched:
        patched.setattr(type(own), "make", None)
        again = own.open().sources["train"].load(0)
        assert list(again) == list(first)
        assert_same(again, first)
    path.write_bytes(b"cut off")
    assert_same(own.open().sources["train"].load(0), first)
    sequence(kind, **options, cache=str(tmp_path / "none")).reopen().sources["train"].load(0)
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    with refuses(file=tmp_path / "file", hint="data.cache"):
        sequence(kind, **options, cache=str(tmp_path / "file")).open().sources["train"].load(0)


@pytest.mark.parametrize(("kind", "asked"), [("jets", "part_px"), ("lightcurves", "value")])
def test_lists_that_nobody_asked_for_are_left_out(kind, asked):
    told = sequence(kind).want([asked], ["label"], ["nothing"])
    table, whole = told.open().sources["train"].load(1), sequence(kind).make(40, 40, "train")
    assert {name for name, column in table.items() if isinstance(column, Lists)} == {asked}
    assert_same(table, whole, [asked, "label"])


def test_samples_that_cannot_be_made_are_refused():
    own = sequence("jets")
    for count, first in ((0, 0), (5, -1)):
        with refuses(count, first):
            own.make(count, first)
    with refuses("'tset'", hint="'test'"):
        own.make(5, part="tset")
    with refuses("'Hbx'", key="data.classes", hint="'Hbb'"):
        sequence("jets", classes=["QCD", "Hbx"]).open()
    with refuses("QCD, QCD", key="data.classes"):
        sequence("jets", classes=["QCD", "QCD"]).open()
    for key, value in (("number", 0), ("most", 300), ("seed", -1)):
        with refuses(value, key=f"data.{key}"):
            Recipe.load("jets/pfn", {f"data.{key}": value})


# Tables


@pytest.mark.parametrize(("kind", "options", "change"), [(kind, *case) for kind, case in TABLES.items()])
def test_tables_are_divided_and_named(kind, options, change):
    own = section(kind, **options)
    opened, whole = own.open(), own.make()
    assert rows_of(whole) == own.file_size() == sum(sum(source.sizes) for source in opened.sources.values())
    assert set(opened.sources) == {"train", "valid", "test"} | ({"scan"} if kind == "lattices" else set())
    assert_same(section(kind, **options).make(), whole)
    names = {str(section(kind, **{**options, **one}).open().fingerprint) for one in ({}, {"seed": 1}, change)}
    assert len(names) == 3


def test_the_same_pair_of_nouns_is_in_one_part_only():
    opened = Pronouns(number=3000, farthest=12).open()
    found = {part: next(pieces(source)) for part, source in opened.sources.items()}
    pairs = {part: set(table["pair"].tolist()) for part, table in found.items()}
    assert not pairs["train"] & pairs["test"]
    assert not pairs["train"] & pairs["valid"]
    assert not set(found["train"]["en"]) & set(found["test"]["en"])
    assert set(found["test"]["noun"].tolist()) <= set(found["train"]["noun"].tolist())  # each word was seen
    words = [{word for text in found[part]["de"] for word in text.split()} for part in ("train", "test")]
    assert words[1] <= words[0]


@pytest.mark.parametrize("model", ["rnn", "gru", "lstm", "attention", "transformer"])
def test_recall_recipes_have_one_task(model):
    recipe = Recipe.load(f"text/recall-{model}", {"data.lag": 6, "data.number": 60, "model.dim": 16})
    data = Assembly.open(recipe)
    assert data.objective.classes == list("ABCDEFGH")
    assert data.dataset("train").batch(np.arange(2)).stream.lengths.tolist() == [8, 8]
    base = Recipe.load("text/recall-transformer").to_dict()
    same = Recipe.load(f"text/recall-{model}").to_dict()
    assert all(base[key] == same[key] for key in ("data", "tokens", "objective"))
    shared = (("train", "steps"), ("train", "batch"), ("model", "dim"), ("model", "depth"))
    assert all(base[part][key] == same[part][key] for part, key in shared)


def test_texts_of_the_same_form_are_read(tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("Aabc?\nBbbb?\n")
    assert next(pieces(Recall().read([lines])))["text"].tolist() == ["Aabc?", "Bbbb?"]
    both = tmp_path / "both.tsv"
    both.write_text("i like your dog , it is great .\tich mag deinen hund , er ist toll .\n")
    table = next(pieces(Pronouns().read([both])))
    assert table["de"].tolist() == ["ich mag deinen hund , er ist toll ."]


# Files


@pytest.mark.parametrize(
    ("kind", "options", "suffix"),
    [(kind, options, suffix) for kind, options in EVERY_SIMULATION for suffix in find("simulation", kind).suffixes]
    + [("lightcurves", {**COUNTS, "what": "supernovae"}, suffix) for suffix in (".parquet", ".csv")],
)
def test_what_is_written_is_read_back(kind, options, suffix, tmp_path, monkeypatch):
    own = section(kind, **options)
    monkeypatch.setattr(type(own), "rows_per_write", 24, raising=False)  # so that files grow
    path = tmp_path / "deep" / f"a{suffix}"
    count = write_simulation(own, path)
    made = own.make(count) if kind in SEQUENCES else own.make()
    assert count == rows_of(made) == own.file_size()
    asked = [name for name, column in made.items() if isinstance(column, Lists)]
    reader = own.want([name for name in made if name != "label"], ["label"]) if asked else own
    assert_same(concatenate(list(pieces(reader.read([path])))), made, made)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
