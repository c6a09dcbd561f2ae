"""Assemble a recipe: open the data, fit tokens and objective, build the network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .data.columns import Table
from .data.dataset import Dataset
from .data.source import Data, Memory, Source, Splits, pieces
from .data.windows import Windows
from .errors import UserError, one_of
from .objectives.base import Carried, Objective
from .recipe import Recipe
from .tokens.base import Tokens
from .tokens.protocols import Textual, Windowed

if TYPE_CHECKING:
    from .train.finetune import Pretrained

Log = Callable[[str], None]


def log_nothing(text: str) -> None:
    """Discard a message."""


def data_with_columns(recipe: Recipe) -> Data:
    """Data section of a recipe, with the columns that its tokens and objective use."""
    tokens = recipe.streams.values()
    names = {name for one in tokens for name in one.required_columns}
    wishes = {name for one in tokens for name in one.optional_columns}
    positive = {name for one in tokens for name in one.nonnegative_columns}
    truth = sorted({*recipe.objective.required_columns})
    found: Data = recipe.data.want(sorted(names), truth, sorted(wishes - names), sorted(positive))
    return found


def windowed_streams(tokens: Mapping[str, Tokens]) -> dict[str, Windowed]:
    """Stream that is cut into windows, as {name: tokens}; {} if samples stay whole."""
    kinds = {name: one for name, one in tokens.items() if isinstance(one, Windowed)}
    alone = len(tokens) == 1
    found = {name: one for name, one in kinds.items() if one.window is not None and (alone or one.random_windows)}
    if len(found) > 1:
        message = f"only one stream of tokens can be cut into windows, not {', '.join(found)}"
        raise UserError(message, hint="Set window: null for the other streams.", key=f"tokens.{list(found)[-1]}.window")
    return found


class Assembly:
    """Data, tokens, objective and network of a recipe.

    `Assembly.open` reads the data; `Assembly.from_state` works without data.
    """

    pretrained: Pretrained | None = None
    """Run whose weights initialize a new network (default: None, random weights)."""

    def __init__(self, recipe: Recipe, splits: Splits | None) -> None:
        self.recipe, self.splits = recipe, splits
        self.tokens: dict[str, Tokens] = {name: tokens.fresh() for name, tokens in recipe.streams.items()}
        self.objective: Objective = recipe.objective.fresh()
        self._datasets: dict[str, Dataset] = {}

    @classmethod
    def open(
        cls,
        recipe: Recipe,
        state: Mapping[str, Any] | None = None,
        log: Log = log_nothing,
        write: bool = True,
        pretrained: Pretrained | None = None,
    ) -> Assembly:
        """Open the data; fit tokens and objective, or restore their `state`.

        write       whether a reader may write files, such as a cache (default: yes)
        pretrained  run whose token state and weights are used
        """
        data = data_with_columns(recipe)
        splits = data.open(log) if write else data.reopen(log)
        if "train" not in splits.sources:
            raise UserError(f"the data have no training part, only {', '.join(splits.sources)}", key="data")
        made = cls(recipe, splits)
        if state is not None:
            made.restore(state)
            return made
        made.pretrained = pretrained
        if pretrained is None:
            made._fit_tokens(splits.sources["train"])
        else:
            made._restore_tokens(pretrained.state)
        made.objective.fit(made.dataset("train"))
        for part in splits.sources:
            if part != "train":
                made.objective.validate_split(part, made.dataset(part))
        return made

    def _fit_tokens(self, source: Source) -> None:
        """Fit each stream; streams with a common vocabulary are fitted once."""
        fitted: list[Tokens] = []
        for tokens in self.tokens.values():
            text = tokens if isinstance(tokens, Textual) else None
            twin = next((other for other in fitted if text and text.same_vocabulary(other)), None)
            if twin is None:
                tokens.fit(pieces(source))
            else:
                tokens.state.update(copy.deepcopy(twin.state))
            fitted.append(tokens)

    @classmethod
    def from_state(cls, recipe: Recipe, state: Mapping[str, Any]) -> Assembly:
        """Assemble from a stored state, without opening the data."""
        made = cls(recipe, None)
        made.restore(state)
        return made

    def state(self) -> dict[str, Any]:
        """Fitted state of tokens and objective, as plain JSON."""
        return {
            "tokens": {name: tokens.state for name, tokens in self.tokens.items()},
            "objective": self.objective.state,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the fitted state of tokens and objective."""
        self._restore_tokens(state)
        self.objective.state.update(copy.deepcopy(state["objective"]))

    def _restore_tokens(self, state: Mapping[str, Any]) -> None:
        for name, tokens in self.tokens.items():
            one_of("a stream of the stored state", name, state["tokens"])
            tokens.state.update(copy.deepcopy(state["tokens"][name]))

    def dataset(self, part: str) -> Dataset:
        """Samples of a part of the data; only windows of the training part may overlap."""
        assert self.splits is not None
        if part not in self._datasets:
            one_of("the part of the data", part, self.splits.sources)
            self._datasets[part] = self.samples(self.splits.sources[part], training=part == "train")
        return self._datasets[part]

    def samples(self, source: Source | Table, training: bool = False, until: float | None = None) -> Dataset:
        """Samples of a source or table, tokenised as in the recipe.

        until   keep only tokens up to this distance from the first token of each sample (default: all tokens)
        """
        if isinstance(source, Mapping):
            source = Memory(source)
        cut, asked = windowed_streams(self.tokens), self.objective.stream
        windows = {name: self._windows(one, training, len(source.sizes)) for name, one in cut.items()}
        return Dataset(source, self.tokens, windows=windows, labels=self.objective.labels, asked=asked, until=until)

    def _windows(self, tokens: Windowed, training: bool, pieces: int) -> Windows:
        lookahead, stride = self.objective.lookahead, tokens.stride_shape
        if training and tokens.random_windows:
            return tokens.make_windows(lookahead, stride, "tail" if stride else "loose")
        if not training or self.objective.unit != "tokens":  # each token once
            return tokens.make_windows(lookahead)
        # A window at every token gives as many windows per epoch as the text has tokens. Data in many pieces are read
        # piece by piece, and a training would not reach the last pieces. So their windows do not overlap.
        assert tokens.window_shape is not None
        stride = stride or (tokens.window_shape if pieces > 1 else (1,) * len(tokens.window_shape))
        # Without overlap, the rest of a text is a shorter window.
        whole = stride == tokens.window_shape and not lookahead
        return tokens.make_windows(lookahead, stride, "tail" if whole else "full")

    def parts(self) -> list[str]:
        """Names of the parts of the data."""
        return [] if self.splits is None else list(self.splits.sources)

    def network(self, seed: int | None = None) -> nn.Module:
        """Build the network; random weights depend on `seed` (default: train.seed)."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.recipe.train.seed if seed is None else seed)
            built: nn.Module = self.recipe.model.build(self.tokens, self.objective)
        if self.pretrained is not None:
            self.pretrained.fill(built, self.recipe, self.objective)
        return built

    def carried(self) -> dict[str, Carried]:
        """Tensors that the objective carries between steps, initialized with train.seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.recipe.train.seed)
            return self.objective.carried(self.tokens)

    def source(self, files: list[str] | list[Path]) -> Source:
        """Open other files of the same format; only their sizes are read."""
        return data_with_columns(self.recipe).read(files)

    def read(self, files: list[str] | list[Path]) -> Dataset:
        """Samples of other files of the same format."""
        return self.samples(self.source(files))
