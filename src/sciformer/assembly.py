"""Assemble a recipe: open the data, fit tokens and objective, build the network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .data.batch import Stream
from .data.columns import Array, Table
from .data.dataset import Dataset, Watch
from .data.profile import Comparison, ProfileBuilder, check_profile, describe_profile
from .data.source import Data, Memory, Source, Splits, pieces
from .data.windows import Windows
from .errors import UserError, is_out_of_memory, one_of
from .files.limits import free_memory
from .objectives.base import Carried, Objective
from .recipe import Recipe
from .tokens.base import Tokens
from .tokens.protocols import Textual, Windowed

if TYPE_CHECKING:
    from .training.finetune import Pretrained

Log = Callable[[str], None]
LARGE_NETWORK = 1 << 22  # rough number of weights (width squared times depth) of a large network


def log_nothing(text: str) -> None:
    """Discard a message."""


def data_with_columns(recipe: Recipe, streams: Collection[str] = ()) -> Data:
    """Data section of a recipe, with the columns for its tokens and objective.

    streams   streams whose columns are required (default: all)
    """
    tokens = [one for name, one in recipe.streams.items() if not streams or name in streams]
    names = {name for one in tokens for name in one.required_columns}
    wishes = {name for one in tokens for name in one.optional_columns}
    positive = {name for one in tokens for name in one.nonnegative_columns}
    truth = sorted({*recipe.objective.required_columns})
    found: Data = recipe.data.want(sorted(names), truth, sorted(wishes - names), sorted(positive))
    return found.with_tables(recipe.tables)


def choose_stream(recipe: Recipe) -> Objective:
    """Objective of a recipe, with its stream chosen.

    If one trunk reads several streams and `objective.stream` is not set, the first stream is chosen.
    """
    objective: Objective = recipe.objective
    if objective.stream or len(recipe.streams) == 1 or not recipe.model.joins_streams:
        return objective
    return objective.model_copy(update={"stream": next(iter(recipe.streams))})


def check_size(needed: int) -> None:
    """Refuse a network larger than the free memory, before it is built."""
    if needed > (free := free_memory()):
        hint = "Lower model.dim, model.depth or the vocabulary, or use a machine with more memory."
        raise UserError(f"the weights need {needed:,} bytes, but {free:,} are free", hint=hint, key="model.dim")


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Context manager: convert a failed allocation of weights to a `UserError`."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error) and "overflow" not in str(error):
            raise
        hint = "Lower model.dim, model.depth, tokens.context or the vocabulary."
        raise UserError("the weights do not fit into memory", hint=hint, key="model.dim") from error


def windowed_streams(tokens: Mapping[str, Tokens]) -> dict[str, Windowed]:
    """Windowed stream, as {name: tokens}; {} if samples are not cut into windows."""
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
    """Pretrained run with the initial weights of a new network."""
    profile: dict[str, Any] | None = None
    """Profile of the training data; None if unknown, as for an imported model."""
    profile_notes: Sequence[str] = ()
    """Notes on the columns of newly opened data."""
    data_facts: Mapping[str, str] = {}
    """Assumptions of the tokens on newly opened data, such as units, in words."""

    def __init__(self, recipe: Recipe, splits: Splits | None) -> None:
        self.recipe, self.splits = recipe, splits
        self.columns: dict[str, str] = {}  # names of columns in other files, {ours: theirs}
        self.reading = recipe  # recipe whose `data` section reads other files
        self.learned: dict[str, Any] = {}  # by the reader of the training files, see `Splits`
        self.tokens: dict[str, Tokens] = {name: tokens.fresh() for name, tokens in recipe.streams.items()}
        self.objective: Objective = choose_stream(recipe).fresh()
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
            message = f"the data have no training part, only {', '.join(splits.sources)}"
            raise UserError(message, hint="Name training files in data.files.", key="data")
        made = cls(recipe, splits)
        made.learned = dict(splits.learned)
        if state is not None:
            made.restore(state)
            return made
        made.pretrained = pretrained
        if pretrained is None:
            made._fit_tokens(splits.sources["train"])
        else:
            made._restore_tokens(pretrained.state)
        made._fit_objective()
        return made

    def _fit_objective(self) -> None:
        """Fit the objective on the training data, and check the validation and test parts.

        At least one piece of each part is loaded. The loaded training samples give the profile of the training data.
        The loaded samples of the other parts are compared with this profile.
        """
        assert self.splits is not None
        if self.objective.stream:  # objectives with a stream of their own would ignore another name
            one_of("the stream of the objective", self.objective.stream, self.tokens, key="objective.stream")
        builder = ProfileBuilder(self.tokens.values(), self.objective.required_columns)
        old = self.pretrained.state.get("profile") if self.pretrained is not None else None
        earlier = Comparison(old, self.tokens.values(), accept=True) if old else None

        def watch(table: Table, streams: Mapping[str, Stream]) -> dict[str, Array]:
            return {**builder(table, streams), **(earlier(table, streams) if earlier else {})}

        with self._watched("train", watch) as train:
            self.objective.fit(train)
        self.profile = builder.finish(sum(train.source.sizes))
        found = [tokens.describe_data(self.profile) for tokens in self.tokens.values()]
        self.data_facts = {name: words for one in found for name, words in one.facts.items()}
        self.profile_notes = describe_profile(self.profile) + [note for one in found for note in one.notes]
        self.profile_notes += (
            [f"{note} The model was pretrained on other data." for note in earlier.notes] if earlier else []
        )
        for part in self.splits.sources:
            if part != "train":
                compared = Comparison(self.profile, self.tokens.values(), accept=True)
                with self._watched(part, compared) as dataset:
                    self.objective.validate_split(part, dataset)
                self.profile_notes += [f"In the part {part}: {note}" for note in compared.notes]

    @contextmanager
    def _watched(self, part: str, watch: Watch) -> Iterator[Dataset]:
        """Context manager for the dataset of a part; calls `watch` with each loaded piece.

        If no piece was loaded in the context, the first piece is loaded at the end of the context.
        """
        assert self.splits is not None
        source = self.splits.sources[part]
        dataset = self._datasets[part] = self.samples(source, training=part == "train", watch=watch)
        yield dataset
        if not dataset.kept:
            dataset.load_first()
        dataset.watch = None

    def _fit_tokens(self, source: Source) -> None:
        """Fit the tokens of each stream; streams with a common vocabulary are fitted once."""
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
        """Build an assembly from its stored state, without opening the data."""
        made = cls(recipe, None)
        made.restore(state)
        return made

    def state(self) -> dict[str, Any]:
        """Fitted state of tokens and objective, as plain JSON."""
        return {
            "tokens": {name: tokens.state for name, tokens in self.tokens.items()},
            "objective": self.objective.state,
            **({"data": self.learned} if self.learned else {}),
            **({} if self.profile is None else {"profile": self.profile}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the fitted state of tokens and objective."""
        self._restore_tokens(state)
        self.profile = state.get("profile")
        if self.profile is not None:
            check_profile(self.profile)
        self.learned = dict(state.get("data", {}))
        self.objective.restore(state["objective"])

    def _restore_tokens(self, state: Mapping[str, Any]) -> None:
        for name, tokens in self.tokens.items():
            one_of("a stream of the stored state", name, state["tokens"])
            tokens.restore(state["tokens"][name])

    def dataset(self, part: str) -> Dataset:
        """Samples of a part of the data. Only training windows may overlap."""
        assert self.splits is not None
        if part not in self._datasets:
            one_of("the part of the data", part, self.splits.sources)
            self._datasets[part] = self.samples(self.splits.sources[part], training=part == "train")
        return self._datasets[part]

    def compare(self, accept_drift: bool = False, scores: bool = False) -> Comparison | None:
        """Function for the comparison of new data with the training data.

        Pass it as `watch` to `samples`. It is None if the training data have no profile.
        """
        return None if self.profile is None else Comparison(self.profile, self.tokens.values(), accept_drift, scores)

    def samples(
        self, source: Source | Table, training: bool = False, until: float | None = None, watch: Watch | None = None
    ) -> Dataset:
        """Samples of a source or table, tokenised as in the recipe.

        until   keep only tokens up to this distance from the first token of each sample
        watch   function called with each loaded piece (see `Dataset`)
        """
        if isinstance(source, Mapping):
            source = Memory(source)
        cut, asked = windowed_streams(self.tokens), self.objective.stream
        windows = {name: self._windows(one, training, len(source.sizes)) for name, one in cut.items()}
        labels = self.objective.labels
        return Dataset(
            source,
            self.tokens,
            windows=windows,
            labels=labels,
            asked=asked,
            until=until,
            watch=watch,
            double=self.recipe.train.double,
        )

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

    def counts(self) -> dict[str, dict[str, int]]:
        """Number of samples of each part; if samples are cut, also the number of windows."""
        datasets = {part: self.dataset(part) for part in self.parts()}
        windows = {part: len(dataset) for part, dataset in datasets.items() if len(dataset) != dataset.samples}
        found = {"samples": {part: dataset.samples for part, dataset in datasets.items()}}
        return {**found, "windows": windows} if windows else found

    def parts(self) -> list[str]:
        """Names of the parts of the data."""
        return [] if self.splits is None else list(self.splits.sources)

    def network(self, seed: int | None = None) -> nn.Module:
        """Build the network, with random weights or the weights of a pretrained run.

        A large network is first built on the `meta` device, to compare its size with the free memory.

        seed   seed of the random weights (default: train.seed)
        """
        model = self.recipe.model
        with torch.random.fork_rng(devices=[]), _memory_errors():
            rough = getattr(model, "dim", 0) ** 2 * getattr(model, "depth", 1)
            if rough > LARGE_NETWORK and torch.get_default_device().type != "meta":
                with torch.device("meta"):
                    shapes = model.build(self.tokens, self.objective)
                check_size(sum(weight.nbytes for weight in shapes.state_dict().values()))
            torch.manual_seed(self.recipe.train.seed if seed is None else seed)
            built: nn.Module = model.build(self.tokens, self.objective)
        if self.pretrained is not None:
            self.pretrained.fill(built, self.recipe, self.objective)
        return built.double() if self.recipe.train.double else built

    def carried(self) -> dict[str, Carried]:
        """Initial tensors of the state of the objective, drawn with train.seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.recipe.train.seed)
            return self.objective.carried(self.tokens)

    def source(
        self,
        files: Sequence[str | Path],
        aligned: bool = False,
        empty: bool = False,
        streams: Collection[str] = (),
    ) -> Source:
        """Open files in the format of the training data; only their sizes are read.

        aligned   keep all samples, also empty or unselected samples, to align results with the input rows
        empty     keep empty samples
        streams   streams whose columns are required (default: all)
        """
        reader = data_with_columns(self.reading, streams).with_columns(self.columns)
        reader.state["learned"] = self.learned
        try:
            return reader.aligned(files) if aligned else reader.with_empty(files) if empty else reader.read(files)
        except UserError as error:
            section, _, name = (error.key or "").partition(".")
            if section != reader.section or name not in reader.column_keys:
                raise
            hint = error.hint.replace(f"--data.{name} NAME", "").removesuffix("Give its name: ")
            advice = f"Name the column in these files: --map {name}=COLUMN"
            raise error.with_fields(hint=f"{hint} {advice}".strip()) from error

    def read(self, files: list[str] | list[Path], watch: Watch | None = None) -> Dataset:
        """Read samples from files in the format of the training data."""
        return self.samples(self.source(files), watch=watch)
