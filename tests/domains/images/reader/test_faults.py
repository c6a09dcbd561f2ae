"""Images that are broken, too large, blank, or not there: each is named, with what to do."""

import numpy as np
import pytest
from astropy.io import fits
from PIL import Image

from sciformer.domains.images.reader.decode import pillow
from sciformer.domains.images.reader.reader import ImageFiles
from sciformer.errors import UserError
from tests.domains.images.reader.examples import bomb, classes, opened, picture, pixels, read, write_array
from tests.errors import refuses


def damage(folder):
    """Four bad files among good ones; the last is seen only when its pixels are unpacked."""
    classes(folder, 8, shape=(40, 40, 3))
    cut = folder / "cat" / "0.png"
    cut.write_bytes(cut.read_bytes()[:900])
    (folder / "cat" / "1.png").write_bytes(b"<html>404</html>")
    (folder / "dog" / "2.png").write_bytes(b"")
    inside = folder / "dog" / "3.png"
    raw = inside.read_bytes()
    inside.write_bytes(raw[:300] + bytes(99) + raw[399:])


def test_bad_files_are_listed(tmp_path):
    damage(tmp_path / "a")
    with pytest.raises(UserError) as error:
        opened([tmp_path / "a"])
    words = str(error.value)
    assert "3 of 16" in words
    for name, why in (("cat/0.png", "truncated"), ("cat/1.png", "begins with b'<html>404<"), ("dog/2.png", "empty")):
        (line,) = (line for line in words.split("\n") if name in line)
        assert why in line
    assert "--data.bad_files skip" in words
    with refuses("PNG", "b'<html>", file=tmp_path / "a/cat/1.png"):
        read([tmp_path / "a" / "cat" / "1.png"])


def test_what_only_unpacking_shows_is_named_then(tmp_path):
    damage(tmp_path / "a")
    for name in ("cat/0.png", "cat/1.png", "dog/2.png"):
        (tmp_path / "a" / name).unlink()
    source = opened([tmp_path / "a"], split={"valid": 0, "test": 0}).sources["train"]
    with refuses("picture", file=tmp_path / "a/dog/3.png", hint="--data.bad_files skip"):
        source.load(0)
    with refuses("picture", file=tmp_path / "a/dog/3.png", hint="without"):
        read([tmp_path / "a"])


def test_bad_files_are_skipped_and_counted_on_request(tmp_path):
    damage(tmp_path / "a")
    found = opened([tmp_path / "a"], bad_files="skip", split={"valid": 0, "test": 0})
    assert [note.partition(":")[0].rpartition("/")[2] for note in found.notes] == ["0.png", "1.png", "2.png", "3.png"]
    assert found.sources["train"].load(0)["image"].shape == (12, 40, 40, 3)
    for number in range(20):
        (tmp_path / "a" / "cat" / f"x{number}.png").write_bytes(b"x")
    assert opened([tmp_path / "a"], bad_files="skip").notes[-1].startswith("left out 14 more")
    with refuses("data.files", hint="x0.png"):
        opened([tmp_path / "a" / "cat" / "x*.png"], bad_files="skip")


@pytest.mark.parametrize("side", [9_000, 12_000, 60_000])
def test_bombs_are_refused_before_they_burst(tmp_path, side, monkeypatch):
    bomb(tmp_path / "a.png", side)
    monkeypatch.setattr(pillow().Image, "load", lambda *_: pytest.fail("it was unpacked"))
    with refuses(f"{side**2:,}", "67,108,864", key="data.pixels", file=tmp_path / "a.png"):
        opened([tmp_path / "a.png"], truth=())


def test_the_limit_of_pixels_is_that_of_every_format(tmp_path):
    picture(tmp_path / "a.png", pixels(20, 20))
    pages = [Image.fromarray(pixels(10, 10)) for _ in range(5)]
    pages[0].save(tmp_path / "b.tif", save_all=True, append_images=pages[1:])
    np.save(tmp_path / "c.npy", pixels(3, 20, 20))
    for name, mention in (("a.png", 400), ("b.tif", 500), ("c.npy", "20 x 20")):
        assert len(read([tmp_path / name], pixels=500)["file"]) in (1, 3)
        with refuses(399, mention, key="data.pixels", file=tmp_path / name):
            read([tmp_path / name], pixels=399)


