"""Formats to fuzz: a small valid file of each, its damage, and the code that reads it."""

import atexit
import gzip
import io
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
import yaml
from rich.console import Console

from sciformer.checks.hashes import compare_hashes
from sciformer.cli.show import show_run
from sciformer.data.readers.arrays import Arrays
from sciformer.data.readers.events.reader import EventFiles
from sciformer.data.readers.series.reader import SeriesFiles
from sciformer.data.source import pieces
from sciformer.domains.images.reader.reader import ImageFiles
from sciformer.domains.jets.interop.data_config import import_data
from sciformer.domains.text.readers.labelled import Lines
from sciformer.domains.text.readers.pairs import Parallel
from sciformer.domains.text.readers.running import TextFiles
from sciformer.domains.text.readers.tagged import Columns
from sciformer.files.formats.npz import read_arrays
from sciformer.files.seal import run_files
from sciformer.inspection.plots import curves
from sciformer.interop import export_model, import_model
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from sciformer.run import Run, train
from sciformer.training import checkpoint
from tests.data.readers.events.examples import padded, table, write_parquet, write_root
from tests.data.readers.series.examples import objects, write_astropy, write_csv, write_lists
from tests.domains.images.interop.test_timm import config as timm_config
from tests.domains.images.interop.test_timm import weights as timm_weights
from tests.domains.images.reader.examples import picture, pixels
from tests.domains.jets.interop import weaver_keys
from tests.domains.lightcurves.test_astromer import shapes as astromer_shapes
from tests.domains.text.foreign import byte_pairs
from tests.fuzz.mutate import damage, damage_gzip, damage_tensors, damage_zip
from tests.interop.shaken import graph_run

SERIES = {"label": "type", "time": "mjd", "value": "mag", "error": "magerr", "band": "filter", "id": "objectId"}


CSV_TEXT = "objectId,mjd,mag,magerr,filter,type\n" + "".join(
    f"a{n // 8},{n % 8}.5,15.{n},0.1,g,RR\n" for n in range(40)
)


@dataclass(frozen=True)
class Target:
    """A format.

    name    name of the damaged file in the folder
    write   writes the valid file into a folder
    read    reads the file as a user would
    damage  makes the bytes of a case: (bytes, random numbers) -> bytes
    needed  whether a file that cannot be read is refused; else it is ignored
    """

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    damage: Callable[[bytes, np.random.Generator], bytes] = damage
    needed: bool = True


def series(path):
    return list(pieces(SeriesFiles(kind="series", **SERIES).read([path])))


def events(path):
    names = ["part_px", "part_charge", "jet_pt", "flag"]
    return list(pieces(EventFiles(kind="events").want(names, ["label_a"]).read([path])))


def images(path):
    return list(pieces(ImageFiles(kind="images").read([path])))


def arrays_and_images(path):
    read_arrays(path)
    return images(path)


def write_hdf5(path):
    import h5py

    made, mask = padded(table())
    with h5py.File(path, "w") as file:
        file["part_mask"] = mask
        for name, array in (made | {"jet_pt": np.ones(40), "flag": np.ones(40, bool), "label_a": np.ones(40)}).items():
            file.create_dataset(name, data=array, chunks=True, compression="gzip")


def write_fits_image(path):
    from astropy.io import fits

    fits.PrimaryHDU(pixels(4, 8, 8)).writeto(path)


def write_recipe(path):
    path.write_text(Recipe.load("text/gpt-char").to_yaml())


def write_weaver_data(path):
    new = {"part_mask": "ak.ones_like(part_energy)", "part_pt": "np.hypot(part_px, part_py)"}
    options = {"treename": "tree", "selection": "(jet_pt > 500) & (jet_pt < 1000)", "new_variables": new}
    options["inputs"] = {"pf_features": {"length": 128, "vars": [["part_pt", 1.7, 0.7], ["part_deta", None]]}}
    options["labels"] = {"type": "simple", "value": ["label_QCD", "label_Hbb"]}
    path.write_text(yaml.safe_dump(options))


def write_pickled(path):
    torch.save(weaver_keys.made(weaver_keys.shapes()), path)


def damage_pickled(raw, rng):
    if rng.random() < 0.5:
        return damage_zip(raw, rng)
    made = io.BytesIO()
    torch.save(damage_tensors(torch.load(io.BytesIO(raw), weights_only=True), rng), made)
    return made.getvalue()


def write_astromer(path):
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in astromer_shapes(16, 8, 2).items()}
    np.savez(path, **arrays)


