"""Beginning a training with the weights of another: fine-tuning.

    sciformer pretrain text/bert --run runs/bert
    sciformer finetune text/sentiment --from runs/bert

The other run gives its best weights wherever name and shape agree, what its tokens learned from its data, and the keys
of the sections `tokens` and `model` that the new recipe leaves open. What is new then stands on its own: the other
folder is not needed again.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..nn import ClassToken
from ..objectives.base import Objective, Step
from ..recipe import Recipe
from ..recipe.document import differences
from . import checkpoint
from .folder import Folder
from .optimizers import ANSWER_PARTS, is_answer
from .resume import absolute_paths
from .weights import digest, load_weights, named_tensors

# What stands for hidden tokens, which a question may want or not.
OPTIONAL_WEIGHTS = ("entrance.hidden", "entrance.trace.")
HARMLESS_KEYS = ("model.dropout", "model.attention_dropout", "model.hidden_dropout", "model.drop_path", "model.pool")
MAX_LISTED = 6  # names that are listed


class Pretrained:
    """The best model of another run, and what its tokens learned: `Pretrained("runs/bert")`."""

    def __init__(self, path: str | Path) -> None:
        folder = Folder(Path(path).expanduser())
        if not folder.recipe.exists():
            message = f"train.init_from names {path}, which is not the folder of a run"
            hint = f"Make a run with `sciformer pretrain RECIPE --run {path}`, or name another with --from RUN."
            raise UserError(message, hint=hint, key="train.init_from", file=path)
        self.path = folder.path.resolve()
        self.recipe = Recipe.load(folder.recipe)
        self.weights, kept = load_weights(folder.model)
        self.hash = digest(self.weights)[:16]
        self.step = kept.get("step")
        try:
            self.state: dict[str, Any] = json.loads((folder.model / "statistics.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            message = f"what was learned from data cannot be read from {folder.model}: {error}"
            raise UserError(message, hint="Is the run whole?", file=folder.model / "statistics.json") from error
        self.about: dict[str, Any] = {}  # what was taken, once a model was filled

    def over(self, recipe: Recipe) -> Recipe:
        """The new recipe with what it leaves open in `tokens` and `model`; refused where the tokens mean other things.

        It then says where its weights come from.
        """
        if recipe.train.init_from_hash not in ("", self.hash):
            message = f"the weights in {self.path} are {self.hash}, and the recipe names {recipe.train.init_from_hash}"
            hint = "Leave out train.init_from_hash to begin with these."
            raise UserError(message, hint=hint, key="train.init_from_hash", file=self.path)
        sections = _shared_sections(self.recipe)
        ours, theirs = recipe.model.plain, self.recipe.model.plain
        if ours is not theirs and (issubclass(ours, theirs) or issubclass(theirs, ours)):
            # One is the other with something more, as a masked autoencoder is an encoder: what both have is the same.
            other = theirs.model_fields.keys() - ours.model_fields.keys()
            both = {key: value for key, value in sections["model"].items() if key not in other}
            sections["model"] = {**both, "kind": recipe.model.kind}
        made = recipe.inherit_from(sections, f"in {self.path}").change(
            {"train.init_from": str(self.path), "train.init_from_hash": self.hash}
        )
        self._check_same_tokens(made)
        return made

    def _check_same_tokens(self, recipe: Recipe) -> None:
        ours, theirs = recipe.streams, self.recipe.streams
        if ours.keys() != theirs.keys():
            message = f"the streams of tokens differ: {', '.join(ours)} here, {', '.join(theirs)} in {self.path}"
            raise UserError(message, key="tokens", file=self.path)
        for name, tokens in ours.items():
            where = "tokens" if len(ours) == 1 else f"tokens.{name}"
            keys = [f"{where}.{key}" for key in tokens.may_differ_when_finetuning]
            changed = differences({where: theirs[name].model_dump()}, {where: tokens.model_dump()}, keys)
            if theirs[name].kind != tokens.kind:
                changed = [(f"{where}.kind", theirs[name].kind, tokens.kind)]
            if changed:
                message = f"the tokens differ from those in {self.path}: {_list_changes(changed)}"
                hint = "Leave these keys out, and they are taken from there."
                raise UserError(message, hint=hint, key=changed[0][0], file=self.path)

    def fill(self, model: nn.Module, recipe: Recipe, objective: Objective) -> None:
        """Put the weights into a model wherever name and shape agree; `about` then says which.

        Embedding and trunk must agree as a whole. Heads and readout are taken where the question is the same and all of
        them fit; a pooling where it fits.
        """
        own = named_tensors(model)
        self._check_same_body(own, recipe)
        old = self.recipe.objective.fresh()
        old.state.update(copy.deepcopy(self.state["objective"]))
        same = old.head_kind == objective.head_kind and old.answers == objective.answers
        fitting = {name for name in own if name in self.weights and self.weights[name].shape == own[name].shape}
        taken = {name for name in fitting if not is_answer(name)}
        for part in ANSWER_PARTS:
            names = {name for name in own if name.partition(".")[0] == part}
            if names <= fitting and (same or part == "pooling"):
                taken |= names
            elif recipe.train.freeze and _enters_trunk(getattr(model, part, None)):
                message = f"train.freeze fixes the class token, and {self.path} has no class token"
                hint = "Take another model.pool, for example mean, or train it all."
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
        """Refuse another width, depth or kind of trunk, naming the keys."""
        body = [name for name in {**own, **self.weights} if not is_answer(name)]
        odd = [
            name
            for name in body
            if (name not in own or name not in self.weights or own[name].shape != self.weights[name].shape)
            and not (name.startswith(OPTIONAL_WEIGHTS) and not (name in own and name in self.weights))
        ]
        if not odd:
            return
        changed = differences(_shared_sections(self.recipe), _shared_sections(recipe), HARMLESS_KEYS)
        shapes = [tuple(side[odd[0]].shape) if odd[0] in side else "none" for side in (own, self.weights)]
        found = _list_changes(changed) or "another form"
        raise UserError(
            f"the model does not fit the weights in {self.path}: {found}, so that {odd[0]} is {shapes[0]} here and "
            f"{shapes[1]} there",
            hint="Leave these keys out, and they are taken from there.",
            key=changed[0][0] if changed else "model",
            file=self.path,
        )

    @property
    def can_answer(self) -> bool:
        """Whether the model that was filled can answer as it is: nothing that makes an answer is begun anew."""
        return bool(self.about) and not any(is_answer(name) for name in self.about["new"])

    def words(self) -> str:
        """What was taken, left and begun anew, for a person."""
        about = self.about
        text = f"begun with {about['tensors']} tensors ({about['parameters']:,} parameters) of {self.path}"
        text += "" if about["step"] is None else f", step {about['step']}"
        for key, words in (("new", "begun anew"), ("left", "left there")):
            if about[key]:
                more = f" and {len(about[key]) - MAX_LISTED} more" if len(about[key]) > MAX_LISTED else ""
                text += f"; {words}: {', '.join(about[key][:MAX_LISTED])}{more}"
        return text


def load_pretrained(recipe: Recipe, folder: Folder) -> tuple[Recipe, Pretrained | None]:
    """A recipe with what it takes from the run it begins with, and that run; None where nothing is to be taken.

    Of a training that was begun before, the folder holds all that it took.
    """
    if not recipe.train.init_from:
        return recipe, None
    init_from, there = recipe.train.init_from, Path(recipe.train.init_from).expanduser()
    if there.resolve() == folder.path.resolve():
        message = f"train.init_from names {init_from}, the folder of this run itself"
        raise UserError(message, hint="Use another --run.", key="train.init_from", file=folder.path)
    if not checkpoint.steps(folder.checkpoints):
        found = Pretrained(init_from)
        return absolute_paths(found.over(recipe)), found
    own = Recipe.load(folder.recipe)
    if own.train.init_from:
        recipe = recipe.inherit_from(_shared_sections(own), f"in {folder.path}")
    return absolute_paths(
        recipe.change(
            {
                "train.init_from": str(there.resolve()),
                "train.init_from_hash": recipe.train.init_from_hash or own.train.init_from_hash,
            }
        )
    ), None


def freeze(step: Step) -> None:
    """Fix all of a model but what makes its answer: heads, pooling, readout. What is fixed has no dropout.

    A class token goes through the trunk, and is fixed with it.
    """
    children = step.model.named_children()
    parts = {name: part for name, part in children if name not in ANSWER_PARTS or _enters_trunk(part)}
    for part in parts.values():
        part.requires_grad_(False).eval()
    if not any(weight.requires_grad for weight in step.model.parameters()):
        raise UserError(
            f"nothing can learn with train.freeze: `objective.kind: {step.objective.kind}` has no weights beside "
            f"{' and '.join(parts)}",
            key="train.freeze",
        )
    step.still = tuple(parts.values())


def _enters_trunk(part: nn.Module | None) -> bool:
    return isinstance(part, ClassToken)


def _shared_sections(recipe: Recipe) -> dict[str, Any]:
    return {key: value for key, value in recipe.to_dict().items() if key in ("tokens", "model")}


def _list_changes(changed: list[tuple[str, Any, Any]]) -> str:
    words = [f"{key} {after} here, {before} there" for key, before, after in changed[:MAX_LISTED]]
    return "; ".join(words) + (f" and {len(changed) - MAX_LISTED} more" if len(changed) > MAX_LISTED else "")