def test_pixels_that_are_not_finite_are_counted(tmp_path):
    images = np.ones((5, 6, 6), np.float32)
    images[1, :2, 0], images[3, 0, 0] = np.nan, np.inf
    fits.PrimaryHDU(images).writeto(tmp_path / "a.fits")
    source = opened([tmp_path], truth=(), split={"valid": 0, "test": 0}).sources["train"]
    with refuses("3 of 180", "1 more", key="data.blank", file=tmp_path / "a.fits", hint="--data.blank 0"):
        source.load(0)
    found = opened([tmp_path], truth=(), blank=-1, split={"valid": 0, "test": 0})
    assert found.notes[-1].startswith("3 pixels in 2 images are not finite")
    table = found.sources["train"].load(0)
    np.testing.assert_array_equal(table["image"], np.where(np.isfinite(images), images, -1))


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.fits", "train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"])
def test_arrays_that_were_cut_off(tmp_path, name):
    path = tmp_path / name
    write_array(path, pixels(400, 9, 9))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with refuses(file=path):
        read([path])


def test_what_could_run_code_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[{}, 1], [2, 3]], object), allow_pickle=True)
    np.savez(tmp_path / "b.npz", image=np.array([None]))
    for path in (tmp_path / "a.npy", tmp_path / "b.npz"):
        with refuses(file=path):
            read([path])


def test_names_that_lead_nowhere(tmp_path):
    with refuses("images", key="data.files", hint="--data.files"):
        opened([])
    with refuses("images", file=tmp_path / "nothing"):
        opened([tmp_path / "nothing"])
    (tmp_path / "notes.txt").write_text("hello")
    with refuses("1 files .txt", file=tmp_path):
        opened([tmp_path])
    (tmp_path / "a.csv").write_text("file,z\nimg/0.png,1\nimg/1.png,2\n")
    with refuses("`file`", "2 images", "img/0.png", key="data.image", file=tmp_path / "a.csv"):
        opened([tmp_path / "a.csv"], ())
    classes(tmp_path / "pets", 2)
    with refuses("`label`", file=tmp_path / "pets/cat/0.png", hint="CLASS"):
        opened([tmp_path / "pets" / "cat"])
    picture(tmp_path / "pets" / "stray.png")
    with refuses("1 images", "cat, dog", file=tmp_path / "pets", hint="/*.png"):
        opened([tmp_path / "pets"])
    with refuses("cat and bird", file=tmp_path / "pets/cat/0.png"):
        opened([f"cat:{tmp_path}/pets/cat/*.png", f"bird:{tmp_path}/pets/cat/0.png"])
    (tmp_path / "pets" / "cat" / "labels.csv").write_text("file\n0.png\n")
    found = ImageFiles(kind="images").read([tmp_path / "pets" / "cat"])
    assert "labels.csv was not read" in found.notes[0]


def test_channels_that_do_not_go_together(tmp_path):
    np.save(tmp_path / "a.npy", pixels(6, 9, 9, 5))
    np.save(tmp_path / "b.npy", pixels(6, 9, 9, 2))
    with refuses(f"2 in {tmp_path}/b.npy, 5 in {tmp_path}/a.npy"):
        read([tmp_path])
    np.save(tmp_path / "c.npy", pixels(6, 81))
    np.savez(tmp_path / "d.npz", image=pixels(6, 81), label=np.arange(6))
    with refuses("`image`", (6, 81), file=tmp_path / "d.npz", hint="(n, height, width)"):
        read([tmp_path / "d.npz"])


def test_folders_that_tell_no_class(tmp_path):
    classes(tmp_path / "a", 3)
    (tmp_path / "a" / "eel").mkdir()
    (note,) = opened([tmp_path / "a"]).notes
    assert note.startswith(f"{tmp_path}/a/eel has no images")
    classes(tmp_path / "b", 3, ["cat"])
    with refuses("`label`", hint=f"{tmp_path}/b"):
        opened([tmp_path / "b"])


def test_a_keyword_of_headers_is_found_by_what_is_like_it(tmp_path):
    for number in range(3):
        fits.PrimaryHDU(pixels(4, 4), fits.Header({"REDSHIFT": number / 2})).writeto(tmp_path / f"{number}.fits")
    found = opened([tmp_path], ["REDSHIFT"], split={"valid": 0, "test": 0}).sources["train"].load(0)
    assert sorted(found["REDSHIFT"]) == [0, 0.5, 1]
    with refuses("`REDSHFT`", hint="'REDSHIFT'"):
        opened([tmp_path], ["REDSHFT"])
