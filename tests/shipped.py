"""Shipped recipes made small: data of their own kind, few tokens, five steps on one CPU thread."""

import numpy as np

from sciformer.recipe import Recipe

TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer\n" * 12
PAIRS = {"en": "a dog plays in the snow\ntwo cats sleep\n", "de": "ein hund spielt im schnee\nzwei katzen schlafen\n"}
LABELLED = "".join(f"{'good' if i % 2 else 'bad'}\tthis film number {i} is {i % 2}\n" for i in range(24))
TAGGED = "".join(f"Anna{i} B-person\nlives O\nin O\nBerlin B-location\n\nI O\nrun O\n{i} O\n\n" for i in range(8))
IMAGES = np.random.default_rng(0).integers(0, 256, (40, 28, 28, 3), np.uint8)
SMALL = {"model.dim": 16, "model.depth": 1, "model.heads": 2, "train.batch": 4, "train.device": "cpu"}
SMALL |= {"train.tokens": None, "train.init_from": "", "train.pad_to_multiple": None}
FIVE = {"train.steps": 5, "train.epochs": None, "train.evaluate_every": 5, "train.log_every": 1, "train.warmup": 1}
# What makes the data of a reader small, or is needed to have any.
DATA = {
    "lattices": {"size": 8, "number": 6, "chains": 6, "samples": 1, "cache": ""},
    "states": {},
    "text": {"files": ["{folder}/text.txt"]},
    "parallel": {"files": ["{folder}/pairs.{{}}"], "split": {"valid": 0.2}},
    "lines": {"files": ["{folder}/labelled.tsv"], "columns": ["label", "text"]},
    "conll": {"files": ["{folder}/tagged.conll"], "split": {"valid": 0.2}},
    "copying_memory": {"lag": 4, "number": 40},
    "pronouns": {"number": 60},
    "flows": {"number": 60, "rows": 8, "columns": 16, "neighbourhood": (6, 4, 8)},
    "jets": {"number": 60, "valid": 20, "test": 20},
    "lightcurves": {"number": 60, "valid": 20, "test": 20},
    "images": {"files": ["{folder}/images.npz"], "split": {"valid": 0.2}},
    **{kind: {"number": 24, "valid": 8, "test": 8} for kind in ("galaxies", "lenses", "cues", "scenes", "transients")},
}
# The images of these are small and grey; those of the others are of the size that their recipe asks for.
GREY = {"digits": 8, "mnist": 28}
# What a recipe to fine-tune leaves to the run it starts from.
OPEN = {name: {"tokens.unit": "words", "model.dim": 64} for name in ("text/sentiment", "text/tagging")}
for kind in ("temperature", "masked"):
    OPEN |= {f"spins/ising-{kind}{rival}": {"data.size": 32} for rival in ("", "-resnet18", "-resnet50")}
OPEN["images/mae-classify"] = {"tokens.patch": 16, "model.dim": 192}


def small(name, folder):
    """The recipe with data of its own kind, as few as it takes."""
    (folder / "text.txt").write_text(TEXT)
    (folder / "labelled.tsv").write_text(LABELLED)
    (folder / "tagged.conll").write_text(TAGGED)
    for column, text in PAIRS.items():
        (folder / f"pairs.{column}").write_text(
            "".join(f"{line} {i}\n" for i in range(10) for line in text.split("\n")[:2])
        )
    np.savez(folder / "images.npz", image=IMAGES, label=np.arange(len(IMAGES)) % 10)
    kind = Recipe.load(name).data.kind
    assert kind in DATA, f"say here what makes the data of `{kind}` small"
    data = {
        f"data.{key}": [word.format(folder=folder) for word in value] if isinstance(value, list) else value
        for key, value in DATA[kind].items()
    }
    grey = next((size for word, size in GREY.items() if f"/{word}-" in name), None)
    if grey is not None:
        data |= {"data.size": grey, "data.channels": 1}
    return Recipe.load(name, data | {"train.init_from": ""} | OPEN.get(name, {}))


def short(recipe):
    """Few tokens at once, of few kinds."""
    parts = recipe.tokens if isinstance(recipe.tokens, dict) else {"": recipe.tokens}
    scenes = recipe.data.kind == "scenes"  # of 64 pixels or more
    changes = {}
    for name, tokens in parts.items():
        key = f"tokens.{name}." if name else "tokens."
        if tokens.kind == "particles":
            changes |= {f"{key}max_tokens": 12, f"{key}widths": [8], f"{key}pair_widths": [8]}
        if recipe.data.kind == "states":  # an energy is a sum over all of them
            changes |= {"data.lattice": "chain", "data.size": 8, f"{key}patch": [1, 2], "train.batch": 70}
        elif tokens.kind == "patches" and recipe.data.kind != "lattices":
            changes["data.size"] = 2 * tokens.patch if recipe.data.kind == "images" else 64 if scenes else 24
            changes |= {"model.compress": 3} if getattr(recipe.model, "compress", None) else {}
            if recipe.model.kind == "masked_autoencoder":
                changes |= {"model.decoder_dim": 16, "model.decoder_depth": 1, "model.decoder_heads": 2}
            if recipe.model.kind == "vector_quantized":
                changes |= {"model.decoder_depth": 1, "model.codes": 8}
        if tokens.kind == "picture_codes":
            changes[f"{key}codes"] = 16
        if tokens.kind == "observations":
            changes[f"{key}window"] = 40
            if getattr(recipe.data, "what", "supernovae") != "supernovae":  # their number follows from the survey
                changes["data.points"] = 640 if tokens.patch > 1 else 60
        if tokens.kind == "cubes":
            changes |= {f"{key}cube": (3, 4, 4), f"{key}members": 2}
        if tokens.kind == "text":
            changes[f"{key}context"] = 48
            if tokens.unit not in ("characters", "bytes"):
                changes |= {f"{key}vocabulary": 300 if tokens.unit != "words" else None, f"{key}tokenizer": ""}
    return changes


def tiny(name, folder):
    """The recipe as the sweep and the golden runs train it."""
    recipe = small(name, folder)
    wide = getattr(recipe.model, "widths", None)
    widths = {"model.widths": [8] * len(wide), "model.neighbours": 3} if wide else {}
    changes = {**SMALL, **FIVE, **short(recipe), **widths}
    known = {f"model.{key}" for key in type(recipe.model).model_fields}
    return recipe.change({key: value for key, value in changes.items() if not key.startswith("model.") or key in known})
