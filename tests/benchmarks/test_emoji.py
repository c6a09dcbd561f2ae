"""The benchmark of emoji: parts without leaks, ties that share a hit, and rows of all seeds."""

import json

import numpy as np
import pytest
from PIL import Image

import emoji

SIGNS = {"": "PERSON", "-200D-2640-FE0F": "WOMAN", "-200D-2642-FE0F": "MAN"}


def entries(count=40):
    """Entries of emoji.json: families of a person, a woman and a man with tones, and things without tones."""
    found = []
    for number in range(count):
        for sign, word in SIGNS.items():
            code = f"1F3{number:02}{sign}"
            tones = {tone: {"image": f"{code}-{tone}.png"} for tone in (*emoji.TONES, "1F3FB-1F3FC")}
            found.append({"unified": code, "name": f"{word}: DOING {number}", "image": f"{code}.png"})
            found[-1] |= {"skin_variations": tones, "has_img_twitter": True}
        found.append({"unified": f"26{number:02}", "name": f"THING {100 + number}", "image": f"26{number:02}.png"})
        found[-1]["has_img_twitter"] = number != 3
    return found


def test_a_family_is_held_out_as_a_whole_and_a_tone_is_in_one_part():
    parts = emoji.divide(entries())
    families = {part: {emoji.family(row["base"]) for row in rows} for part, rows in parts.items()}
    assert not families["bases"] & (families["train"] | families["valid"] | families["combinations"])
    assert len(families["bases"]) == 79 // emoji.HELD_OUT
    assert families["combinations"] <= families["train"]
    pairs = [(row["base"], row["tone"]) for rows in parts.values() for row in rows]
    assert len(pairs) == len(set(pairs)) == 40 * 3 * 6 + 39
    bases = {row["base"] for row in parts["combinations"]}
    assert len(parts["combinations"]) == 2 * len(bases)
    assert emoji.family("1F468-200D-1F33E") == emoji.family("1F469-1F33E") == "1F9D1-1F33E"
    assert emoji.gender("woman doing 1") == "woman"
    assert emoji.gender("man and woman holding hands") == emoji.gender("a human") == ""


def test_equal_candidates_share_a_hit():
    similar = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    captions = np.array(["a", "b", "b"])
    assert emoji.hits(similar, np.array(["a", "b"]), captions) == 0.75
    assert emoji.hits(similar, np.array(["b", "a"]), captions) == 0.25
    assert emoji.recalls(np.eye(3), captions) == {"recall1": 1, "reverse_recall1": 1}


def test_pictures_are_put_on_white_and_neighbours_and_rows_follow(tmp_path):
    folder = tmp_path / "package" / "img" / "twitter" / "64"
    folder.mkdir(parents=True)
    listed, rng = entries(16), np.random.default_rng(0)
    (tmp_path / "package" / "emoji.json").write_text(json.dumps(listed))
    for one in listed:
        base = rng.integers(0, 200, (4, 4, 3))
        images = [one["image"], *(kind["image"] for kind in one.get("skin_variations", {}).values())]
        for number, image in enumerate(images):
            pixels = np.zeros((8, 8, 4), np.uint8)
            pixels[2:6, 2:6, :3], pixels[2:6, 2:6, 3] = base, 255
            pixels[0, number] = [220, 210, 200, 255]  # its tone
            Image.fromarray(pixels).save(folder / image)
    emoji.data(tmp_path / "package", tmp_path / "data")
    assert "CC-BY" in (tmp_path / "data" / "ATTRIBUTION.txt").read_text()
    table = emoji.read(tmp_path / "data", "combinations")
    assert table["image"].shape == (len(table["path"]), 8, 8, 3)
    assert (table["image"][:, 7, 7] == 255).all()
    found = emoji.neighbour(tmp_path / "data", emoji.pixels)
    assert found["combinations.recall1"] >= 0.4  # the base is found, its two tones are a guess
    assert found["combinations.gender"] == 1
    assert found["combinations.tone"] == 0  # the nearest picture has another tone by construction
    assert np.allclose((emoji.colours(table["image"]) ** 2).sum(1), 1)
    for side in emoji.RIVALS:
        (tmp_path / f"{side}.json").write_text(json.dumps({"scores": found}))
    behind = emoji.conditions(tmp_path / "data")
    (tmp_path / "conditions.json").write_text(json.dumps(behind))
    for seed, more in enumerate((0.0, 0.2)):
        scores = dict.fromkeys(found, 0.4 + more)
        made = {"scores": scores, "cpu_s": 10.0, "parameters": 7}
        (tmp_path / f"coca-{seed}.json").write_text(json.dumps(made))
    emoji.collect(tmp_path, tmp_path / "rows.json")
    rows = {row["id"]: row for row in json.loads((tmp_path / "rows.json").read_text())}
    assert len(rows) == 3 * len(found)
    row = rows["emoji.coca.recall1"]
    assert (row["value"], row["seeds"], row["spread"]) == (0.5, 2, pytest.approx(0.1414, abs=1e-4))
    assert rows["emoji.neighbour.bases.tone"]["spread"] is None
    assert row["pictures"] == len(table["path"])
    assert row["unknown_words"] == 0
    assert rows["emoji.coca.bases.recall1"]["unknown_words"] == 1  # no number is in two families
