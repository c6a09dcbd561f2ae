"""Parts by the names of files, folders and arrays: one rule for every reader and for `new`."""

import numpy as np
import pytest

from sciformer.data.readers.arrays import Arrays
from sciformer.data.readers.part_names import group_by_part, part_of, without_part
from tests.errors import refuses

PARTS = {
    "train": "train training trn x_train xTrain train2017 TrainSet.csv trainval wiki.train.gz",
    "valid": "valid val dev devel.conll development validation val2017 newsdev2016.de eng.testa",
    "test": "test tst testing eval test2018 newstest2014.en test_2016_flickr test-00001-of-00003 t10k x_test eng.testb",
    "": "coco latest contest testament evaluate devices retrain HToBB_000 validity",
}


@pytest.mark.parametrize("part", PARTS)
def test_words_with_numbers_and_years(part):
    assert {name: part_of(name) for name in PARTS[part].split()} == dict.fromkeys(PARTS[part].split(), part)


def test_what_is_left_without_the_part():
    names = ["x_train", "test_2016_flickr", "newstest2014", "train", "Y_test", "testset"]
    assert [without_part(name) for name in names] == ["x", "2016_flickr", "news2014", "", "y", ""]


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        ("a.txt b.txt", {"train": "a.txt b.txt"}),
        ("train.{} val.{} dev.{}", {"train": "train.{}", "valid": "val.{} dev.{}"}),
        ("x/wiki.train.gz x/wiki.test.gz", {"train": "x/wiki.train.gz", "test": "x/wiki.test.gz"}),
        (
            "train.gz test_2016.gz test_2017.gz",
            {"train": "train.gz", "test": "test_2016.gz", "test_2017": "test_2017.gz"},
        ),
        ("train.conll devel.conll", {"train": "train.conll", "valid": "devel.conll"}),
        (
            "train.{} val.{} test2018.{} coco.{} newstest2014.{}",
            {
                "train": "train.{}",
                "valid": "val.{}",
                "test": "test2018.{}",
                "coco": "coco.{}",
                "newstest2014": "newstest2014.{}",
            },
        ),
        ("train.txt coco.txt", {"train": "train.txt", "coco": "coco.txt"}),
        (
            "train_0.h5 train_1.h5 test_0.h5 test_1.h5",
            {"train": "train_0.h5 train_1.h5", "test": "test_0.h5 test_1.h5"},
        ),
        (
            "train_a.h5 train_b.h5 test_a.h5 test_b.h5",
            {"train": "train_a.h5 train_b.h5", "test": "test_a.h5 test_b.h5"},
        ),
        ("my.txt test.txt", {"train": "my.txt", "test": "test.txt"}),
        ("train/{}.gz test/{}.gz", {"train": "train/{}.gz", "test": "test/{}.gz"}),
        (
            "d/train/a/1.h5 d/train/b/1.h5 d/test/a/1.h5",
            {"train": "d/train/a/1.h5 d/train/b/1.h5", "test": "d/test/a/1.h5"},
        ),
        ("a/x.txt test/x.txt test/y.txt", {"train": "a/x.txt", "test": "test/x.txt test/y.txt"}),
        ("test/a.txt test/b.txt", {"train": "test/a.txt test/b.txt"}),  # the common folder says nothing
    ],
)
def test_files_grouped_by_part(names, parts):
    assert group_by_part(names.split()) == {part: some.split() for part, some in parts.items()}


@pytest.mark.parametrize("names", ["test.txt", "test.txt valid.txt", "test_2016.gz test_2017.gz"])
def test_a_file_named_as_a_test_is_not_trained_on(names):
    with refuses(*names.split(), hint=f"--data.files {names}"):
        group_by_part(names.split())


def test_files_of_all_classes_stay_in_one_part():
    found = group_by_part(["train_h.root", "q.root", "test_h.root", "test_q.root"], ["H", "Q", "H", "Q"])
    assert found == {"train": ["train_h.root", "q.root"], "test": ["test_h.root", "test_q.root"]}


def test_arrays_have_parts_too(tmp_path):
    for name, count in {"train": 30, "test": 7, "coco": 5}.items():
        np.savez(tmp_path / f"{name}.npz", image=np.zeros((count, 4, 4)))
    names = {name: [str(tmp_path / f"{name}.npz")] for name in ("train", "test", "coco")}
    section = Arrays(kind="arrays", files=names["train"], test=names["test"], extra_parts={"coco": names["coco"]})
    assert {part: sum(source.sizes) for part, source in section.open().sources.items()} == {
        "train": 27,
        "valid": 3,
        "test": 7,
        "coco": 5,
    }