def damage_astromer(raw, rng):
    if rng.random() < 0.5:
        return damage_zip(raw, rng)
    tensors = {name: torch.from_numpy(array) for name, array in np.load(io.BytesIO(raw)).items()}
    made = io.BytesIO()
    np.savez(made, **{name: tensor.numpy() for name, tensor in damage_tensors(tensors, rng).items()})
    return made.getvalue()


def write_model(path):
    """A GPT-2 in the folder of the file: config.json, tokenizer.json and weights."""
    width, vocabulary = 16, byte_pairs().get_vocab_size()
    config = {"model_type": "gpt2", "vocab_size": vocabulary, "n_embd": width, "n_layer": 1, "n_head": 4}
    config |= {"n_positions": 24, "activation_function": "gelu_new", "tie_word_embeddings": True}
    (path.parent / "config.json").write_text(json.dumps(config))
    byte_pairs().save(str(path.parent / "tokenizer.json"))
    shapes = {"wte.weight": (vocabulary, width), "wpe.weight": (24, width)}
    layers = {"attn.c_attn": (16, 48), "attn.c_proj": (16, 16), "mlp.c_fc": (16, 64), "mlp.c_proj": (64, 16)}
    for name, shape in layers.items():
        shapes |= {f"h.0.{name}.weight": shape, f"h.0.{name}.bias": shape[1:]}
    for name in ("h.0.ln_1", "h.0.ln_2", "ln_f"):
        shapes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    weights = {f"transformer.{name}": torch.ones(shape) for name, shape in shapes.items()}
    safetensors.torch.save_file(weights, path.parent / "model.safetensors")


def damage_safetensors(raw, rng):
    return (
        damage(raw, rng)
        if rng.random() < 0.5
        else safetensors.torch.save(damage_tensors(safetensors.torch.load(raw), rng))
    )


