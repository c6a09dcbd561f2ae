import io
import warnings

import numpy as np
import pytest

from sciformer.data.columns import rows_of
from sciformer.data.readers.arrays import Arrays, read_arrays
from sciformer.data.source import pieces
from sciformer.data.split import Split
from sciformer.errors import UserError
from tests.errors import refuses

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(20, 4, 4))
LABELS = RNG.integers(0, 3, 20)
NAMES = np.array([f"star {i}" for i in LABELS])


def save(path, **columns):
    np.savez(path, **columns)
    return str(path)


def whole(files, **options):
    (table,) = pieces(Arrays(kind="arrays", **options).read(files))
    return table


def test_columns_come_back(tmp_path):
    name = save(tmp_path / "a.npz", image=IMAGES, label=LABELS, name=NAMES)
    table = whole([name])
    for found, given in zip((table["image"], table["label"], table["name"]), (IMAGES, LABELS, NAMES)):
        np.testing.assert_array_equal(found, given)
    np.save(tmp_path / "b.npy", IMAGES)
    np.testing.assert_array_equal(whole([tmp_path / "b.npy"])["array"], IMAGES)
    renamed = whole([tmp_path / "b.npy"], rename={"image": "array"})
    assert list(renamed) == ["image"]
    np.savez_compressed(tmp_path / "c.npz", image=IMAGES)
    np.testing.assert_array_equal(whole([tmp_path / "c.npz"])["image"], IMAGES)


def test_parts_are_disjoint_and_groups_whole(tmp_path):
    name = save(tmp_path / "a.npz", image=IMAGES, label=LABELS, number=np.arange(20))
    opened = Arrays(kind="arrays", files=[name], split=Split(valid=0.3, test=0.3, by="label")).open()
    assert list(opened.fingerprint) == [name]
    tables = {part: next(iter(pieces(source))) for part, source in opened.sources.items()}
    assert sorted(i for table in tables.values() for i in table["number"].tolist()) == list(range(20))
    assert sum(len(set(table["label"].tolist())) for table in tables.values()) == 3
    for table in tables.values():
        np.testing.assert_array_equal(table["image"], IMAGES[table["number"]])
    with refuses("'lable'", key="data.split.by", hint="'label'"):
        Arrays(kind="arrays", files=[name], split=Split(by="lable")).open()


def test_several_files_are_joined(tmp_path):
    save(tmp_path / "a.npz", image=IMAGES, name=NAMES)
    save(tmp_path / "b.npz", image=IMAGES.astype(np.float32)[:3], name=np.array(["a much longer name"] * 3))
    table = whole([str(tmp_path / "*.npz")])
    assert rows_of(table) == 23
    np.testing.assert_array_equal(table["name"][:20], NAMES)
    assert table["name"][22] == "a much longer name"


def test_renaming_may_swap_but_not_overwrite(tmp_path):
    name = save(tmp_path / "a.npz", a=np.arange(3), b=np.arange(3) + 10)
    table = whole([name], rename={"a": "b", "b": "a"})
    assert table["a"].tolist() == [10, 11, 12]
    assert table["b"].tolist() == [0, 1, 2]
    twice = whole([name], rename={"c": "a", "d": "a"})
    assert twice["c"].tolist() == twice["d"].tolist() == [0, 1, 2]
    with refuses("`a`", key="data.rename.a", file=name):
        whole([name], rename={"a": "b"})
    with refuses(name, "a, b", "'picture'", key="data.rename.image"):
        whole([name], rename={"image": "picture"})


@pytest.mark.parametrize(
    ("columns", "mentions", "file"),
    [
        ({"image": np.array([1, "x", None], object)}, ["Python objects"], "a.npz"),
        ({"image": IMAGES, "label": LABELS[:7]}, ["`image`", "20", "`label`", "7"], None),
        ({"image": IMAGES, "about": np.array(3)}, ["`about`", "3"], "a.npz"),
    ],
)
def test_columns_that_are_refused(tmp_path, columns, mentions, file):
    with refuses(*mentions, file=file and tmp_path / file):
        whole([save(tmp_path / "a.npz", **columns)])


def test_files_that_do_not_fit_together(tmp_path):
    save(tmp_path / "a.npz", image=IMAGES, label=LABELS)
    for columns, mentions in [
        ({"image": IMAGES}, ["image, label"]),
        ({"image": IMAGES[:, :2], "label": LABELS}, ["`image`", "(n, 4, 4)", "(20, 2, 4)"]),
        ({"image": IMAGES, "label": NAMES}, ["`label`", "int64", "(20,)", "<U6"]),
    ]:
        save(tmp_path / "b.npz", **columns)
        with refuses(*mentions, tmp_path / "a.npz", tmp_path / "b.npz", file=tmp_path / "b.npz"):
            whole([str(tmp_path / "*.npz")])


def test_no_samples_and_other_files(tmp_path):
    with refuses("0", key="data.split"):
        Arrays(kind="arrays", files=[save(tmp_path / "a.npz", image=IMAGES[:0])]).open()
    with refuses("0", key="data.split"):
        Arrays(kind="arrays", files=[save(tmp_path / "b.npz")]).open()
    (tmp_path / "c.csv").write_text("a,b")
    with refuses(".npz", ".npy", "c.csv", file=tmp_path / "c.csv", hint="numpy.savez"):
        whole([tmp_path / "c.csv"])
    (tmp_path / "d.npz").write_bytes(b"\x80\x04K\x01.")  # a pickle
    with refuses("d.npz", file=tmp_path / "d.npz"):
        whole([tmp_path / "d.npz"])
    with refuses("e.npz", file=tmp_path / "e.npz"):
        whole([tmp_path / "e.npz"])


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_every_cut_and_every_flipped_byte(tmp_path, kind):
    buffer = io.BytesIO()
    if kind == "npz":
        np.savez_compressed(buffer, label=LABELS[:5])
    else:
        np.save(buffer, LABELS[:5])
    raw, path = buffer.getvalue(), tmp_path / f"a.{kind}"
    refused = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's own, on odd headers
        for changed in [raw[:n] for n in range(1, len(raw), 3)] + [
            raw[:i] + bytes([raw[i] ^ flip]) + raw[i + 1 :] for i in range(len(raw)) for flip in (0x01, 0xFF)
        ]:
            path.write_bytes(changed)
            try:
                read_arrays(path)
            except UserError:
                refused += 1
    assert refused > len(raw) / 3


def test_values_and_their_lengths_are_a_column_of_lists(tmp_path):
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", hits=np.arange(5.0), hits_lengths=[2, 0, 3], label=[0, 1, 0])
    source = Arrays(kind="arrays", files=[str(tmp_path / "*.npz")]).read([tmp_path / "a.npz", tmp_path / "b.npz"])
    table = source.load(0)
    assert sorted(table) == ["hits", "label"]
    assert table["hits"].lengths.tolist() == [2, 0, 3, 2, 0, 3]
    assert table["hits"].take(np.array([3, 2])).values.tolist() == [0, 1, 2, 3, 4]
    np.savez(tmp_path / "bad.npz", hits=np.arange(5.0), hits_lengths=[2, 0, 4])
    with refuses("`hits_lengths`", "5", "`hits`", "6", file=tmp_path / "bad.npz"):
        Arrays(kind="arrays").read([tmp_path / "bad.npz"])
