import numpy as np

from sciformer.data.readers.arrays import Arrays
from sciformer.data.split import sample_per_class
from tests.errors import refuses

LABEL = np.repeat(["a", "b", "c"], [50, 20, 3])


def test_so_many_of_each_class_and_more_contain_less():
    rows, notes = np.arange(1, 73), []
    five, ten = (sample_per_class(LABEL, rows, count, 0, notes, "curve") for count in (5, 10))
    assert np.unique(LABEL[five], return_counts=True)[1].tolist() == [5, 5, 3]
    assert np.unique(LABEL[ten], return_counts=True)[1].tolist() == [10, 10, 3]
    assert set(five) <= set(ten) <= set(rows)
    assert (np.diff(ten) > 0).all()
    assert notes == [f"data.labels_per_class is {count}, but class c has 3 curves to train on." for count in (5, 10)]
    assert sample_per_class(LABEL, rows, None, 0, notes) is rows
    assert sample_per_class(LABEL, five, 5, 1, notes).tolist() == five.tolist()
    assert sample_per_class(LABEL, rows, 5, 1, notes).tolist() != five.tolist()
    assert len(sample_per_class(LABEL, rows[:0], 5, 1, notes)) == 0


def test_other_classes_change_nothing():
    alone = sample_per_class(LABEL[:50], np.arange(50), 4, 7, [])
    np.testing.assert_array_equal(sample_per_class(LABEL, np.arange(73), 4, 7, [])[:4], alone)


def test_arrays_without_labels_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", image=np.zeros((9, 2, 2)))
    with refuses("`label`", "image", key="data.labels_per_class"):
        Arrays(kind="arrays", files=[str(tmp_path / "a.npz")], labels_per_class=4).open()
