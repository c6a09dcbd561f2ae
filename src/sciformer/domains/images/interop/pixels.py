"""Pixel normalisation and class names of imported and exported models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ....errors import UserError
from ....interop.config import Config
from ....interop.reading import read_json

PREPROCESSOR_FILE = "preprocessor_config.json"
MAX_PIXEL_VALUE = 255.0  # of 8-bit pixels
DEFAULT_MEAN_AND_STD = 0.5  # of the first vision transformers, for pixels from 0 to 1
Scaling = tuple[list[float], list[float]]


def pixel_scaling(
    mean: Any, deviation: Any, channels: int, config: Config, brightest: float = MAX_PIXEL_VALUE
) -> Scaling:
    """Mean and standard deviation of the channels, for pixels from 0 to `brightest`."""
    found = []
    for name, values in (("mean", mean), ("std", deviation)):
        values = [DEFAULT_MEAN_AND_STD] * channels if values is None else values
        values = [values] * channels if isinstance(values, (int, float)) else values
        numbers = isinstance(values, Sequence) and all(isinstance(one, (int, float)) for one in values)
        if not numbers or len(values) != channels or (name == "std" and not all(one > 0 for one in values)):
            above = " above 0" if name == "std" else ""
            raise config.error(f"{config.where} must have {channels} numbers{above} as image {name}, not {values}")
        found.append([one * brightest for one in values])
    return found[0], found[1]


def read_scaling(folder: Path, channels: int, notes: list[str]) -> Scaling:
    """Read mean and standard deviation of the channels from preprocessor_config.json."""
    file = folder / PREPROCESSOR_FILE
    config = Config(read_json(file) if file.is_file() else {}, PREPROCESSOR_FILE, file)
    if not file.is_file():
        usual = f"pixels from 0 to 255 with mean and standard deviation {DEFAULT_MEAN_AND_STD * MAX_PIXEL_VALUE}"
        notes.append(f"there is no {PREPROCESSOR_FILE}: {usual} are assumed")
    found = config.values
    factor = found.get("rescale_factor", 1 / MAX_PIXEL_VALUE) if found.get("do_rescale", True) else 1.0
    if not isinstance(factor, (int, float)) or not factor > 0:
        raise config.error(f"`rescale_factor` in {file} must be above 0, not {factor}")
    scaled = (found.get("image_mean"), found.get("image_std")) if found.get("do_normalize", True) else (0.0, 1.0)
    return pixel_scaling(scaled[0], scaled[1], channels, config, 1 / factor)


def preprocessor_config(mean: Sequence[float], deviation: Sequence[float], height: int, width: int) -> dict[str, Any]:
    """Contents of preprocessor_config.json, for pixels from 0 to 1."""
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": 2,
        "do_rescale": True,
        "rescale_factor": 1 / MAX_PIXEL_VALUE,
        "do_normalize": True,
        "image_mean": [one / MAX_PIXEL_VALUE for one in mean],
        "image_std": [(one or 1.0) / MAX_PIXEL_VALUE for one in deviation],
    }


def class_names(given: Mapping[Any, Any], head: Tensor | None) -> list[str]:
    """Unique class names of a classification head; an empty list without a head.

    A class without a name in `given` is named by its number.
    """
    if head is None:
        return []
    if len(head) < 2:
        raise UserError(f"the classification head must have at least two classes, not {len(head)}")
    names = [str(given.get(str(i), given.get(i, i))) for i in range(len(head))]
    times = Counter(names)
    return [f"{name} ({i})" if times[name] > 1 else name for i, name in enumerate(names)]
