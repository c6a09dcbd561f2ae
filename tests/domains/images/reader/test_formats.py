"""Images in every format: pixels come back as they were written."""

import h5py
import numpy as np
import pytest
from astropy.io import fits
from astropy.table import Table
from PIL import Image

from sciformer.domains.images.reader.reader import ImageFiles
from sciformer.domains.images.reader.sets import guess_axes
from tests.domains.images.reader.examples import idx, opened, picture, pixels, read, write_array
from tests.errors import refuses

GREY, COLOUR = pixels(6, 9), pixels(6, 9, 3)
DEEP = np.arange(54).reshape(6, 9).astype(np.uint16) * 1000
SPLIT = {"valid": 0, "test": 0}


# Pictures


@pytest.mark.parametrize("form", ["png", "tif", "bmp", "webp", "ppm"])
@pytest.mark.parametrize("image", [GREY, COLOUR])
def test_pictures_come_back(tmp_path, form, image):
    name = tmp_path / f"a.{'pgm' if form == 'ppm' and image is GREY else form}"
    picture(name, image, **({"lossless": True} if form == "webp" else {}))
    found = read([name])["image"][0]
    expected = np.repeat(image[..., None], 3, -1) if form == "webp" and image is GREY else image
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.uint8


@pytest.mark.parametrize("form", ["gif", "webp"])
def test_an_animation_is_its_first_frame_and_is_counted(tmp_path, form):
    frames = [Image.fromarray(np.full((6, 9), value, np.uint8)).convert("RGB") for value in (0, 128, 255)]
    frames[0].save(tmp_path / f"a.{form}", save_all=True, append_images=frames[1:])
    frames[1].save(tmp_path / f"b.{form}")
    splits = opened([tmp_path], truth=(), split=SPLIT)
    images = splits.sources["train"].load(0)["image"]
    assert sorted(int(image.mean().round()) for image in images) == [0, 128]
    assert any("1 pictures are animations" in note for note in splits.notes)


@pytest.mark.parametrize("form", ["png", "tif"])
def test_sixteen_bits_of_grey_stay(tmp_path, form):
    picture(tmp_path / f"a.{form}", DEEP)
    found = read([tmp_path])["image"]
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found[0], DEEP)
    picture(tmp_path / "b.tif", DEEP.astype(np.float32) / 7)
    np.testing.assert_array_equal(read([tmp_path / "b.tif"])["image"][0], DEEP.astype(np.float32) / 7)
    picture(tmp_path / "c.png")
    with refuses("uint16", "uint8"):
        read([tmp_path / f"a.{form}", tmp_path / "c.png"])


@pytest.mark.parametrize("form", ["jpg", "tif", "png"])
@pytest.mark.parametrize("turn", [1, 3, 6, 8])
def test_pictures_are_turned_as_they_say(tmp_path, form, turn):
    image = np.zeros((16, 32), np.uint8)
    image[:8, :8] = 255
    exif = Image.Exif()
    exif[274] = turn
    picture(tmp_path / f"a.{form}", image, exif=exif)
    expected = {1: image, 3: image[::-1, ::-1], 6: np.rot90(image, -1), 8: np.rot90(image)}[turn]
    found = read([tmp_path])["image"][0]
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).max() < 30


def test_transparency_is_left_out_and_palettes_are_colours(tmp_path):
    alpha = np.concatenate([COLOUR, pixels(6, 9, 1)], -1)
    picture(tmp_path / "a.png", alpha)
    np.testing.assert_array_equal(read([tmp_path])["image"][0], COLOUR)
    few = COLOUR // 100 * 100
    Image.fromarray(few).convert("P", palette=Image.Palette.ADAPTIVE, colors=8).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read([tmp_path])["image"][0], few)
    Image.fromarray(GREY > 99).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read([tmp_path])["image"][0], np.where(GREY > 99, 255, 0))
    Image.merge("LA", [Image.fromarray(GREY)] * 2).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read([tmp_path])["image"][0], GREY)


def test_pages_of_a_tiff_are_channels_where_they_are_alike(tmp_path):
    pages = [Image.fromarray(pixels(6, 9)) for _ in range(5)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    np.testing.assert_array_equal(read([tmp_path])["image"][0], np.stack([np.asarray(page) for page in pages], -1))
    small = Image.fromarray(pixels(3, 3))
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=[small])
    np.testing.assert_array_equal(read([tmp_path])["image"][0], np.asarray(pages[0]))


# Arrays


