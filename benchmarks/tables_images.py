"""Tables of images, for `tables.py`."""

from __future__ import annotations

from measure import Row
from table import UNKNOWN, figure, markdown, rows

MODELS = {
    "vit": "Vision Transformer, patches of 8",
    "linformer": "the same, Linformer",
    "vit4": "Vision Transformer, patches of 4",
    "resnet18": "ResNet-18",
}
WAYS = {
    "mae": "masked autoencoder, fine-tuned",
    "probe": "masked autoencoder, linear probe",
    "scratch": "random weights",
}


def percent(row: Row | None, digits: int = 2) -> str:
    """Share in percent with its spread over seeds."""
    return figure(row, digits, 100, " %")


def size(row: Row | None) -> str:
    """Number of parameters, if known."""
    return f"{row['parameters']:,}" if row else ""


def digits() -> str:
    """Table of handwritten digits."""
    found, lines = rows("images"), []
    for kind, name in (("vit", "Vision Transformer"), ("cnn", "convolutional network")):
        small, large = (found.get(f"{data}.{kind}.accuracy") for data in ("digits", "mnist"))
        lines.append([name, percent(small), size(small), percent(large), size(large)])
    return markdown(["", "1,797 digits, five folds", "parameters", "MNIST, test part", "parameters"], lines)


def few_labels() -> str:
    """Table of MNIST with few labels per class."""
    found = rows("images")
    lines = [
        [name, *(percent(found.get(f"mnist_fewshot.{few}.{way}.accuracy")) for few in (10, 100))]
        for way, name in WAYS.items()
    ]
    return markdown(["", "10 labels of a class", "100"], lines)


def galaxies() -> str:
    """Table of accuracy by the number of images."""
    found, lines = rows("images"), []
    for model, name in MODELS.items():
        cells = [found.get(f"galaxies.{count}.{model}.accuracy") for count in (1000, 10_000, 100_000)]
        known = next((row for row in cells if row), None)
        lines.append([name, *(percent(row, 1) for row in cells), size(known)])
    return markdown(["", "1,000 galaxies", "10,000", "100,000", "parameters"], lines)


def lenses() -> str:
    """Table of lenses: errors, and coverage of the uncertainty."""
    found = rows("images")
    wanted = {
        "lenses.vit.einstein_rmse": "Einstein radius, root mean square error, Vision Transformer",
        "lenses.resnet18.einstein_rmse": "the same, ResNet-18",
        "lenses.coverage68": "share of true values within one predicted standard deviation (ideal: 0.683)",
        "lenses.coverage95": "the same within 1.96 standard deviations (ideal: 0.950)",
    }
    return markdown(["", "measured"], [[words, figure(found.get(name), 3)] for name, words in wanted.items()])


def insight() -> str:
    """Table of attention and texture bias, beside published results."""
    found = rows("images-insight")
    wanted = {
        "position_similarity_correlation": (
            "correlation of the similarity of position codes with distance",
            "falls with distance (ViT, figure 7)",
        ),
        "attention_distance_depth_correlation": (
            "correlation of attention distance with depth",
            "grows; only early blocks have heads with short distances (ViT, figure 7)",
        ),
        "faithfulness_ratio": (
            "change of the prediction without the attended patches, over that without random patches",
            "disputed (arXiv 1902.10186, 1908.04626)",
        ),
        "shape_bias.vit": ("predictions by shape where texture disagrees, ViT", "more than CNNs (arXiv 2105.07197)"),
        "shape_bias.cnn": ("the same, CNN", "texture (arXiv 1811.12231)"),
    }
    lines = [
        [words, figure(found.get(f"insight.{name}"), 3), figure(shorter, 3) if shorter else "", known]
        for name, (words, known) in wanted.items()
        for shorter in [found.get(f"insight_mnist.{name}")]
    ]
    return markdown(["", "measured", "MNIST, short training", "published"], lines)