def write_gguf(path):
    import gguf

    writer, rng, words = gguf.GGUFWriter(path, "llama"), np.random.default_rng(0), byte_pairs().get_vocab()
    for key in ("block_count", "head_count"):
        getattr(writer, f"add_{key}")({"block_count": 1, "head_count": 4}[key])
    writer.add_context_length(24)
    writer.add_embedding_length(16)
    writer.add_feed_forward_length(32)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(sorted(words, key=words.get))
    writer.add_token_types([1] * len(words))
    writer.add_token_merges([" ".join(pair) for pair in json.loads(byte_pairs().to_str())["model"]["merges"]])
    shapes = {"token_embd": (len(words), 16), "output_norm": (16,)}
    shapes |= {f"blk.0.{name}": (16, 16) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
    shapes |= {"blk.0.ffn_gate": (32, 16), "blk.0.ffn_up": (32, 16), "blk.0.ffn_down": (16, 32)}
    shapes |= {"blk.0.attn_norm": (16,), "blk.0.ffn_norm": (16,)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(size=shape).astype(np.float32))
    for part in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{part}_to_file")()
    writer.close()


def imported(path, source=None):
    run = path.parent / "run"
    shutil.rmtree(run, ignore_errors=True)
    return import_model(source or path, run).model


def imported_folder(path):
    return imported(path, path.parent)


def write_timm_folder(path):
    (path.parent / "config.json").write_text(json.dumps(timm_config()))
    safetensors.torch.save_file(timm_weights(places=3), path.parent / "model.safetensors")


def write_vit(path):
    """A small ViT in the folder of the file, exported from a run of ours."""
    sections = {"tokens": {"kind": "patches", "patch": 4}, "model": {"kind": "encoder", "norm_epsilon": 1e-6}}
    sections["model"] |= {"dim": 8, "depth": 1, "heads": 2, "pool": "class_token", "position": "learned"}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/a.npz", image=pixels(12, 8, 8, 3), label=np.arange(12) % 2)
        sections |= {"data": {"kind": "images", "files": [f"{folder}/a.npz"]}, "objective": {"kind": "classify"}}
        export_model(graph_run(Path(folder, "run"), **sections), path.parent, "huggingface")


def run_of(path):
    """The run folder above a file."""
    return next(folder for folder in path.parents if folder.name == "run")


@cache
def made_run():
    """A run of two steps on labelled texts, in a temporary folder."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    lines = "".join(f"{'bad' if n % 2 else 'good'}\tthe cat {n}\n" for n in range(24))
    (folder / "a.tsv").write_text(lines)
    sections = {
        "data": {"kind": "lines", "files": [str(folder / "a.tsv")], "columns": ["label", "text"]},
        "tokens": {"kind": "text", "unit": "words", "context": 8},
        "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
        "objective": {"kind": "classify"},
        "train": {"steps": 2, "batch": 4, "log_every": 1, "evaluate_every": 1, "save_every": 2, "device": "cpu"},
    }
    run = train(Recipe.from_dict(sections), folder / "run", show=False, report=False)
    scores = {part: {"scores": run.scores, "too_few": ["auc"]} for part in ("valid", "test")}
    run.folder.write("scores.json", json.dumps({"parts": scores, "along": {"column": "x", "crossing": 1.5}}))
    return run.path


def write_run(path):
    shutil.copytree(made_run(), run_of(path), dirs_exist_ok=True)


def use_run(path):
    """Use a run in every way that reads its files."""
    run = Run(run_of(path))
    show_run(run, Console(file=io.StringIO()))
    curves.draw_history(run.records, {"loss": "training", "valid_loss": "validation"}, ylabel="loss")
    return run.scores, run.predict({"text": np.array(["the cat"])})


def use_resealed_run(path):
    """Use a run with a manifest that has the hash of the damaged file."""
    run = run_of(path)
    run_files(run).write({str(path.relative_to(run)): path.read_bytes()}, anew=True)
    return use_run(path)


def use_checkpoint(path):
    return checkpoint.load(run_of(path) / "checkpoints", log=lambda text: None)


def guess(kind):
    return lambda path: new(kind, [path], path.parent / "guess.yaml", overwrite=True)


def write_pairs(path):
    (path.parent / "a.en").write_text("the cat sat\nthe dog\n" * 8)
    (path.parent / "a.de").write_text("der Käfer saß\nder Hund\n" * 8)


def read_pairs(path):
    files = [str(path.parent / "a.{}")]
    return list(pieces(Parallel(kind="parallel", files=files, columns=["en", "de"]).open().sources["train"]))


def write_pictures(path):
    """A table of pictures."""
    for number in range(12):
        picture(path.parent / f"{number}.png")
    path.write_text("path,label,size\n" + "".join(f"{number}.png,{'ab'[number % 2]},1\n" for number in range(12)))


def write_gzip(path, words):
    path.write_bytes(gzip.compress(words.encode(), mtime=0))


def write_hashes(path):
    (path.parent / "a.txt").write_text("the cat")
    compare_hashes(path, [path.parent / "a.txt"])


def write_hdf5_images(path):
    import h5py

    with h5py.File(path, "w") as file:
        file["image"], file["label"] = pixels(6, 8, 8), np.arange(6)


def text(words):
    return lambda path: path.write_text(words * 8, "utf-8")


TARGETS = {
    "npy": Target("a.npy", lambda path: np.save(path, pixels(6, 8, 8)), arrays_and_images),
    "npz": Target(
        "a.npz", lambda path: np.savez(path, image=pixels(6, 8, 8), label=np.arange(6)), arrays_and_images, damage_zip
    ),
    "npz_events": Target(
        "a.npz",
        lambda path: np.savez_compressed(
            path, **padded(table())[0], mask=padded(table())[1], jet_pt=np.ones(40), flag=np.ones(40)
        ),
        events,
        damage_zip,
    ),
    "idx": Target(
        "a.idx.gz",
        lambda path: path.write_bytes(
            gzip.compress(bytes([0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 8]) + pixels(4, 8, 8).tobytes())
        ),
        images,
    ),
    "png": Target("a.png", picture, images),
    "jpeg": Target("a.jpg", picture, images),
    "tiff": Target("a.tif", lambda path: picture(path, compression="tiff_lzw"), images),
    "gif": Target("a.gif", lambda path: picture(path, pixels(8, 8)), images),
    "webp": Target("a.webp", picture, images),
    "bmp": Target("a.bmp", picture, images),
    "hdf5_images": Target("a.h5", write_hdf5_images, images),
    "table_of_pictures": Target("a.csv", write_pictures, images),
    "fits": Target("a.fits", lambda path: write_astropy(path, objects()), series),
    "fits_images": Target("a.fits", write_fits_image, images),
    "hdf5": Target("a.h5", write_hdf5, events),
    "parquet": Target("a.parquet", lambda path: write_parquet(path, table()), events),
    "parquet_series": Target("a.parquet", lambda path: write_lists(path, objects()), series),
    "root": Target("a.root", lambda path: write_root(path, table(20)), events),
    "csv": Target("a.csv", lambda path: write_csv(path, objects()), series),
    "csv_gz": Target("a.csv.gz", lambda path: write_gzip(path, CSV_TEXT), series, damage_gzip),
    "ecsv": Target("a.ecsv", lambda path: write_astropy(path, objects()), series),
    "tsv": Target(
        "a.tsv",
        text("good\tthe cat sat 1\nbad\tthe dog 2\n"),
        lambda path: list(pieces(Lines(kind="lines").read([path]))),
    ),
    "jsonl": Target(
        "a.jsonl",
        text('{"label": "good", "text": "the cat"}\n{"label": "bad", "text": "1"}\n'),
        lambda path: list(pieces(Lines(kind="lines").read([path]))),
    ),
    "text": Target(
        "a.txt",
        text("The cat sat.\nDer Käfer saß 1234 ☃.\n\n"),
        lambda path: list(pieces(TextFiles(kind="text", files=[str(path)]).read([path]))),
    ),
    "text_gz": Target(
        "a.txt.gz",
        lambda path: write_gzip(path, "The cat sat.\nDer Käfer saß 1234 ☃.\n\n" * 8),
        lambda path: list(pieces(TextFiles(kind="text", files=[str(path)]).read([path]))),
        damage_gzip,
    ),
    "labelled_csv": Target(
        "a.csv",
        text('label,text\ngood,"the cat, ""sat"""\nbad,the dog\n'),
        lambda path: list(pieces(Lines(kind="lines").read([path]))),
    ),
    "parallel": Target("a.de", write_pairs, read_pairs),
    "arrays": Target(
        "a.npz",
        lambda path: np.savez(path, x=pixels(12, 5), label=np.arange(12) % 2),
        lambda path: list(pieces(Arrays(kind="arrays").read([path]))),
        damage_zip,
    ),
    "conll": Target(
        "a.conll",
        text("The O\ncat B-animal\nsat O\n\n-DOCSTART- O\n\n"),
        lambda path: list(pieces(Columns(kind="conll").read([path]))),
    ),
    "recipe": Target("a.yaml", write_recipe, Recipe.load),
    "weaver_data": Target(
        "a.yaml", write_weaver_data, lambda path: import_data(path, path.parent / "b.yaml", overwrite=True)
    ),
    "weaver": Target("a.pt", write_pickled, imported, damage_pickled),
    "astromer": Target("a.npz", write_astromer, imported, damage_astromer),
    "safetensors": Target("model.safetensors", write_model, imported_folder, damage_safetensors),
    "tokenizer": Target("tokenizer.json", write_model, imported_folder),
    "config": Target("config.json", write_model, imported_folder),
    "gguf": Target("a.gguf", write_gguf, imported),
    "timm": Target("model.safetensors", write_timm_folder, imported_folder, damage_safetensors),
    "timm_config": Target("config.json", write_timm_folder, imported_folder),
    "vit_config": Target("config.json", write_vit, imported_folder),
    "vit_pixels": Target("preprocessor_config.json", write_vit, imported_folder),
    "statistics": Target("run/model/statistics.json", write_run, use_resealed_run),
    "run_json": Target("run/run.json", write_run, use_resealed_run),
    "run_recipe": Target("run/recipe.yaml", write_run, use_resealed_run),
    "run_weights": Target("run/model/weights.safetensors", write_run, use_resealed_run, damage_safetensors),
    "manifest": Target("run/manifest.json", write_run, use_run),
    "log": Target("run/metrics.jsonl", write_run, use_run),
    "scores": Target("run/scores.json", write_run, use_run, needed=False),
    "checkpoint": Target("run/checkpoints/step-0000002/state.json", write_run, use_checkpoint),
    "checkpoint_manifest": Target("run/checkpoints/step-0000002/manifest.json", write_run, use_checkpoint),
    "hashes": Target("a.sha256", write_hashes, lambda path: compare_hashes(path, [path.parent / "a.txt"])),
    "new_lightcurves": Target("a.csv", lambda path: write_csv(path, objects(14)), guess("lightcurves")),
    "new_jets": Target("a.root", lambda path: write_root(path, table(20)), guess("jets")),
    "new_arrays": Target(
        "a.npz",
        lambda path: np.savez(path, image=pixels(12, 4, 4), label=np.arange(12) % 3),
        guess("arrays"),
        damage_zip,
    ),
    "new_images": Target("a.csv", write_pictures, guess("images")),
    "new_text": Target("a.tsv", text("good\tthe cat sat 1\nbad\tthe dog 2\n"), guess("text")),
}
