import io
import warnings

import numpy as np
import pytest

from sciformer.data.readers.arrays import Arrays, read_arrays
from sciformer.data.source import pieces, rows_of
from sciformer.data.split import Split
from sciformer.errors import UserError

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
    with pytest.raises(UserError, match=r"data.split.by to be one of .*found 'lable'. Did you mean 'label'"):
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
    with pytest.raises(UserError, match=r"no column `a` beside the one that data.rename calls so"):
        whole([name], rename={"a": "b"})
    with pytest.raises(UserError, match=r"for data.rename.image to be one of a, b; found 'picture'"):
        whole([name], rename={"image": "picture"})


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"image": np.array([1, "x", None], object)}, "plain numbers or strings in .*which can run code"),
        ({"image": IMAGES, "label": LABELS[:7]}, "columns of equal length; found `image` with 20, `label` with 7"),
        (
            {"image": IMAGES, "about": np.array(3)},
            "a value for every sample in column `about` of .*found one number, 3",
        ),
    ],
)
def test_columns_that_are_refused(tmp_path, columns, words):
    with pytest.raises(UserError, match=words):
        whole([save(tmp_path / "a.npz", **columns)])


def test_files_that_do_not_fit_together(tmp_path):
    save(tmp_path / "a.npz", image=IMAGES, label=LABELS)
    for columns, words in [
        ({"image": IMAGES}, r"columns image, label in every file, as in .*a.npz; found image in .*b.npz"),
        ({"image": IMAGES[:, :2], "label": LABELS}, r"`image` of shape \(n, 4, 4\).*found \(20, 2, 4\) .*b.npz"),
        (
            {"image": IMAGES, "label": NAMES},
            r"`label` of shape .*int64, as in .*a.npz; found \(20,\) and <U6 in .*b.npz",
        ),
    ]:
        save(tmp_path / "b.npz", **columns)
        with pytest.raises(UserError, match=words):
            whole([str(tmp_path / "*.npz")])


def test_no_samples_and_other_files(tmp_path):
    with pytest.raises(UserError, match="found 0 samples"):
        Arrays(kind="arrays", files=[save(tmp_path / "a.npz", image=IMAGES[:0])]).open()
    with pytest.raises(UserError, match="found 0 samples"):
        Arrays(kind="arrays", files=[save(tmp_path / "b.npz")]).open()
    (tmp_path / "c.csv").write_text("a,b")
    with pytest.raises(UserError, match=r"a file named .npz or .npy; found .*c.csv.*numpy.savez"):
        whole([tmp_path / "c.csv"])
    (tmp_path / "d.npz").write_bytes(b"\x80\x04K\x01.")  # a pickle
    with pytest.raises(UserError, match=r"which can run code|a whole NumPy file"):
        whole([tmp_path / "d.npz"])
    with pytest.raises(UserError, match=r"NumPy files named .*e.npz.*is there"):
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
    with pytest.raises(UserError, match="sum to the 5 values of `hits`"):
        Arrays(kind="arrays").read([tmp_path / "bad.npz"])