def emoji() -> str:
    """Table of CoCa on emoji, beside nearest neighbours."""
    found = rows("captions-emoji")
    sides = {"coca": "CoCa", "neighbour": "nearest by pixels", "colours": "nearest by colours"}
    parts = {"": "known emoji, new tone", "bases.": "new emoji"}
    wanted = {
        "recall1": "caption of a picture",
        "reverse_recall1": "picture of a caption",
        "tone": "skin tone",
        "gender": "woman or man",
    }
    lines = []
    for part, where in parts.items():
        for name, words in wanted.items():
            some = [found.get(f"emoji.{side}.{part}{name}") for side in sides]
            first = next(filter(None, some), None)
            of = f"{first['pictures']:,}" if first else ""
            chance = f"{100 * first['chance']:.1f} %" if first else ""
            lines.append([f"{where}: {words}", of, chance, *(figure(row, 1, 100, " %") for row in some)])
    return markdown(["", "pictures", "chance", *sides.values()], lines)


CAPTIONERS = {"coca": "CoCa", "transformer": "Transformer", "show_attend_tell": "Show, Attend and Tell"}


def captions() -> str:
    """Table of captions of scenes, with a column for each model."""
    found = rows("captions")

    def line(words: str, name: str) -> list[str]:
        return [words, *(percent(found.get(f"captions.{model}.{name}"), 1) for model in CAPTIONERS)]

    def more(words: str, key: str) -> list[str]:
        exact = [found.get(f"captions.{model}.exact") for model in CAPTIONERS]
        return [words, *(f"{100 * row['more'][key]:.1f} %" if row else UNKNOWN for row in exact)]

    known = [found.get(f"captions.{model}.exact") for model in CAPTIONERS]
    steps = [f"{min(row['best_step']):,} of {row['asked_steps']:,}" if row else "" for row in known]
    lines = [
        line("exact captions", "exact"),
        more("of one thing", "exact_1"),
        more("of four things", "exact_4"),
        line("exact captions, combinations never trained on", "exact_unseen"),
        line("right colours, shapes, sizes and counts", "attributes"),
        line("attention inside the box, at the words of colour and shape", "pointing"),
        line("the same, one word before the colour (one seed)", "pointing_before"),
        ["parameters", *(size(row) for row in known)],
        ["steps of the evaluated weights", *steps],
    ]
    return markdown(["", *CAPTIONERS.values()], lines)


def contrast() -> str:
    """Table of CoCa's contrast."""
    found = rows("captions")
    wanted = {
        "recall1": "recall@1 of 1,000 captions",
        "zero_shot": "zero-shot shape and colour",
        "zero_shot_unseen": "the same, combinations never trained on",
    }
    lines = [[words, percent(found.get(f"captions.coca.{name}"), 1)] for name, words in wanted.items()]
    return markdown(["", "CoCa"], lines)


PROBES = {
    "head": "colour and shape of the first thing (the label)",
    "count": "number of things",
    "shapes": "presence of each shape",
    "colours": "presence of each colour",
}


def probes() -> str:
    """Table of linear probes of CoCa's encoder and of the encoder that was trained on labels."""
    found = rows("captions")
    pair = [found.get(f"captions.{model}.probe") for model in ("coca", "labels")]
    lines = [["mean of the four", *(percent(row, 1) for row in pair)]]
    lines += [
        [words, *(f"{100 * row['more'][key]:.1f} %" if row else UNKNOWN for row in pair)]
        for key, words in PROBES.items()
    ]
    return markdown(["linear probe", "encoder of CoCa", "trained on labels alone"], lines)


SPEEDS = {
    "vit_b16_train.ratio_timm": ("training step of 256 images, over timm compiled", "≥ 1.05"),
    "vit_b16_host.ratio_timm": ("the same, batches on the host", ""),
    "vit_b16_train.memory_ratio": ("peak memory, as a share of timm's", ""),
}


def speed() -> str:
    """Table of ViT-B/16 against timm."""
    found, lines = rows("images-speed"), []
    for name, (text, bar) in SPEEDS.items():
        row = found.get(name)
        if row is None:
            lines.append([text, UNKNOWN, bar, ""])
            continue
        low, high = row["spread"]
        lines.append([text, f"{row['value']:.2f} ({low:.2f} to {high:.2f})", bar, row["hardware"].split(",")[0]])
    for part, text in (("train", "images/s of that step"), ("loop", "images/s of a whole training, from bytes")):
        row = found.get(f"vit_b16_{part}.images_per_s")
        lines.append([text, f"{row['value']:,.0f}" if row else UNKNOWN, "", row["hardware"] if row else ""])
    return markdown(["", "measured (10 to 90 %)", "target", "hardware"], lines)


