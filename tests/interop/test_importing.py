"""Models of others find the field that reads them; all others are refused, with the types that are read."""

import json

import pytest
import torch
from safetensors.torch import save_file

from sciformer.interop import import_model
from sciformer.recipe.field import extensions
from tests.errors import refuses


def test_a_type_that_no_field_reads(tmp_path):
    (tmp_path / "theirs").mkdir()
    for kind, *mentions in (("mamba", "bert", "vit_mae", "'mamba'"), (["bert"], "str")):
        (tmp_path / "theirs" / "config.json").write_text(json.dumps({"model_type": kind}))
        with refuses("`model_type`", *mentions, file=tmp_path / "theirs" / "config.json"):
            import_model(tmp_path / "theirs", tmp_path / "run")


def test_a_file_of_another_kind(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with refuses(file=tmp_path / "notes.txt"):
        import_model(tmp_path / "notes.txt", tmp_path / "run")


@pytest.mark.parametrize("name", ["EleutherAI/pythia-70m", "https://huggingface.co/EleutherAI/pythia-70m"])
def test_the_hub_is_not_read(name, here):
    with refuses("EleutherAI/pythia-70m", hint="hf download EleutherAI/pythia-70m --local-dir pythia-70m"):
        import_model(name, "run")
    with refuses("runs/a/b", hint="folder"):
        import_model("runs/a/b", "run")


@pytest.mark.parametrize(("name", "count"), [("a.gguf", 1), ("a.npz", 1), ("a.safetensors", 1), ("a.txt", 0)])
def test_a_source_is_recognised_by_one_field(name, count, tmp_path):
    if name == "a.safetensors":
        shown = {"patch_embed.proj.weight": torch.zeros(1), "blocks.0.norm1.weight": torch.zeros(1)}
        save_file(shown, tmp_path / name)
    assert sum(one.recognises(tmp_path / name) for one in extensions("importers")) == count
