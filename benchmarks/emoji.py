"""Real pictures with captions: CoCa on Twemoji beside the nearest neighbour on pixels, on one CPU core.

    npm pack emoji-datasource-twitter@16.0.0 && tar xzf emoji-datasource-twitter-16.0.0.tgz     # makes package/, 62 MB
    python benchmarks/emoji.py data --npm package --out emoji
    python benchmarks/emoji.py train --data emoji --seed 0 --out runs/emoji                     # and seeds 1 and 2
    python benchmarks/emoji.py neighbour --data emoji --out runs/emoji
    python benchmarks/emoji.py collect --out runs/emoji

`data` writes 3,491 pictures on white and four tables with the columns path, caption, base, tone and gender. An emoji
without a skin tone is a base. Its family is the same emoji of a woman, of a man and of a person, facing either side.

    bases.csv          families that no other table has: 1 of 8
    combinations.csv   two tones of each other base with tones; the base is known, and so is the tone
    valid.csv          a third tone of every other base
    train.csv          everything else

`recall1` is the share of pictures of a table whose caption is found among all captions of this table; equal captions
count as one. `tone` and `gender` are shares of right classes, by texts that describe the classes (zero-shot); the
training part has captions with these words, but no labels. The nearest neighbour finds the caption with the highest
cosine (words weighted by inverse frequency) to the caption of the nearest training picture, and the tone and gender of
the nearest training picture that has one. Several equal candidates share a hit. `colours` is the same with pictures
compared by their histograms of 512 colours: the nearest picture by pixels of a known base is this base with another
tone, which is never the right one.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from PIL import Image

from measure import RESULTS, Row, commit, hardware, record, versions
from sciformer.data.columns import Array
from sciformer.evaluation.embed import embed
from sciformer.evaluation.zero_shot import zero_shot
from sciformer.recipe import Recipe
from sciformer.run import Run, train

TONES = {"1F3FB": "light", "1F3FC": "medium light", "1F3FD": "medium", "1F3FE": "medium dark", "1F3FF": "dark"}
GENDERS = ("woman", "man")
PEOPLE = ("1F468", "1F469")  # man, woman
PERSON, FEMALE, MALE, RIGHT, JOINER, VARIANT = "1F9D1", "2640", "2642", "27A1", "200D", "FE0F"
PARTS = ("train", "valid", "combinations", "bases")
TESTED = ("combinations", "bases")
HELD_OUT = 8  # one family of so many is held out
ATTRIBUTION = """\
The pictures are Twemoji, copyright 2019 Twitter, Inc and other contributors, licensed under CC-BY 4.0
(https://creativecommons.org/licenses/by/4.0/). They were taken from the npm package emoji-datasource-twitter (MIT,
Cal Henderson) and changed: the transparent background became white.
"""
NAME = "images/coca"
CHANGES: dict[str, Any] = {
    "data.kind": "images",
    "data.channels": 3,
    "tokens.source.augment": ["crop"],
    "tokens.source.crop": [0.7, 1.0],
    "tokens.target.context": 24,
    "tokens.target.minimum": 2,
    "model.dim": 64,
    "model.source.depth": 2,
    "model.target.depth": 1,
    "model.multimodal_depth": 1,
    "train.steps": 1000,
    "train.batch": 128,
    "train.warmup": 100,
    "train.evaluate_every": 250,
    "train.device": "cpu",
}


# Data


def family(code: str) -> str:
    """Code of an emoji without gender, direction and variant, to tell families apart."""
    parts = [PERSON if part in PEOPLE else part for part in code.split("-")]
    return "-".join(part for part in parts if part not in (FEMALE, MALE, RIGHT, JOINER, VARIANT))


def describe(name: str, tone: str = "") -> str:
    """Caption of an emoji: its name in small letters, and its skin tone."""
    words = " ".join(name.lower().replace(":", " ").replace(",", " ").split())
    return f"{words} with {tone} skin" if tone else words


def gender(caption: str) -> str:
    """woman or man, if the caption names only women or only men."""
    found = [word for word in GENDERS if word in caption.split()]
    return found[0] if len(found) == 1 else ""


def divide(emoji: Sequence[dict[str, Any]], seed: int = 0) -> dict[str, list[dict[str, str]]]:
    """Rows of each part."""
    rng = np.random.default_rng(seed)
    emoji = [one for one in emoji if one["has_img_twitter"]]
    families = sorted({family(one["unified"]) for one in emoji})
    out = set(rng.permutation(families)[: len(families) // HELD_OUT].tolist())
    found: dict[str, list[dict[str, str]]] = {part: [] for part in PARTS}
    for number, one in enumerate(emoji):
        toned = {TONES[code]: kind for code, kind in one.get("skin_variations", {}).items() if code in TONES}
        places = dict.fromkeys(["", *toned], "train")
        order = rng.permutation(list(toned)).tolist()
        places |= dict.fromkeys(order[:2], "combinations") | dict.fromkeys(order[2 : 2 + number % 2], "valid")
        for tone, place in places.items():
            file, caption = (toned[tone] if tone else one)["image"], describe(one["name"], tone)
            row = {"path": file, "caption": caption, "base": one["unified"], "tone": tone, "gender": gender(caption)}
            found["bases" if family(one["unified"]) in out else place].append(row)
    return found


def data(npm: Path, out: Path) -> None:
    """Write pictures on white, the tables of the parts, and the attribution."""
    parts = divide(json.loads((npm / "emoji.json").read_text("utf-8")))
    out.mkdir(parents=True, exist_ok=True)
    (out / "ATTRIBUTION.txt").write_text(ATTRIBUTION)
    for part, rows in parts.items():
        for row in rows:
            with Image.open(npm / "img" / "twitter" / "64" / row["path"]) as file:
                picture = file.convert("RGBA")
                white = Image.new("RGBA", picture.size, "white")
                Image.alpha_composite(white, picture).convert("RGB").save(out / row["path"])
        with (out / f"{part}.csv").open("w", newline="", encoding="utf-8") as written:
            table = csv.DictWriter(written, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
        print(f"{part}: {len(rows):,} pictures of {len({row['base'] for row in rows}):,} bases")


def read(folder: Path, part: str) -> dict[str, Array]:
    """Columns of a part, and its pictures."""
    with (folder / f"{part}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return {**found, "image": np.stack([np.asarray(Image.open(folder / path)) for path in found["path"]])}


# Scores


def hits(similar: Array, wanted: Array, candidates: Array) -> float:
    """Share of the queries whose most similar candidate is the wanted text; equal candidates share a hit."""
    best = similar >= similar.max(1, keepdims=True) - 1e-9
    right = best & (candidates[None] == wanted[:, None])
    return float((right.sum(1) / best.sum(1)).mean())


def recalls(similar: Array, captions: Array) -> dict[str, float]:
    """Recall@1 both ways from similarities (pictures, captions), where equal captions count as one."""
    return {"recall1": hits(similar, captions, captions), "reverse_recall1": hits(similar.T, captions, captions)}


def prompts(column: str, table: dict[str, Array]) -> dict[str, list[str]]:
    """Texts that describe the classes of a column."""
    if column == "gender":
        return {one: [one, *(f"{one} with {tone} skin" for tone in TONES.values())] for one in GENDERS}
    who = ("person", "woman", "man", "hand")
    return {tone: [f"{one} with {tone} skin" for one in who] for tone in TONES.values()}


def scores(run: Run, folder: Path) -> dict[str, float]:
    """Scores of a run of CoCa."""
    found: dict[str, float] = {}
    for part in TESTED:
        table = read(folder, part)
        image = embed(run, {"image": table["image"]}, "projection", stream="source").vectors
        text = embed(run, {"caption": table["caption"]}, "projection", stream="target").vectors
        here = recalls(image @ text.T, table["caption"])
        for column in ("tone", "gender"):
            rows = table[column] != ""
            guessed = zero_shot(run, {"image": table["image"][rows]}, prompts(column, table))
            here[column] = float((guessed.names[guessed.probabilities.argmax(1)] == table[column][rows]).mean())
        found |= {f"{part}.{name}": value for name, value in here.items()}
    return found


class Words:
    """Words of captions, weighted by ln(n / number of captions with the word); unknown words weigh most."""

    def __init__(self, captions: Sequence[str]) -> None:
        self.count = len(captions)
        self.frequency: dict[str, int] = {}
        for caption in captions:
            for word in set(caption.split()):
                self.frequency[word] = self.frequency.get(word, 0) + 1

    def similarity(self, first: Sequence[str], second: Sequence[str]) -> Array:
        """Cosines (n, m) of captions."""
        words = {word: i for i, word in enumerate(sorted({w for text in (*first, *second) for w in text.split()}))}
        weight = np.array([np.log((self.count + 1) / self.frequency.get(word, 1)) for word in words])

        def vectors(texts: Sequence[str]) -> Array:
            made = np.zeros((len(texts), len(words)))
            for row, text in enumerate(texts):
                made[row, [words[word] for word in text.split()]] = 1
            made *= weight
            return made / np.linalg.norm(made, axis=1, keepdims=True)

        return vectors(first) @ vectors(second).T


def pixels(pictures: Array) -> Array:
    """Pixels (n, D) of pictures, from 0 to 1."""
    found: Array = pictures.reshape(len(pictures), -1).astype(np.float64) / 255
    return found


def colours(pictures: Array) -> Array:
    """Square roots (n, 512) of the shares of pixels in each of 8 x 8 x 8 colours; white pixels do not count."""
    found = []
    for picture in pictures.reshape(len(pictures), -1, 3) // 32:
        bins = picture.astype(int) @ np.array([64, 8, 1])
        counts = np.bincount(bins, minlength=512).astype(float)
        counts[-1] = 0
        found.append(counts / max(1.0, counts.sum()))
    return np.sqrt(found)


def distances(first: Array, second: Array) -> Array:
    """Squared Euclidean distances (n, m) of vectors."""
    found: Array = (first**2).sum(1)[:, None] + (second**2).sum(1)[None] - 2 * first @ second.T
    return found


def neighbour(folder: Path, vectors: Callable[[Array], Array]) -> dict[str, float]:
    """Scores of the nearest neighbour, with pictures compared by vectors."""
    known, found = read(folder, "train"), dict[str, float]()
    seen = vectors(known["image"])
    words = Words(known["caption"].tolist())
    for part in TESTED:
        table = read(folder, part)
        captions, image = table["caption"].tolist(), vectors(table["image"])
        near = known["caption"][distances(image, seen).argmin(1)].tolist()
        here = {"recall1": hits(words.similarity(near, captions), table["caption"], table["caption"])}
        alike = words.similarity(captions, known["caption"].tolist()).argmax(1)
        here["reverse_recall1"] = hits(-distances(seen[alike], image), table["caption"], table["caption"])
        for column in ("tone", "gender"):
            rows, some = table[column] != "", known[column] != ""
            guess = known[column][some][distances(image[rows], seen[some]).argmin(1)]
            here[column] = float((guess == table[column][rows]).mean())
        found |= {f"{part}.{name}": value for name, value in here.items()}
    return found


RIVALS = {"neighbour": pixels, "colours": colours}


def one(folder: Path, seed: int, out: Path, changes: dict[str, Any]) -> None:
    """Train and score one seed."""
    torch.set_num_threads(1)
    began = time.process_time()
    files = {"data.files": [str(folder / "train.csv")], "data.valid": [str(folder / "valid.csv")]}
    recipe = Recipe.load(NAME, {**CHANGES, **files, "train.seed": seed, **changes})
    run = train(recipe, out / str(seed), report=False)
    seconds = time.process_time() - began
    found: dict[str, Any] = {"scores": scores(run, folder), "cpu_s": seconds, "parameters": run.about["parameters"]}
    (out / f"coca-{seed}.json").write_text(json.dumps(found))
    print(json.dumps(found, indent=1))


def collect(out: Path, results: Path) -> None:
    """Write the rows of the seeds and of the neighbour."""
    sides = {"coca": [json.loads(path.read_text()) for path in sorted(out.glob("coca-*.json"))]}
    sides |= {side: [json.loads((out / f"{side}.json").read_text())] for side in RIVALS}
    behind = json.loads((out / "conditions.json").read_text())
    rows: list[Row] = []
    for side, found in sides.items():
        for name in found[0]["scores"]:
            part, _, score = name.partition(".")
            values = [seed["scores"][name] for seed in found]
            more = stdev(values) if len(values) > 1 else None
            row: Row = {"id": f"emoji.{side}.{score}" if part == TESTED[0] else f"emoji.{side}.{part}.{score}"}
            row |= {"value": round(mean(values), 4), "unit": "share", "better": "higher", "seeds": len(values)}
            row["spread"] = None if more is None else round(more, 4)
            step = "train --data emoji --seed SEED" if side == "coca" else "neighbour --data emoji"
            row |= {"command": f"python benchmarks/emoji.py {step} --out runs/emoji", "hardware": hardware("cpu")}
            row |= {"versions": versions(), "commit": commit(), "pictures": behind["pictures"][name]}
            row |= {"chance": round(behind["chance"][name], 4)}
            row |= {"unknown_words": round(behind["unknown"][part], 4)} if score == "recall1" else {}
            if side == "coca":
                row |= {"cpu_s": round(mean(seed["cpu_s"] for seed in found)), "parameters": found[0]["parameters"]}
            rows.append(row)
            print(row["id"], row["value"], row["spread"])
    record(results, rows)


def conditions(folder: Path) -> dict[str, dict[str, float]]:
    """Number of pictures behind each score, the score of chance, and the share of captions with a new word."""
    pictures, chance, unknown = dict[str, float](), dict[str, float](), dict[str, float]()
    known = set(" ".join(read(folder, "train")["caption"].tolist()).split())
    for part in TESTED:
        table = read(folder, part)
        unknown[part] = float(np.mean([not known.issuperset(text.split()) for text in table["caption"].tolist()]))
        for score in ("recall1", "reverse_recall1"):
            pictures[f"{part}.{score}"] = len(table["caption"])
            chance[f"{part}.{score}"] = float((table["caption"][None] == table["caption"][:, None]).mean())
        for column in ("tone", "gender"):
            classes = table[column][table[column] != ""]
            pictures[f"{part}.{column}"] = len(classes)
            chance[f"{part}.{column}"] = float(np.unique(classes, return_counts=True)[1].max() / len(classes))
    return {"pictures": pictures, "chance": chance, "unknown": unknown}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("step", choices=["data", "train", "neighbour", "collect"])
    options.add_argument("--npm", type=Path, help="the unpacked npm package")
    options.add_argument("--data", type=Path, help="folder that the step `data` wrote")
    options.add_argument("--out", type=Path, required=True, help="folder of the pictures or of the runs")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--set", nargs="*", default=[], help="changes of the recipe: train.steps=100")
    options.add_argument("--results", type=Path, default=RESULTS / "captions-emoji.json")
    chosen = options.parse_args()
    if chosen.step == "data":
        data(chosen.npm, chosen.out)
    elif chosen.step == "collect":
        collect(chosen.out, chosen.results)
    else:
        chosen.out.mkdir(parents=True, exist_ok=True)
        if chosen.step == "train":
            changes = {key: json.loads(value) for key, _, value in (word.partition("=") for word in chosen.set)}
            one(chosen.data, chosen.seed, chosen.out, changes)
        else:
            written = {side: {"scores": neighbour(chosen.data, vectors)} for side, vectors in RIVALS.items()}
            for name, found in {**written, "conditions": conditions(chosen.data)}.items():
                (chosen.out / f"{name}.json").write_text(json.dumps(found))
                print(name, json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