PICTURES = {"codes": "codes", "diffusion": "diffusion", "codes.guided": "codes, guidance 2"}
PICTURES["diffusion.guided"] = "diffusion, guidance 2"
COUNTS = {
    "one.right": "right pictures of one thing",
    "two.right": "of two things",
    "three.right": "of three things",
    "four.right": "of four things",
    "unseen.right": "with combinations never trained on",
    "missing": "a thing is missing",
    "wrong_count": "wrong number of things",
    "wrong_binding": "colour, shape and size put together wrongly",
    "wrong_attribute": "another shape, colour or size",
    "wrong_relation": "wrong relation",
    "captioner_agreement": "a captioner writes what the parser reads",
}


def ranged(row: Row | None, digits: int = 1, times: float = 100, unit: str = " %") -> str:
    """Value with its 10 to 90 % range over seeds."""
    if row is None:
        return UNKNOWN
    low, high = (f"{times * value:.{digits}f}" for value in row["spread"])
    return f"{times * row['value']:.{digits}f}{unit}" + (f" ({low} to {high})" if row["seeds"] > 1 else "")


def drawn_scenes() -> str:
    """Table of pictures from captions of scenes: right pictures and mistakes."""
    found = rows("pictures-from-words")
    lines = [
        [words, *(ranged(found.get(f"from_text.{way}.{name}")) for way in PICTURES)] for name, words in COUNTS.items()
    ]
    return markdown(["", *PICTURES.values()], lines)


def drawn_scenes_cpu() -> str:
    """Table of the measured rows of pictures of one thing by a small model of codes."""
    found, ways = rows("pictures-from-words"), ("codes", "codes.guided")
    pairs = {words: [found.get(f"from_text_cpu.{way}.{name}") for way in ways] for name, words in COUNTS.items()}
    lines = [[words, *map(ranged, pair)] for words, pair in pairs.items() if any(pair)]
    return markdown(["", *(PICTURES[way] for way in ways)], lines)


def drawn_cost() -> str:
    """Table of the cost of pictures from words, and of their ceiling."""
    found, lines = rows("pictures-from-words"), []
    for way in ("codes", "diffusion"):
        minutes = found.get(f"from_text.{way}.train_minutes")
        steps = ", ".join(f"{one:,}" for one in minutes["steps"]) if minutes else UNKNOWN
        numbers = [ranged(minutes, 1, 1, ""), ranged(found.get(f"from_text.{way}.pictures_per_s"), 1, 1, "")]
        lines.append([way, size(minutes) or UNKNOWN, steps, *numbers, ranged(found.get(f"from_text.{way}.rebuilt"))])
    lines[-1][-1] = ""  # no codes
    return markdown(["", "parameters", "steps", "minutes", "pictures per second", "read from rebuilt pictures"], lines)


def drawn_others() -> str:
    """Table of generated digits and lattices of spins."""
    found = rows("pictures-from-words")
    wanted = {
        "generate_digits_cpu.{}.accuracy": ("digits: accuracy of a classifier", 1, 100, " %"),
        "generate_digits_cpu.{}.guided.accuracy": ("the same, guidance 2", 1, 100, " %"),
        "generate_digits_cpu.{}.nearest": ("distance to the nearest training digit, grey levels", 1, 1, ""),
        "generate_ising_cpu.{}.energy_error": ("8 x 8 spins: error of the energy per spin, in J", 3, 1, ""),
        "generate_ising_cpu.{}.magnetisation_error": ("error of the magnetisation per spin", 3, 1, ""),
        "generate_ising.{}.energy_error": ("16 x 16 spins: error of the energy per spin, in J", 3, 1, ""),
        "generate_ising.{}.magnetisation_error": ("error of the magnetisation per spin", 3, 1, ""),
        "generate_ising.{}.phase_error": ("error of the probability of order, by a classifier", 3, 1, ""),
    }
    lines = []
    for name, (words, digits, times, unit) in wanted.items():
        pair = [found.get(name.format(way)) for way in ("codes", "diffusion")]
        lines.append([words, *(ranged(row, digits, times, unit) for row in pair)])
    return markdown(["", "codes", "diffusion"], lines)
