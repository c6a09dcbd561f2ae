"""Training and evaluation of one model on captions of simulated scenes (`captions.py` runs several side by side)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from call import Found, Results, pack, train_until
from sciformer.data.batch import Batch
from sciformer.data.columns import Samples
from sciformer.domains.images import scaling
from sciformer.domains.images.scenes.captions import Caption, Group, parse_caption
from sciformer.domains.images.scenes.things import COLOURS, SHAPES, SIZES, Kind, parse_things
from sciformer.domains.images.simulate.scenes import Scenes
from sciformer.errors import UserError
from sciformer.evaluation.embed import embed
from sciformer.evaluation.zero_shot import zero_shot
from sciformer.generation.translate import translate
from sciformer.metrics.retrieval import ranks, recall_1
from sciformer.models.encoder_decoder import SOURCE, TARGET
from sciformer.nn import Watch
from sciformer.recipe import Recipe
from sciformer.run import Run

Array = np.ndarray
RECIPES = {
    "coca": "images/coca",
    "show_attend_tell": "images/show-attend-tell",
    "transformer": "images/caption-transformer",
    "labels": "images/coca",  # its image encoder
}
MODELS = tuple(RECIPES)
PARTS = {"": "test", "_unseen": "unseen"}
SIMULATED = ("test", "unseen", "valid", "train")
KEEP_SEED = 0  # the seed whose runs are kept
TINY = {"data.number": 1600, "data.chunk_size": 200, "data.valid": 32, "data.test": 40, "train.steps": 8}
TINY |= {"train.batch": 8, "train.warmup": 2, "train.evaluate_every": 4, "train.save_every": 4}
TINY_SIZES = {"scenes": 40, "retrieval": 30, "looked": 24, "probe": 120}
SIZES_OF_PARTS = {"scenes": 2000, "retrieval": 1000, "looked": 600, "probe": 8000}


def changes_of(model: str, seed: int, cache: str, tiny: bool, device: str) -> Found:
    """Changes of the recipe: those that the measured figures do not depend on, and the seed."""
    steps = Recipe.load(RECIPES[model]).train.steps
    assert steps is not None
    found: Found = {"train.seed": seed, "train.device": device, "train.log_every": 50, "data.cache": cache}
    found |= {"train.keep": 1, "data.test": SIZES_OF_PARTS["scenes"], "data.valid": 1000}
    return found | {"train.evaluate_every": max(1, steps // 10)} | (TINY if tiny else {})


def scenes_of(cache: str, tiny: bool) -> Scenes:
    """Simulation of the scenes, the same for all models and seeds."""
    made = Recipe.load(RECIPES["coca"], changes_of("coca", 0, cache, tiny, "cpu")).data
    assert isinstance(made, Scenes)
    return made


def simulate(cache: str, tiny: bool, part: str, piece: int) -> int:
    """Simulate a piece of a part into the cache; returns its number of scenes."""
    source = scenes_of(cache, tiny).open().sources[part]
    return len(source.load(piece)["image"])


def pieces_of(cache: str, tiny: bool) -> list[tuple[str, int]]:
    """Part and number of all pieces to simulate."""
    sources = scenes_of(cache, tiny).open().sources
    return [(part, piece) for part in SIMULATED for piece in range(len(sources[part].sizes))]


# Training


def fit(model: str, seed: int, out: Path, cache: str, tiny: bool, device: str, until: float) -> tuple[Run, Found]:
    """Train until the end, or until a time; returns the run with the best weights so far."""
    scaling.PIXELS_AT_ONCE = 1 << 14  # fits into the cache of a core that shares its memory with many others
    recipe = Recipe.load(RECIPES[model], changes_of(model, seed, cache, tiny, device))
    tables: Found = {}
    if model == "labels":
        tables = {part: labelled(section, part) for section in [recipe.data] for part in ("train", "valid")}
        tables = {"data": tables["train"], "valid": tables["valid"]}
        recipe = labels_recipe(recipe)
    run, about = train_until(recipe, out / "run", until, **tables)
    about["scenes"] = recipe.data.number if not tables else len(tables["data"]["label"])
    return run, about


def labelled(section: Any, part: str) -> Found:
    """Pictures of a part with one label each: colour and shape of the first thing of the caption."""
    source = section.open().sources[part]
    loaded = [source.load(piece) for piece in range(len(source.sizes))]
    return {
        "image": np.concatenate([np.asarray(table["image"]) for table in loaded]),
        "label": np.concatenate([heads(table) for table in loaded]),
    }


def heads(table: Any) -> Array:
    """Colour and shape of the first thing of each caption, as text."""
    first = [parse_caption(str(caption)).groups[0].kind for caption in table["caption"]]
    return np.array([f"{kind.colour} {kind.shape}" for kind in first])


def labels_recipe(recipe: Recipe) -> Recipe:
    """Recipe that trains the image encoder of a captioner on labels alone."""
    whole = recipe.to_dict()
    model = {key: value for key, value in whole["model"].items() if key in ("dim", "heads", "dropout")}
    model |= whole["model"].get(SOURCE, {}) | {"kind": "encoder", "pool": "mean"}
    loop = whole["train"] | {"steps": max(8, (recipe.train.steps or 0) // 2)}
    loop["evaluate_every"] = loop["save_every"] = max(1, loop["steps"] // 5)
    return Recipe.from_dict(
        {
            "data": {"kind": "images"},
            "tokens": whole["tokens"][SOURCE],
            "model": model,
            "objective": {"kind": "classify"},
            "train": loop,
        }
    )


# Captions


def captions(run: Run, table: Any) -> Found:
    """Share of exact captions, and shares of right attributes of the things."""
    written = translate(run, {"image": table["image"]})
    true = [parse_caption(str(caption)) for caption in table["caption"]]
    said = [parsed(text) for text in written]
    right = np.array([text == str(caption) for text, caption in zip(written, table["caption"])])
    counts = np.asarray(table["count"])
    found: Found = {"exact": float(right.mean()), "valid_caption": float(np.mean([one is not None for one in said]))}
    found |= {f"exact_{n}": float(right[counts == n].mean()) for n in np.unique(counts).tolist()}
    for name, value in ATTRIBUTES.items():
        found[name] = float(np.mean([overlap(value(one), value(two)) for one, two in zip(true, said)]))
    found["count"] = float(np.mean([number(one) == number(two) for one, two in zip(true, said)]))
    pairs = [pair for one, two in zip(true, said) for pair in relations(one, two)]
    found |= {"relation": float(np.mean(pairs)) if pairs else None, "written": written[:12]}
    return found | {"captions": [str(one) for one in table["caption"][:12]]}


def parsed(text: str) -> Caption | None:
    """Caption of a written text; None if it breaks the grammar."""
    try:
        return parse_caption(text)
    except UserError:
        return None


def things_with(value: Callable[[Kind], Any]) -> Callable[[Caption | None], Counter[Any]]:
    def values(caption: Caption | None) -> Counter[Any]:
        groups: Sequence[Group] = () if caption is None else caption.groups
        return Counter([value(group.kind) for group in groups for _ in range(group.number)])

    return values


ATTRIBUTES = {name: things_with(attrgetter(name)) for name in ("colour", "shape", "size")}
ATTRIBUTES["thing"] = things_with(lambda kind: kind)


def overlap(true: Counter[Any], said: Counter[Any]) -> float:
    """Number of values in both, divided by the larger of both numbers of values."""
    return (true & said).total() / max(true.total(), said.total())


def number(caption: Caption | None) -> int:
    return 0 if caption is None else sum(group.number for group in caption.groups)


def relations(true: Caption, said: Caption | None) -> Iterator[bool]:
    """Whether each relation is right, where both captions have the same groups."""
    if said is not None and said.groups == true.groups:
        yield from (one == two for one, two in zip(true.relations, said.relations))


# Pointing


@torch.inference_mode()
def pointing(run: Run, table: Any, batch: int = 100) -> Found:
    """Attention of colour and shape words inside the boxes of their things, against the area of the boxes.

    Each word of the true caption attends from the step that writes it. Weights of a patch count by the share of its
    area inside the boxes, so uniform attention gives the area of the boxes. `heads` are all blocks and heads; the best
    head is chosen on the first half of the scenes, and its share is that of the second half. `before` is the share at
    the word before each colour: the size, the article or the number.
    """
    tokens = run.assembly.tokens
    model: Any = run.model
    model.eval()
    shares: list[Array] = []
    before: list[float] = []  # of the word before each colour
    areas: list[float] = []
    kinds: list[str] = []
    scene: list[int] = []
    names: list[str] = []
    count = len(table["caption"])
    for first in range(0, count, batch):
        some = {name: column[first : first + batch] for name, column in table.items()}
        source, target = tokens[SOURCE].tokenize(some), tokens[TARGET].tokenize(some)
        target = target.cut(np.zeros(len(target), np.int64), target.lengths - 1)
        aside = {name: one.host_columns for name, one in tokens.items()}
        whole = Batch(
            {SOURCE: tokens[SOURCE].normalise(source), TARGET: target}, {}, np.arange(len(target)), aside=aside
        )
        inputs, record = whole.inputs(run.device), Watch(hidden=False)
        model.translate(inputs.streams[SOURCE], inputs.streams[TARGET], record)
        maps = {
            name: w for name, w in record.attention.items() if name == "decoder.attention" or name.endswith(".cross")
        }
        names = [f"{name}.{head}" for name, w in maps.items() for head in range(w.shape[1])]
        weights = torch.cat([w.float() for w in maps.values()], 1).cpu().numpy()  # (B, heads, N, patches)
        for row in range(len(target)):
            things = parse_things(str(some["things"][row]))
            for place, word, kind in attribute_words(str(some["caption"][row])):
                inside = box_cover([box for one, box in things if one == kind], *grid(run))
                shares.append(weights[row, :, place] @ inside)
                if word == "colour":
                    before.append(float((weights[row, :, place - 1] @ inside).mean()))
                areas.append(float(inside.mean()))
                kinds.append(word)
                scene.append(first + row)
    share, area, early = np.array(shares), np.array(areas), np.array(scene) < count // 2
    best = int(share[early].mean(0).argmax())
    found: Found = {
        "share": float(share.mean()),
        "before": float(np.mean(before)),
        "area": float(area.mean()),
        "words": len(area),
        "heads": len(names),
    }
    found |= {
        "best_head": names[best],
        "best": float(share[~early, best].mean()),
        "best_area": float(area[~early].mean()),
    }
    for word in ("colour", "shape"):
        chosen = np.array(kinds) == word
        found |= {word: float(share[chosen].mean()), f"{word}_area": float(area[chosen].mean())}
        found[f"{word}_best"] = float(share[chosen & ~early, best].mean())
    return found | {"every_head": {name: float(value) for name, value in zip(names, share.mean(0))}}


def grid(run: Run) -> tuple[int, int, int]:
    """Rows and columns of patches, and the side of a patch in pixels."""
    tokens: Any = run.assembly.tokens[SOURCE]
    return (*tokens.grid_shape, tokens.sides[0])


def attribute_words(caption: str) -> Iterator[tuple[int, str, Kind]]:
    """Place, attribute (colour or shape) and kind of each word of a caption that names a colour or a shape."""
    groups = list(parse_caption(caption).groups)
    at = 0
    for place, word in enumerate(caption.split()):
        if word in COLOURS:
            yield place, "colour", groups[at].kind
            yield place + 1, "shape", groups[at].kind
            at += 1


def box_cover(boxes: list[tuple[int, int, int, int]], rows: int, columns: int, side: int) -> Array:
    """Share (patches,) of the area of each patch inside the boxes."""
    inside = np.zeros((rows * side, columns * side))
    for x, y, width, height in boxes:
        inside[y : y + height, x : x + width] = 1
    return inside.reshape(rows, side, columns, side).mean((1, 3)).ravel()


# The contrast


def retrieval(run: Run, table: Any, count: int) -> Found:
    """Recall@1 among scenes with different captions, in both directions."""
    _, rows = np.unique(np.asarray(table["caption"]), return_index=True)
    rows = np.sort(rows)[:count]
    images, texts = {"image": table["image"][rows]}, Samples(caption=np.asarray(table["caption"])[rows])
    one = embed(run, images, "projection", stream=SOURCE, batch=256).vectors
    two = embed(run, texts, "projection", stream=TARGET, batch=256).vectors
    return {"recall1": recall_1(ranks(one, two)), "reverse_recall1": recall_1(ranks(two, one)), "among": len(rows)}


def zero_shot_scores(run: Run, table: Any) -> Found:
    """Accuracy of shape, colour and size of scenes with one thing, from captions as prompts."""
    alone = np.asarray(table["count"]) == 1
    kinds = [parse_things(str(text))[0][0] for text in np.asarray(table["things"])[alone]]
    found: Found = {"scenes": int(alone.sum())}
    every = [Kind(shape, colour, size) for shape in SHAPES for colour in COLOURS for size in SIZES]
    for name, values in (("shape", SHAPES), ("colour", tuple(COLOURS)), ("size", SIZES)):
        prompts = {value: [Group(1, kind).words for kind in every if getattr(kind, name) == value] for value in values}
        said = zero_shot(run, {"image": table["image"][alone]}, prompts, batch=256)
        best = said.names[said.probabilities.argmax(1)]
        found[name] = float(np.mean([getattr(kind, name) == value for kind, value in zip(kinds, best)]))
    return found


# Linear probes


def probe(run: Run, train: Any, test: Any) -> Found:
    """Accuracy of linear classifiers on the mean of the encoder's tokens.

    head     colour and shape of the first thing of the caption
    count    number of things
    shapes   whether the scene has a shape, mean over all shapes
    colours  whether the scene has a colour, mean over all colours
    """
    stream = SOURCE if SOURCE in run.assembly.tokens else ""
    x, y = (embed(run, {"image": t["image"]}, "mean", stream=stream, batch=256).vectors for t in (train, test))
    low, wide = x.mean(0), x.std(0) + 1e-6
    own, other = (torch.as_tensor((side - low) / wide, device=run.device) for side in (x, y))
    classes = {name: index for index, name in enumerate(np.unique(heads(train)))}

    def numbers(table: Any) -> Array:
        return np.array([classes.get(name, -1) for name in heads(table)])

    asked: dict[str, tuple[Array, Array]] = {
        "head": (numbers(train), numbers(test)),
        "count": (np.asarray(train["count"]).astype(np.int64) - 1, np.asarray(test["count"]).astype(np.int64) - 1),
        "shapes": (presence(train, "shape", SHAPES), presence(test, "shape", SHAPES)),
        "colours": (presence(train, "colour", tuple(COLOURS)), presence(test, "colour", tuple(COLOURS))),
    }
    found: Found = {name: linear(own, other, *both) for name, both in asked.items()}
    found["mean"] = float(np.mean([found[name] for name in asked]))
    common = {name: both[1] for name, both in asked.items()}
    found["frequent"] = {
        name: float((v == np.bincount(v[v >= 0]).argmax()).mean() if v.ndim == 1 else max(v.mean(), 1 - v.mean()))
        for name, v in common.items()
    }
    return found


def presence(table: Any, name: str, values: Sequence[str]) -> Array:
    """Whether (n, values) each scene has a thing with the value of an attribute."""
    shown = [{getattr(kind, name) for kind, _ in parse_things(str(text))} for text in table["things"]]
    return np.array([[value in one for value in values] for one in shown]).astype(np.int64)


def linear(x: torch.Tensor, y: torch.Tensor, train: Array, test: Array) -> float:
    """Test accuracy of a logistic regression, with the weight decay that is best on a fifth of the training part."""
    own, other = (torch.as_tensor(values, device=x.device) for values in (train, test))
    cut = len(x) * 4 // 5
    decays = (1e-5, 1e-4, 1e-3, 1e-2)
    best = max(decays, key=lambda decay: logistic(x[:cut], own[:cut], x[cut:], own[cut:], decay))
    return logistic(x, own, y, other, best)


@torch.enable_grad()
def logistic(x: torch.Tensor, target: torch.Tensor, y: torch.Tensor, true: torch.Tensor, decay: float) -> float:
    """Accuracy on y of a logistic regression on x: one class each (n,), or several binary targets (n, C)."""
    binary = target.dim() == 2
    outputs = target.shape[1] if binary else int(target.max()) + 1
    weight = torch.zeros(x.shape[1] + 1, outputs, device=x.device, requires_grad=True)
    solver = torch.optim.LBFGS([weight], max_iter=120, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        solver.zero_grad()
        logits = x @ weight[:-1] + weight[-1]
        wrong = F.binary_cross_entropy_with_logits if binary else F.cross_entropy
        total = wrong(logits, target.float() if binary else target) + decay * (weight[:-1] ** 2).sum()
        total.backward()
        return total

    solver.step(loss)
    with torch.no_grad():
        logits = y @ weight[:-1] + weight[-1]
        said = (logits > 0).long() if binary else logits.argmax(1)
        return float((said == true).float().mean())


# One model


def work(model: str, seed: int, out: Path, cache: str, tiny: bool, device: str, until: float) -> None:
    """Train and evaluate one model; results are written after each part."""
    torch.set_num_threads(1)
    sizes = TINY_SIZES if tiny else SIZES_OF_PARTS
    out.mkdir(parents=True, exist_ok=True)
    run, found = fit(model, seed, out, cache, tiny, device, until)
    results = Results(out / "found.json", {"model": model, "seed": seed, **found})
    add, scenes = results.add, scenes_of(cache, tiny)
    add("origin", origin_of(device))
    tables: Found = {part: dict(scenes.make(sizes["scenes"], part=part)) for part in PARTS.values()}
    if model != "labels":
        if seed == KEEP_SEED:
            pack(run, out / f"{model}.tar")
        for suffix, part in PARTS.items():
            add(f"captions{suffix}", partial(captions, run, tables[part]))
        some = {name: column[: sizes["looked"]] for name, column in tables["test"].items()}
        add("pointing", lambda: pointing(run, some))
    if model == "coca":
        more = dict(scenes.make(2 * sizes["scenes"], part="test"))
        add("retrieval", lambda: retrieval(run, more, sizes["retrieval"]))
        for suffix, part in PARTS.items():
            add(f"zero_shot{suffix}", partial(zero_shot_scores, run, tables[part]))
    if model in ("coca", "labels"):
        seen = dict(scenes.make(sizes["probe"], part="file"))
        add("probe", lambda: probe(run, seen, tables["test"]))
    results.found["done"] = True
    add("finished", dict)


def origin_of(device: str) -> Callable[[], Found]:
    from pool import origin

    return lambda: origin("cuda" if device.startswith("cuda") else "cpu")
