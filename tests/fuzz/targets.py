"""Formats to fuzz: a small valid file of each, its damage, and the code that reads it."""

import gzip
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
import yaml

from sciformer.data.readers.events.reader import EventFiles
from sciformer.data.readers.series.reader import SeriesFiles
from sciformer.data.source import pieces
from sciformer.domains.images.reader.reader import ImageFiles
from sciformer.domains.jets.interop.data_config import import_data
from sciformer.domains.text.readers.labelled import Lines
from sciformer.domains.text.readers.running import TextFiles
from sciformer.domains.text.readers.tagged import Columns
from sciformer.files.formats.npz import read_arrays
from sciformer.interop import import_model
from sciformer.recipe import Recipe
from tests.data.readers.events.examples import padded, table, write_parquet, write_root
from tests.data.readers.series.examples import objects, write_astropy, write_csv, write_lists
from tests.domains.images.reader.examples import picture, pixels
from tests.domains.jets.interop import weaver_keys
from tests.domains.lightcurves.test_astromer import shapes as astromer_shapes
from tests.domains.text.foreign import byte_pairs
from tests.fuzz.mutate import damage, damage_tensors, damage_zip

SERIES = {"label": "type", "time": "mjd", "value": "mag", "error": "magerr", "band": "filter", "id": "objectId"}


@dataclass(frozen=True)
class Target:
    """A format.

    name    name of the damaged file in the folder
    write   writes the valid file into a folder
    read    reads the file as a user would
    damage  makes the bytes of a case: (bytes, random numbers) -> bytes
    """

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    damage: Callable[[bytes, np.random.Generator], bytes] = damage


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
    "fits": Target("a.fits", lambda path: write_astropy(path, objects()), series),
    "fits_images": Target("a.fits", write_fits_image, images),
    "hdf5": Target("a.h5", write_hdf5, events),
    "parquet": Target("a.parquet", lambda path: write_parquet(path, table()), events),
    "parquet_series": Target("a.parquet", lambda path: write_lists(path, objects()), series),
    "root": Target("a.root", lambda path: write_root(path, table(20)), events),
    "csv": Target("a.csv", lambda path: write_csv(path, objects()), series),
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
}
