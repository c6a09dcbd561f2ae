"""A list of hashes is written once, agrees with sha256sum, and names every file that changed since."""

import shutil
import subprocess

import pytest
from PIL import Image

from sciformer.checks.hashes import compare_hashes
from sciformer.cli.main import main
from sciformer.recipe import Recipe
from tests.errors import refuses

TEXT = "the quick brown fox jumps over the lazy dog, and the lazy dog sleeps on.\n" * 30
TINY = ["--model.dim=16", "--model.depth=1", "--model.heads=2", "--tokens.context=16", "--train.batch=4"]


@pytest.fixture
def files(tmp_path):
    made = [tmp_path / "data" / name for name in ("a.txt", "b.txt")]
    (tmp_path / "data").mkdir()
    for file in made:
        file.write_text(TEXT + file.name)
    return made


def flip(file):
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)


def test_a_flipped_bit_is_named(tmp_path, files):
    listed = tmp_path / "list.sha256"
    problems, notes = compare_hashes(listed, files)
    assert not problems
    assert "2 files" in notes[0]
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "-c", "--quiet", listed.name], cwd=tmp_path, check=True)
    assert compare_hashes(listed, files)[0] == []
    flip(files[1])
    (problem,), _ = compare_hashes(listed, files)
    assert str(files[1]) in problem
    listed.write_text(listed.read_text().splitlines()[0] + "\n")
    problems, notes = compare_hashes(listed, files)
    assert not problems
    assert str(files[1]) in notes[0]
    listed.write_text(f"{64 * '0'}  other/a.txt\n")
    (problem,), notes = compare_hashes(listed, files)
    assert str(files[0]) in problem
    assert not notes
    listed.write_text("abc  data/a.txt\n")
    with refuses("abc", file=listed, line=1):
        compare_hashes(listed, files)


def test_a_deep_check_compares_with_the_list_beside_the_recipe(tmp_path, files, capsys, here):
    (tmp_path / "mine.yaml").write_text("base: text/gpt-char\ndata:\n  files: [data/a.txt, data/b.txt]\n")
    assert main(["check", "mine.yaml", *TINY, "--hashes", "mine.sha256"]) == 0
    assert main(["check", "mine.yaml", *TINY, "--deep"]) == 0
    capsys.readouterr()
    flip(files[0])
    assert main(["check", "mine.yaml", *TINY, "--deep"]) == 2
    said = capsys.readouterr().out
    assert "a.txt" in said
    assert "mine.sha256" in said


def test_pictures_in_folders_are_listed(tmp_path):
    for number in range(12):
        path = tmp_path / ("dark" if number % 2 else "light") / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("L", (8, 8), number * 10).save(path)
    recipe = Recipe.load("images/mnist-vit", {"data.kind": "images", "data.files": [str(tmp_path)]})
    files = recipe.data.open().files
    assert sorted(files) == sorted(tmp_path.glob("*/*.png"))
    listed = tmp_path / "list.sha256"
    compare_hashes(listed, files)
    flip(files[3])
    (problem,), _ = compare_hashes(listed, files)
    assert str(files[3]) in problem
