"""A recipe tried out: what is found, what is said, and that nothing is written."""

import io
import math

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

import sciformer.checks.check as check_module
from sciformer.checks import estimate
from sciformer.checks.check import check, show_check
from sciformer.data.columns import Lists
from sciformer.recipe import Recipe, plugin
from tests.training.tiny import engine

TEXT = {"model.dim": 8, "model.depth": 1, "model.heads": 2, "tokens.context": 16, "train.steps": 40, "train.batch": 4}


@pytest.fixture(autouse=True)
def _here(tmp_path, here):
    (tmp_path / "story.txt").write_text("once upon a time there was a bead on a string; it slid along. " * 40)


@pytest.fixture
def images(tmp_path):
    def make(changes=None, **columns):
        random = np.random.default_rng(0)
        found = {"image": random.normal(size=(40, 4, 4)), "label": np.arange(40) % 2, **columns}
        np.savez(tmp_path / "data.npz", **found)
        tree = {
            "data": {"kind": "arrays", "files": ["data.npz"]},
            "tokens": {"kind": "patches", "patch": 2, "scale": "none"},
            "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
            "objective": {"kind": "classify"},
            "train": {"steps": 20, "batch": 8, "warmup": 1, "device": "cpu"},
        }
        return Recipe.from_dict(tree, changes)

    return make


def text(**changes):
    return Recipe.load("text/gpt-char", {**TEXT, "data.files": ["story.txt"], "train.device": "cpu", **changes})


def shown(checked) -> str:
    file = io.StringIO()
    show_check(checked, Console(file=file, width=120))
    return file.getvalue()


def test_a_good_recipe_is_ready_and_leaves_no_trace(tmp_path):
    before = sorted(tmp_path.rglob("*"))
    heard = []
    checked = check(text(), log=heard.append)
    assert checked.problems == []
    assert checked.notes == []
    assert sorted(tmp_path.rglob("*")) == before
    figures = checked.figures
    vocabulary = len(set((tmp_path / "story.txt").read_text())) + 2
    assert figures["expected_loss"] == pytest.approx(math.log(vocabulary))
    assert figures["loss"] == pytest.approx(figures["expected_loss"], rel=0.1)
    assert figures["steps"] == 40
    assert figures["seconds"] >= 40 * figures["seconds_per_step"]
    assert figures["memory_bytes"] < figures["free_bytes"]
    assert figures["disk_bytes"] > 3 * figures["checkpoint_bytes"] > 9 * 4 * figures["parameters"]
    mentions = ("text · text · decoder · next_token", "story.txt", "40 steps", "(estimated)", "ready to train")
    page = shown(checked)
    assert [words for words in mentions if words not in page] == []
    assert heard


def test_a_classifier_starts_at_the_logarithm_of_its_classes(images):
    checked = check(images({"model.trunk": "gru", "train.batch": 500, "data.split.valid": 0.0}))
    assert checked.problems == []
    assert checked.figures["expected_loss"] == pytest.approx(math.log(2))
    notes = " ".join(checked.notes)
    assert "train.batch is 500" in notes
    assert "36" in notes
    assert "`valid`" in notes
    assert checked.facts["Data"]["column label"] == "0, 1"


@pytest.mark.parametrize(
    ("changes", "mentions"),
    [
        ({"data.files": ["stroy.txt"]}, ["the data: ", "'stroy.txt'"]),
        ({"model.heads": 3}, ["a step of the training: ", "model.dim", "model.heads"]),
        ({"train.best": "auc"}, ["train.best", "'auc'"]),
        ({"train.device": "cuda:99"}, ["train.device", "cuda:99"]),
        ({"tokens.vocabulary": 3}, ["tokens.vocabulary"]),
    ],
)
def test_what_is_wrong_is_a_sentence(changes, mentions):
    checked = check(text(**changes))
    assert any(all(word in sentence for word in mentions) for sentence in checked.problems), checked.problems
    assert "problem" in shown(checked).splitlines()[-1]


def test_a_wrong_key_is_found_without_an_exception(tmp_path):
    (tmp_path / "my.yaml").write_text("base: text/gpt-char\nmodel:\n  dept: 3\n")
    assert "model.depth" in " ".join(check(tmp_path / "my.yaml").problems)


