"""Images by folders, classes, parts and tables; sizes, channels, pieces."""

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from sciformer.data.columns import Lists
from sciformer.data.dataset import Dataset
from sciformer.data.source import pieces
from sciformer.domains.images.reader.reader import ImageFiles
from sciformer.domains.images.tokens import Patches
from tests.domains.images.reader.examples import classes, opened, picture, pixels, read
from tests.errors import refuses


def joined(source):
    tables = list(pieces(source))
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def test_folders_are_classes_and_parts_are_whole(tmp_path):
    made = classes(tmp_path / "pets", 10)
    (tmp_path / "pets" / ".hidden").mkdir()
    found = opened([tmp_path / "pets"])
    assert {part: source.sizes for part, source in found.sources.items()} == {"train": [16], "valid": [2], "test": [2]}
    tables = {part: joined(source) for part, source in found.sources.items()}
    assert sorted(name for table in tables.values() for name in table["file"]) == sorted(made)
    for table in tables.values():
        for name, label, image in zip(table["file"], table["label"], table["image"]):
            assert f"/{label}/" in name
            np.testing.assert_array_equal(image, made[name])
    assert found.notes == []
    (print_,) = found.fingerprint.values()
    assert print_.startswith("20 pictures, ")
    picture(tmp_path / "pets" / "cat" / "3.png")
    assert list(opened([tmp_path / "pets"]).fingerprint.values()) != [print_]
    few = opened([tmp_path / "pets"], labels_per_class=2, split={"stratify": "label"}).sources["train"]
    assert sorted(few.load(0)["label"].tolist()) == ["cat", "cat", "dog", "dog"]


@pytest.mark.parametrize("names", [["{}/*"], ["{}/*/"], ["cat:{}/cat", "dog:{}/dog/*.png"], ["{}/../pets"]])
def test_the_same_by_globs_and_tags(tmp_path, names):
    classes(tmp_path / "pets", 4)
    found = opened([name.format(tmp_path / "pets") for name in names], split={"valid": 0, "test": 0})
    table = found.sources["train"].load(0)
    assert table["label"].tolist() == ["cat"] * 4 + ["dog"] * 4
    assert table["image"].shape == (8, 8, 8, 3)


def test_parts_are_told_by_folders(tmp_path):
    for part, count in (("train", 5), ("val", 2), ("test", 3)):
        classes(tmp_path / "data" / part, count)
    found = opened([tmp_path / "data"])
    assert {part: sum(source.sizes) for part, source in found.sources.items()} == {"train": 10, "valid": 4, "test": 6}
    assert set(found.sources["test"].load(0)["label"]) == {"cat", "dog"}
    again = opened([tmp_path / "data/train"], valid=[str(tmp_path / "data/val")], split={"test": 0})
    assert {part: sum(source.sizes) for part, source in again.sources.items()} == {"train": 10, "valid": 4}
    with refuses("data.files", key="data.test"):
        opened([tmp_path / "data"], test=[str(tmp_path / "data/test")])


def test_equal_pictures_stay_in_one_part(tmp_path):
    made = classes(tmp_path / "a", 20)
    for name in list(made)[:10]:
        copy = tmp_path / "a" / "cat" / f"copy{name.rpartition('/')[2]}"
        copy.write_bytes(Path(name).read_bytes())
    found = opened([tmp_path / "a"], split={"valid": 0.3, "test": 0.3})
    (note,) = found.notes
    assert note.startswith("10 of 50 images")
    seen = [{image.tobytes() for image in joined(source)["image"]} for source in found.sources.values()]
    assert sum(map(len, seen)) == len(set.union(*seen)) == 40
    apart = opened([tmp_path / "a" / "cat"], truth=(), valid=[str(tmp_path / "a" / "cat" / "copy*.png")])
    assert any(note.startswith("10 of 10 images of valid") for note in apart.notes)


def test_tables_name_pictures_relative_to_themselves(tmp_path):
    made = [picture(tmp_path / "deep" / "img" / f"{i}.png") for i in range(5)]
    table = tmp_path / "deep" / "list.csv"
    table.write_text("file,kind,z\n" + "".join(f"img/{i}.png,{'ab'[i % 2]},{i / 4}\n" for i in range(5)))
    found = read([table], label="kind")
    assert found["label"].tolist() == list("ababa")
    assert found["z"].tolist() == [0, 0.25, 0.5, 0.75, 1]
    np.testing.assert_array_equal(found["image"], made)
    columns = {"path": [f"img/{i}.png" for i in range(5)], "label": [3, 1, 3, None, 1], "field": list("uvwxy")}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "deep" / "list.parquet")
    trained = opened([tmp_path / "deep" / "list.parquet"], split={"valid": 0, "test": 0})
    assert trained.notes == ["1 of 5 images have no `label`: left out."]
    assert trained.sources["train"].load(0)["label"].tolist() == [3, 1, 3, 1]
    assert str(tmp_path / "deep" / "list.parquet") in trained.fingerprint
    with refuses("`label`", file=table, hint="CLASS"):
        opened([table])
    with refuses("`redshift`", file=table, hint="kind, z"):
        opened([table], truth=["redshift"])
    table.write_text("name of it,kind\nimg/0.png,a\n")
    with refuses("name of it, kind", key="data.image", file=table, hint="--data.image"):
        read([table])
    assert read([table], image="name of it")["file"].tolist() == [str(tmp_path / "deep/img/0.png")]
    table.write_text("file\nimg/0.png\nimg/none.png\n")
    with refuses("No such file", file=tmp_path / "deep/img/none.png", hint="without"):
        read([table])


