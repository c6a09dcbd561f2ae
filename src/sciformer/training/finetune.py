"""Fine-tuning: training from the weights of another run.

    sciformer pretrain text/bert --run runs/bert
    sciformer finetune text/sentiment --from runs/bert

The new run takes three things from the pretrained run: its best weights, where name and shape agree; the statistics of
its tokens (vocabulary, scales); and keys of the sections `tokens` and `model` that the new recipe does not set.
Afterwards the new run does not need the pretrained run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError, list_names
from ..nn import ClassToken
from ..objectives.base import Objective, Step
from ..recipe import Recipe
from ..recipe.document import differences
from . import checkpoint
from .folder import Folder
from .optimizers import ANSWER_PARTS, is_answer
from .resume import absolute_paths
from .weights import digest, load_weights, named_tensors

# Weights for masked tokens, which only some objectives need.
OPTIONAL_WEIGHTS = ("entrance.hidden", "entrance.trace.")
HARMLESS_KEYS = ("model.dropout", "model.attention_dropout", "model.hidden_dropout", "model.drop_path", "model.pool")


class Pretrained:
    """Best model and token statistics of a pretrained run: `Pretrained("runs/bert")`."""

    def __init__(self, path: str | Path) -> None:
        folder = Folder(Path(path).expanduser())
        if not folder.recipe.exists():
            message = f"train.init_from is {path}, which is not a run folder"
            hint = f"Make a run with `sciformer pretrain RECIPE --run {path}`, or name another run with --from RUN."
            raise UserError(message, hint=hint, key="train.init_from", file=path)
        self.path = folder.path.resolve()
        self.recipe = Recipe.load(folder.path)
        self.weights, kept = load_weights(folder.model)
        self.hash = digest(self.weights)[:16]
        self.step = kept.get("step")
        self.state: dict[str, Any] = folder.read_json("model/statistics.json")
        self.about: dict[str, Any] = {}  # summary of copied, new and unused tensors; `fill` sets it

    def over(self, recipe: Recipe) -> Recipe:
        """Complete a recipe with missing keys of `tokens` and `model`.

        The result also contains the path of the pretrained run and the hash of its weights. A recipe with different
        tokens is an error.
        """
        wanted = recipe.train.init_from_hash
        if wanted not in ("", self.hash):
            message = f"the weights in {self.path} have hash {self.hash}, but train.init_from_hash is {wanted}"
            hint = "Remove train.init_from_hash to use these weights."
            raise UserError(message, hint=hint, key="train.init_from_hash", file=self.path)
        sections = _shared_sections(self.recipe)
        ours, theirs = recipe.model.plain, self.recipe.model.plain
        if ours is not theirs and (issubclass(ours, theirs) or issubclass(theirs, ours)):
            # One class extends the other, as a masked autoencoder extends an encoder: inherit the common keys.
            other = theirs.model_fields.keys() - ours.model_fields.keys()
            both = {key: value for key, value in sections["model"].items() if key not in other}
            sections["model"] = {**both, "kind": recipe.model.kind}
        origin = {"train.init_from": str(self.path), "train.init_from_hash": self.hash}
        made = recipe.inherit_from(sections, f"in {self.path}").change(origin)
        self._check_same_tokens(made)
        return made

    def _check_same_tokens(self, recipe: Recipe) -> None:
        ours, theirs = recipe.streams, self.recipe.streams
        if ours.keys() != theirs.keys():
            message = f"the recipe has the streams {', '.join(ours)}, but {self.path} has {', '.join(theirs)}"
            raise UserError(message, hint="Use the same streams in tokens.", key="tokens", file=self.path)
        for name, tokens in ours.items():
            where = "tokens" if len(ours) == 1 else f"tokens.{name}"
            keys = [f"{where}.{key}" for key in tokens.may_differ_when_finetuning]
            changed = differences({where: theirs[name].model_dump()}, {where: tokens.model_dump()}, keys)
            if theirs[name].kind != tokens.kind:
                changed = [(f"{where}.kind", theirs[name].kind, tokens.kind)]
            if changed:
                message = f"the tokens differ from the tokens of {self.path}: {_list_changes(changed)}"
                hint = "Remove these keys from the recipe; they are then taken from that run."
                raise UserError(message, hint=hint, key=changed[0][0], file=self.path)

    def fill(self, model: nn.Module, recipe: Recipe, objective: Objective) -> None:
        """Copy weights of equal name and shape into a model; record them in `about`.

        Embedding and trunk must agree completely. Heads and readout are copied if the objective is the same and all
        their tensors fit; a pooling is copied if its tensors fit.
        """
        own = named_tensors(model)
        self._check_same_body(own, recipe)
        old = self.recipe.objective.fresh()
        old.restore(self.state["objective"])
        same = old.head_kind == objective.head_kind and old.answers == objective.answers
        fitting = {name for name in own if name in self.weights and self.weights[name].shape == own[name].shape}
        taken = {name for name in fitting if not is_answer(name)}
        for part in ANSWER_PARTS:
            names = {name for name in own if name.partition(".")[0] == part}
            if names <= fitting and (same or part == "pooling"):
                taken |= names
            elif recipe.train.freeze and isinstance(getattr(model, part, None), ClassToken):
                message = f"train.freeze would fix a random class token, because {self.path} has no class token"
                hint = "Use another model.pool, for example mean, or train without train.freeze."
                raise UserError(message, hint=hint, key="model.pool", file=self.path)
        with torch.no_grad():
            for name in sorted(taken):
                own[name].copy_(self.weights[name])
        self.about = {
            "run": str(self.path),
            "hash": self.hash,
            "step": self.step,
            "tensors": len(taken),
            "parameters": sum(own[name].numel() for name in taken),
            "left": sorted(self.weights.keys() - taken),
            "new": sorted(own.keys() - taken),
        }

    def _check_same_body(self, own: Mapping[str, Tensor], recipe: Recipe) -> None:
        """Refuse a recipe with another embedding or trunk; list the differing keys."""
        ours, theirs = ({name: tuple(weight.shape) for name, weight in side.items()} for side in (own, self.weights))
        body = [name for name in {**ours, **theirs} if not is_answer(name)]
        optional = {name for name in ours.keys() ^ theirs.keys() if name.startswith(OPTIONAL_WEIGHTS)}
        odd = [name for name in body if ours.get(name) != theirs.get(name) and name not in optional]
        if not odd:
            return
        changed = differences(_shared_sections(self.recipe), _shared_sections(recipe), HARMLESS_KEYS)
        found = _list_changes(changed) or "the shapes differ"
        raise UserError(
            f"the recipe does not fit the weights in {self.path}: {found}. For example, {odd[0]} has the shape "
            f"{ours.get(odd[0], 'none')} in the recipe and {theirs.get(odd[0], 'none')} in that run",
            hint="Remove these keys from the recipe; they are then taken from that run.",
            key=changed[0][0] if changed else "model",
            file=self.path,
        )

    @property
    def can_answer(self) -> bool:
        """Whether all heads were copied: the model can then predict before training."""
        return bool(self.about) and not any(is_answer(name) for name in self.about["new"])

    def words(self) -> str:
        """Sentence on copied, new and unused tensors, for the log."""
        about = self.about
        text = f"starting from {about['tensors']} tensors ({about['parameters']:,} parameters) of {self.path}"
        text += "" if about["step"] is None else f", step {about['step']}"
        for key, words in (("new", "new"), ("left", "unused")):
            if about[key]:
                text += f"; {words}: {list_names(about[key])}"
        return text


def load_pretrained(recipe: Recipe, folder: Folder) -> tuple[Recipe, Pretrained | None]:
    """Complete a recipe from its pretrained run; return the recipe and the run.

    The run is None without `train.init_from`, and for a resumed training, which needs only its own folder.
    """
    if not recipe.train.init_from:
        return recipe, None
    init_from, there = recipe.train.init_from, Path(recipe.train.init_from).expanduser()
    if there.resolve() == folder.path.resolve():
        message = f"train.init_from is {init_from}, which is the folder of this run itself"
        raise UserError(message, hint="Use another --run.", key="train.init_from", file=folder.path)
    if not checkpoint.steps(folder.checkpoints):
        found = Pretrained(init_from)
        return absolute_paths(found.over(recipe)), found
    own = Recipe.load(folder.path)
    if own.train.init_from:
        recipe = recipe.inherit_from(_shared_sections(own), f"in {folder.path}")
    known = recipe.train.init_from_hash or own.train.init_from_hash
    origin = {"train.init_from": str(there.resolve()), "train.init_from_hash": known}
    return absolute_paths(recipe.change(origin)), None


def freeze(step: Step) -> None:
    """Freeze all parts of a model except heads, pooling and readout.

    Frozen parts have no dropout. A class token passes through the trunk and is frozen too.
    """
    children = step.model.named_children()
    parts = {name: part for name, part in children if name not in ANSWER_PARTS or isinstance(part, ClassToken)}
    for part in parts.values():
        part.requires_grad_(False).eval()
    if not any(weight.requires_grad for weight in step.model.parameters()):
        raise UserError(
            f"train.freeze leaves nothing to train: with `objective.kind: {step.objective.kind}` the model has "
            f"{' and '.join(parts)}, but no head, pooling or readout",
            key="train.freeze",
        )
    step.still = tuple(parts.values())


def _shared_sections(recipe: Recipe) -> dict[str, Any]:
    return {key: value for key, value in recipe.to_dict().items() if key in ("tokens", "model")}


def _list_changes(changed: list[tuple[str, Any, Any]]) -> str:
    words = [f"{key} is {after} here and {before} in that run" for key, before, after in changed]
    return list_names(words, separator="; ")