def test_samples_that_are_not_finite_are_counted_and_tried(images, monkeypatch):
    monkeypatch.setattr(
        "sciformer.domains.images.tokens.Patches.fit", lambda self, tables: self.state.update(shape=[4, 4, 1])
    )
    image = np.zeros((40, 4, 4))
    image[[3, 7], 0, 0] = np.nan
    recipe = images({"data.split.valid": 0.0, "data.split.test": 0.0, "train.seed": 1}, image=image, z=image[:, 0, 0])
    checked = check(recipe)
    assert checked.bad["train"] == [3, 7]
    assert any("2 of 40 samples of train" in note and "sample 3." in note for note in checked.notes)
    assert any("`z`" in note and "2 samples of train" in note for note in checked.notes)
    assert any("NaN or infinity" in problem for problem in checked.problems)


def test_too_little_memory_or_disk_is_said_before_the_run(monkeypatch):
    monkeypatch.setattr(estimate, "_free_memory", lambda device: 40_000.0)
    monkeypatch.setattr(estimate.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    first, second = check(text(**{"train.batch": 64})).problems
    assert "train.micro_batch: " in first
    assert "train.keep" in second


def test_the_largest_batch_is_a_power_of_two_that_fits():
    cost = type("Cost", (), {"activation_bytes": 100.0})
    sizes = {-1: 0, 99: 0, 100: 1, 799: 4, 800: 8, 1e9: 64}
    assert {left: estimate._largest_batch_by_cost(cost, left, 64) for left in sizes} == sizes


BEADS = '''
import numpy as np
from torch import nn
from sciformer.data.batch import Stream
from sciformer.recipe.registry import register
from sciformer.tokens.base import Tokens

@register("tokens", "checked-beads")
class Beads(Tokens):
    """One token for each row of pixels."""
    source_columns = ("image",)

    def tokenize(self, table):
        image = table["image"]
        rows = image.reshape(-1, image.shape[-1]).astype(np.float32)
        return Stream({"row": rows BROKEN}, np.full(len(image), image.shape[1]))

    def embedding(self, dim):
        return Rows(dim)

class Rows(nn.Linear):
    def __init__(self, dim):
        super().__init__(4, dim)

    def forward(self, columns):
        return super().forward(columns["row"])
'''


@pytest.mark.usefixtures("own_plugins")
@pytest.mark.parametrize("broken", ["", "- image.mean()"])
def test_tokens_of_a_plugin_go_through_the_conformance_suite(images, tmp_path, monkeypatch, broken):
    (tmp_path / "my_beads.py").write_text(BEADS.replace("BROKEN", broken))
    own = plugin.load(tmp_path / "my_beads.py")
    recipe = images().change({"tokens": {"kind": "checked-beads"}})
    checked = check(recipe, [own])
    assert bool(checked.problems) is bool(broken)
    assert all("must not depend on other samples" in problem for problem in checked.problems[:1])
    assert checked.facts["Recipe"]["plugins"] == "my_beads.py"
    assert "plugin" in checked.facts["Tokens"]["tokens: checked-beads"]


def test_a_small_table_keeps_numbers_and_cuts_texts():
    column = np.empty(1, object)
    column[:] = ["x" * 1000]
    small = check_module._small_table({"text": column, "bead": Lists(np.ones(3), np.array([3])), "n": np.arange(1)}, 4)
    assert [len(part) for part in small["text"]] == [256, 224, 192, 160]
    assert small["bead"].lengths.tolist() == [3] * 4
    assert check_module._small_table({"n": np.arange(0)}, 4) is None


def test_samples_at_once_are_doubled_until_memory_runs_out(images):
    class Small(nn.Module):
        def forward(self, inputs):
            if len(inputs.stream.columns["patch"]) > 8:
                raise torch.OutOfMemoryError
            return (inputs.stream.columns["patch"].sum() * torch.ones((), requires_grad=True)), {}

    made = engine(images(), "never")
    made.step = Small()
    heard = []
    assert estimate._largest_batch_on_cuda(made, 32, heard.append) == 8
    assert "16 samples" in heard[-1]


def test_one_thread_is_advised_where_it_is_quicker(monkeypatch):
    def timed(engine, steps):
        return [0.0] * len(steps), [0.2 if torch.get_num_threads() > 1 else 0.01] * len(steps)

    monkeypatch.setattr(estimate, "_time_steps", timed)
    assert check(text()).notes == []
    torch.set_num_threads(2)
    (note,) = check(text()).notes
    assert all(word in note for word in ("200 ms", "2 threads", "10 ms", "OMP_NUM_THREADS=1"))
    assert torch.get_num_threads() == 2