def test_the_order_of_axes_is_guessed():
    shapes = [(64, 64), (64, 64, 3), (500, 28, 28), (500, 28, 28, 3), (500, 3, 28, 28), (500, 8, 8, 1), (1, 1, 9, 9)]
    shapes += [(3, 64, 64), (20, 28, 28, 12), (20, 12, 28, 28)]
    axes = ["hw", "hwc", "nhw", "nhwc", "nchw", "nhwc", "nchw", "nhw", "nhwc", "nchw"]
    assert [guess_axes(shape) for shape in shapes] == axes


def save(path, images, labels, extra):
    if path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("set/images", data=images, chunks=(3, *images.shape[1:]), compression="gzip")
            file["set/label"], file["set/redshift"] = [label.encode() for label in labels], extra
    elif path.suffix == ".npz":
        store = np.savez_compressed if "packed" in path.name else np.savez
        store(path, y=labels, x=images, redshift=extra)
    else:
        Table({"IMAGE": images, "label": labels, "redshift": extra}).write(path)


@pytest.mark.parametrize("form", [".h5", ".npz", "packed.npz", ".fits"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_arrays_with_labels_beside_them(tmp_path, form, dtype):
    images, labels, extra = pixels(40, 5, 6, dtype=dtype), np.array(list("abcd") * 10), np.arange(40) / 7
    save(tmp_path / f"a{form}", images, labels, extra)
    found = opened([tmp_path], chunk_size=16, split={"valid": 0.3, "test": 0, "stratify": "label"})
    numbers = []
    for source in found.sources.values():
        for number in range(len(source.sizes)):
            table = source.load(number)
            rows = np.rint(table["redshift"] * 7).astype(int)
            assert table["entry"].tolist() == rows.tolist()
            np.testing.assert_array_equal(table["image"], images[rows])
            assert table["image"].dtype == dtype
            assert table["label"].tolist() == labels[rows].tolist()
            numbers += rows.tolist()
    assert sorted(numbers) == list(range(40))
    (print_,) = found.fingerprint
    assert print_ == str(tmp_path / f"a{form}")


def test_npy_of_any_axes(tmp_path):
    images = pixels(7, 4, 12, 13)
    np.save(tmp_path / "a.npy", images)
    np.testing.assert_array_equal(read([tmp_path])["image"], np.moveaxis(images, 1, -1))
    np.testing.assert_array_equal(read([tmp_path], axes="nhwc")["image"], images)
    np.save(tmp_path / "a.npy", images[0])
    found = ImageFiles(kind="images").read([tmp_path])
    assert found.load(0)["image"].shape == (4, 12, 13)
    assert "--data.axes chw" in found.notes[0]
    assert read([tmp_path], axes="chw")["image"].shape == (1, 12, 13, 4)
    assert read([tmp_path], channels=4)["image"].shape == (1, 12, 13, 4)
    with refuses("nhwc", (4, 12, 13), key="data.axes", file=tmp_path / "a.npy"):
        read([tmp_path], axes="nhwc")


def test_arrays_named_for_parts(tmp_path):
    parts = {"train": 8, "val": 3, "test": 4}
    arrays = {f"{part}_images": pixels(count, 5, 5) for part, count in parts.items()}
    arrays |= {f"{part}_labels": np.arange(count)[:, None] % 3 for part, count in parts.items()}
    np.savez(tmp_path / "medical.npz", **arrays)
    found = opened([tmp_path / "medical.npz"])
    assert {part: source.sizes for part, source in found.sources.items()} == {"train": [8], "valid": [3], "test": [4]}
    np.testing.assert_array_equal(found.sources["test"].load(0)["image"], arrays["test_images"])
    assert found.sources["train"].load(0)["label"].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    np.savez(tmp_path / "two.npz", one=pixels(4, 5, 5), other=pixels(4, 5, 5))
    with refuses("`one`", "`other`", key="data.image", file=tmp_path / "two.npz", hint="--data.image NAME"):
        read([tmp_path / "two.npz"])
    assert read([tmp_path / "two.npz"], image="Other")["image"].shape == (4, 5, 5)
    with refuses("`othr`", key="data.image", file=tmp_path / "two.npz", hint="'other'"):
        read([tmp_path / "two.npz"], image="othr")


@pytest.mark.parametrize("end", ["", ".gz"])
def test_idx_files_of_a_folder_are_parts_with_labels(tmp_path, end):
    sizes = {"train": 30, "t10k": 8}
    arrays = {part: (pixels(count, 7, 7), np.arange(count) % 10) for part, count in sizes.items()}
    for part, (images, labels) in arrays.items():
        idx(tmp_path / f"{part}-images-idx3-ubyte{end}", images)
        idx(tmp_path / f"{part}-labels-idx1-ubyte{end}", labels)
    found = opened([tmp_path], split={"valid": 0.2})
    assert {part: source.sizes for part, source in found.sources.items()} == {"train": [24], "valid": [6], "test": [8]}
    table = found.sources["test"].load(0)
    np.testing.assert_array_equal(table["image"], arrays["t10k"][0])
    assert table["label"].tolist() == arrays["t10k"][1].tolist()
    assert len(found.fingerprint) == 4
    alone = opened([tmp_path / f"t10k-images-idx3-ubyte{end}"], split=SPLIT)
    assert {part: source.sizes for part, source in alone.sources.items()} == {"train": [8]}
    idx(tmp_path / f"t10k-labels-idx1-ubyte{end}", np.arange(5))
    with refuses("8 images", (5,), file=tmp_path / f"t10k-labels-idx1-ubyte{end}"):
        opened([tmp_path])


# FITS


def test_fits_of_one_image_each_with_classes_in_headers(tmp_path):
    for number in range(6):
        header = fits.Header({"OBJECT": f"g{number}", "MORPH": "SE"[number % 2], "Z": number / 5})
        fits.PrimaryHDU(DEEP.astype(np.float32) + number, header).writeto(tmp_path / f"{number}.fits.gz")
    found = opened([tmp_path], truth=["label", "z"], label="morph", meta=["OBJECT"], split=SPLIT)
    table = found.sources["train"].load(0)
    assert table["label"].tolist() == list("SESESE")
    assert table["z"].tolist() == [number / 5 for number in range(6)]
    assert table["OBJECT"][3] == "g3"
    assert table["image"].dtype == np.float32
    np.testing.assert_array_equal(table["image"][2], DEEP.astype(np.float32) + 2)
    assert len(found.fingerprint) == 1


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.float64])
def test_fits_cubes_and_extensions(tmp_path, dtype):
    cube = pixels(30, 6, 7, dtype=dtype)
    others = [fits.ImageHDU(cube, name="SCI"), fits.ImageHDU(cube[:, :2] * 0, name="ERR")]
    fits.HDUList([fits.PrimaryHDU(), *others]).writeto(tmp_path / "a.fits")
    found = read([tmp_path])["image"]
    assert found.dtype == dtype
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, cube)
    np.testing.assert_array_equal(read([tmp_path], image="err")["image"], cube[:, :2] * 0)
    fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(cube[0].astype(np.int32))]).writeto(tmp_path / "b.fits.fz")
    np.testing.assert_array_equal(read([tmp_path / "b.fits.fz"])["image"][0], cube[0])


