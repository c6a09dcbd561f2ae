"""Import of image models from Hugging Face and timm as runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....assembly import Assembly
from ....interop.config import Config
from ....interop.importing import Imported, Importer, imported_recipe
from ....interop.reading import is_weights_file, read_config, read_json, read_tensors, read_weights
from ....interop.weight_map import WeightMap, from_theirs, sort_classes
from ....training.weights import named_tensors
from . import mae, timm, vit
from .pixels import Scaling, class_names, pixel_scaling, read_scaling
from .vit import HEAD, ImageGeometry, WeightNames

MODEL_TYPES = ("vit", "vit_mae")
UNTRAINED_WEIGHTS = ("entrance.hidden", "readout.")  # our readout; missing in files without a head
NO_HEAD_NOTE = "the model has no head: use it for embeddings and fine-tuning; it predicts the mean for masked patches"
RESIZE_NOTE = "`data.size` keeps the aspect ratio and crops the centre; the original may resize in another way"


@dataclass
class ImageModel:
    """Image model read from files of Hugging Face or timm.

    model     keys of the section `model`, without a decoder
    names     original names of the weights
    tensors   weights in the layout of Sciformer, under their original names
    scaling   mean and standard deviation of the channels, for pixels from 0 to 255
    decoder   sections of the recipe for the decoder of a masked autoencoder
    """

    kind: str
    picture: ImageGeometry
    model: dict[str, Any]
    tensors: dict[str, Tensor]
    names: WeightNames
    scaling: Scaling
    classes: list[str]
    decoder: mae.Sections | None = None

    def sections(self) -> dict[str, dict[str, Any]]:
        found = {"model": self.model, "tokens": self.picture.tokens(), "objective": {"kind": "classify"}}
        if self.decoder is not None:
            return {name: section | self.decoder[name] for name, section in found.items()}
        return found if self.classes else found | {"objective": {"kind": "masked", "mask_ratio": 0.75}}

    def links(self, model: Any) -> list[WeightMap]:
        found = vit.weight_links(self.names, model, bool(self.classes))
        return found if self.decoder is None else found + mae.decoder_links(self.names, model)


def recognises(source: Path) -> bool:
    """Whether a path is an image model: a timm file, or a folder with config.json."""
    if is_weights_file(source):
        return timm.is_timm(read_weights(source))
    if not (source / "config.json").is_file():
        return False
    config = read_json(source / "config.json")
    return config.get("model_type") in MODEL_TYPES or "architecture" in config


def import_images(source: Path, changes: Mapping[str, Any] | None = None) -> Imported:
    """Import an image model as a run, with the pixel normalisation of its training."""
    notes: list[str] = []
    found, config = _read_model(source, changes or {}, notes)
    if found.decoder is not None:
        mae.convert_decoder(found.tensors)
    picture, (mean, deviation) = found.picture, found.scaling
    data: dict[str, Any] = {"kind": "images", "size": [picture.height, picture.width]}
    if picture.channels in (1, 3):
        data["channels"] = picture.channels  # convert grey and colour as needed
    notes.append(RESIZE_NOTE)
    note = f"An imported {found.kind} model."
    recipe = imported_recipe(source.stem, note, {"data": data, **found.sections()}, changes)
    weights = from_theirs(found.links(recipe.model), found.tensors, Config({}, str(source), source))
    classes = sort_classes(weights, HEAD, found.classes) if found.classes else []
    objective = {"classes": classes, "counts": [1] * len(classes)} if classes else {}
    scaled = {"shape": picture.shape, "mean": mean, "deviation": deviation}
    state = {"tokens": {"tokens": scaled}, "objective": objective}
    if not found.classes and found.decoder is None:
        notes.append(NO_HEAD_NOTE)
        with torch.device("meta"):
            own = named_tensors(Assembly.from_state(recipe, state).network())
        untrained = [name for name in own if name not in weights and name.startswith(UNTRAINED_WEIGHTS)]
        weights |= {name: torch.zeros(own[name].shape) for name in untrained}
    return Imported(source.stem, recipe, weights, state, config, notes, head=HEAD, outputs=found.classes)


def _read_model(source: Path, changes: Mapping[str, Any], notes: list[str]) -> tuple[ImageModel, dict[str, Any]]:
    if not source.is_dir():
        return _timm(read_weights(source), Config({}, str(source), source), changes, notes), {"model_type": "timm"}
    config, tensors = read_config(source), read_tensors(source)
    if "architecture" in config.values and "model_type" not in config.values:
        return _timm(tensors, config, changes, notes), config.values
    return _huggingface(source, tensors, config, notes), config.values


def _huggingface(folder: Path, tensors: dict[str, Tensor], config: Config, notes: list[str]) -> ImageModel:
    """Read a ViTModel, ViTForImageClassification or ViTMAEForPreTraining."""
    kind, names = config.get("model_type", "", str), vit.HUGGINGFACE
    tensors, picture, model = vit.canonical_names(tensors, notes), vit.image_geometry(config), vit.model_section(config)
    config.only("problem_type", "single_label_classification")
    vit.convert_weights(tensors, names, picture, config)
    classes = class_names(config.get("id2label", {}, dict), tensors.get(f"{names.head}.weight"))
    decoder = mae.sections_from_config(config) if kind == "vit_mae" else None
    config.done()
    scaled = read_scaling(folder, picture.channels, notes)
    decoder = decoder if mae.has_decoder(tensors) else None
    return ImageModel(kind, picture, model, tensors, names, scaled, classes, decoder)


def _timm(tensors: dict[str, Tensor], config: Config, changes: Mapping[str, Any], notes: list[str]) -> ImageModel:
    """Read a vision transformer or masked autoencoder with weight names of timm."""
    if not timm.is_timm(tensors):
        some = ", ".join(sorted(tensors)[:6]) or "none"
        raise config.error(f"{config.where} is not a vision transformer of timm; its weights are {some}")
    names, told = timm.TIMM, timm.model_arguments(config)
    tensors = timm.fold_layer_scales(tensors, config)
    about: dict[str, Any] = config.get("pretrained_cfg", {}, dict)
    size = told.get("img_size", None, int, list) or (about.get("input_size") or [])[1:] or None
    picture = timm.image_geometry(tensors, [size, size] if isinstance(size, int) else size, config)
    vit.convert_weights(tensors, names, picture, config)
    labels = config.get("label_names", about.get("label_names") or [], list)
    classes = class_names(dict(enumerate(labels)), tensors.get(f"{names.head}.weight"))
    model = timm.model_section(tensors, changes.get("model.heads", told.get("num_heads", None)), notes)
    told.done()
    config.done()
    if "mean" not in about:
        notes.append(timm.SCALING_NOTE)
    scaled = pixel_scaling(about.get("mean"), about.get("std"), picture.channels, config)
    decoder = mae.sections_from_weights(tensors, notes) if mae.has_decoder(tensors) else None
    return ImageModel("timm", picture, model, tensors, names, scaled, classes, decoder)


IMPORTER = Importer(recognises, lambda source, run, changes: import_images(source, changes), MODEL_TYPES)