def test_images_of_different_shapes_are_lists_of_pixels(tmp_path):
    made = {str(tmp_path / f"{i}.png"): picture(tmp_path / f"{i}.png", pixels(4 + i, 9, 3)) for i in range(3)}
    table = read([tmp_path])
    assert isinstance(table["image"], Lists)
    assert table["image_shape"].tolist() == [[4, 9], [5, 9], [6, 9]]
    np.testing.assert_array_equal(table["image"].values, np.concatenate([a.reshape(-1, 3) for a in made.values()]))
    known = ImageFiles(kind="images").read([tmp_path]).known_column("image_shape")
    np.testing.assert_array_equal(known, table["image_shape"])
    assert read([tmp_path], size=6)["image"].shape == (3, 6, 6, 3)
    assert read([tmp_path], size=(5, 7), channels=1)["image"].shape == (3, 5, 7)


def test_sizes_cover_and_cut_about_the_centre(tmp_path):
    image = np.zeros((40, 60), np.uint8)
    image[:, :8], image[:, 52:] = 255, 255  # beyond the square in the middle
    picture(tmp_path / "a.png", image)
    assert read([tmp_path / "a.png"], size=20)["image"].max() == 0
    smooth = np.add.outer(np.arange(50), 2 * np.arange(70)).astype(np.uint8)
    picture(tmp_path / "b.png", smooth)
    np.save(tmp_path / "b.npy", smooth)
    for size in (17, (90, 31), (50, 70)):
        ours, pillows = (read([tmp_path / name], size=size)["image"][0].astype(int) for name in ("b.npy", "b.png"))
        assert np.abs(ours - pillows).max() <= 1
    np.testing.assert_array_equal(pillows, smooth)


def test_grey_and_colours(tmp_path):
    grey, colour = picture(tmp_path / "a.png", pixels(8, 8)), picture(tmp_path / "b.png")
    found = ImageFiles(kind="images").read([tmp_path])
    (note,) = found.notes
    assert note.startswith("1 of 2 images are grey")
    np.testing.assert_array_equal(found.load(0)["image"], np.stack([np.repeat(grey[..., None], 3, -1), colour]))
    luma = np.asarray(Image.fromarray(colour).convert("L")).astype(int)
    assert np.abs(read([tmp_path], channels=1)["image"][1] - luma).max() <= 1
    with refuses("3 channels", "4 (data.channels)", key="data.channels", file=tmp_path / "b.png"):
        read([tmp_path], channels=4)


def test_pieces_mix_and_keep_everything_once(tmp_path):
    made = classes(tmp_path / "pets", 40)
    np.save(tmp_path / "more.npy", pixels(50, 8, 8, 3))
    found = opened([f"{tmp_path}/pets"], chunk_size=16, split={"valid": 0.2, "test": 0})
    source = found.sources["train"]
    assert source.sizes == [16] * 4
    assert all(0 < np.sum(table["label"] == "cat") < 16 for table in pieces(source))
    assert sorted(joined(source)["file"]) == sorted(set(made) - set(joined(found.sources["valid"])["file"]))
    np.testing.assert_array_equal(source.known_column("label"), joined(source)["label"])
    both = opened([f"{tmp_path}/pets", f"{tmp_path}/more.npy"], truth=(), chunk_size=16, split={"valid": 0, "test": 0})
    assert sum(both.sources["train"].sizes) == 130
    assert len({image.tobytes() for image in joined(both.sources["train"])["image"]}) == 130
    asked = ImageFiles(kind="images", chunk_size=16).read([tmp_path / "pets", tmp_path / "more.npy"])
    assert joined(asked)["file"].tolist() == [*sorted(made), *[str(tmp_path / "more.npy")] * 50]


def test_no_picture_is_unpacked_before_it_is_wanted(tmp_path, monkeypatch):
    from sciformer.domains.images.reader import decode

    classes(tmp_path / "pets", 40)
    seen = []
    real = decode.decode_image
    monkeypatch.setattr(decode, "decode_image", lambda path, *rest: seen.append(path) or real(path, *rest))
    source = opened([tmp_path / "pets"], chunk_size=16).sources["train"]
    tokens = Patches(kind="patches", patch=4)
    tokens.fit([{"image": pixels(4, 8, 8, 3)}])
    dataset = Dataset(source, {"tokens": tokens})
    assert set(dataset.sample_column("label")) == {"cat", "dog"}
    assert seen == []
    dataset.batch(np.array([0, 3]))
    assert len(seen) == 16
