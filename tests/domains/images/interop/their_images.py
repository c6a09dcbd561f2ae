"""Small models of images of `transformers` with random weights, saved as folders, and images for them."""

import json

import numpy as np
import torch

from sciformer.training.weights import load_weights
from tests.domains.text.interop.theirs import transformers
from tests.nn.parity import shake

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
SIZES |= {"image_size": 12, "patch_size": 4}
DECODER = {"decoder_hidden_size": 8, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2}
DECODER |= {"decoder_intermediate_size": 20}
NAMES = {"id2label": {0: "dog", 1: "cat", 2: "bird"}}
MEAN, DEVIATION = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)


def make(kind, head, **changes):
    """A model with random weights: make("ViT", "ForImageClassification", hidden_act="relu")."""
    torch.manual_seed(0)
    more = DECODER if kind == "ViTMAE" else {}
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **more, **changes})
    return shake(getattr(transformers, f"{kind}{head}")(config)).eval()


def save(folder, model, **changes):
    """As `save_pretrained` writes it, and what its processor says of pixels."""
    model.save_pretrained(folder)
    about = {"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
    about |= {"image_mean": MEAN, "image_std": DEVIATION, **changes}
    (folder / "preprocessor_config.json").write_text(json.dumps(about))
    return folder


def assert_same_weights(run, other, atol=0):
    before, after = (load_weights(one.folder.model)[0] for one in (run, other))
    torch.testing.assert_close(after, before, atol=atol, rtol=0)


def images(count=3, height=12, width=12, channels=3):
    """Pixels from 0 to 255."""
    return np.random.default_rng(0).integers(0, 256, (count, height, width, channels)).astype(np.uint8)


def pixel_values(pictures, mean=MEAN, deviation=DEVIATION):
    """The same as their models take them."""
    scaled = (pictures / 255 - np.asarray(mean)) / np.asarray(deviation)
    return torch.tensor(scaled.transpose(0, 3, 1, 2), dtype=torch.float32)