@pytest.mark.parametrize("form", ["npy", "fits"])
def test_short_stacks_of_several_files_are_channels(tmp_path, form):
    images = [number + pixels(3, 12, 13).astype(np.float32) for number in range(4)]
    for number, image in enumerate(images):
        folder = tmp_path / "ab"[number % 2]
        folder.mkdir(exist_ok=True)
        write_array(folder / f"{number}.{form}", image)
    found = ImageFiles(kind="images", split={"valid": 0.0, "test": 0.0}).read([tmp_path])
    table = found.load(0)
    assert table["image"].shape == (4, 12, 13, 3)
    assert sorted(table["label"]) == ["a", "a", "b", "b"]
    rows = "".join(f"{'ab'[number % 2]}/{number}.{form},{number}\n" for number in range(4))
    (tmp_path / "list.csv").write_text("file,mass\n" + rows)
    table = ImageFiles(kind="images").read([tmp_path / "list.csv"]).load(0)
    for mass, image in zip(table["mass"], table["image"]):
        np.testing.assert_array_equal(image, np.moveaxis(images[int(mass)], 0, -1))


def test_stacks_that_are_long_or_labelled_stay_images(tmp_path):
    for number in range(2):
        np.savez(tmp_path / f"{number}.npz", image=pixels(5, 12, 13), label=np.arange(5) % 2)
    assert read([tmp_path])["image"].shape == (10, 12, 13)
    np.save(tmp_path / "long.npy", pixels(30, 12, 13))
    (tmp_path / "list.csv").write_text("file,mass\nlong.npy,1\n0.npz,2\n")
    with refuses(f"{tmp_path}/long.npy", 30, f"{tmp_path}/0.npz", 5):
        ImageFiles(kind="images").read([tmp_path / "list.csv"])
