"""Runs: train a recipe in a run folder, open the run, evaluate and use its model."""

from __future__ import annotations

import json
import socket
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .assembly import Assembly, log_nothing
from .data.batch import ModelInputs, Stream
from .data.columns import Array, Samples, Table
from .data.dataset import Dataset, Watch
from .data.prepare import prepare
from .data.profile import Comparison
from .data.random import SampleRandom
from .data.source import Memory, Source, are_files
from .errors import Stopped, UserError
from .evaluation.evaluate import Evaluation, evaluate, on_device, predict
from .evaluation.predictions import flatten_columns
from .files.formats.frames import has_own_type, read_frame, to_frame
from .files.in_memory import MemoryFile, is_in_memory
from .files.seal import Damaged
from .metrics import AtLeast
from .objectives.base import Objective, Step
from .progress import duration
from .recipe import Recipe, plugin
from .training import checkpoint
from .training.distributed import Ranks, find_device, place
from .training.engine import Engine
from .training.finetune import load_pretrained
from .training.folder import Folder
from .training.progress import ProgressReporter
from .training.provenance import announce, describe_run
from .training.resume import absolute_paths, check_same_data, check_same_recipe, note_versions
from .training.weights import load_into, load_weights

SHARED_SECONDS = 60.0  # for a network file system to show a new file to another machine
MAX_NOTE_CHARACTERS = 2000
EMPTY = "without entries"  # column of the samples that are predicted as NaN


class Run:
    """A run folder: `Run("runs/mine")`. Files are read on first use.

    columns   names of columns in new files: {name in the training data: name in the new files}
    reading   keys of the `data` section for new files: {"data.errors": "replace"}
    """

    def __init__(
        self,
        path: str | Path,
        plugins: Sequence[plugin.Plugin] = (),
        accept_changes: bool = False,
        columns: Mapping[str, str] | None = None,
        reading: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = Folder(path)
        self.path, self.accept_changes, self.columns = self.folder.path, accept_changes, dict(columns or {})
        self.reading = dict(reading or {})
        self.tables: Mapping[str, MemoryFile] = {}  # data of the run, if they are in memory
        if not self.folder.recipe.exists() and not self.folder.files.sealed:
            message = f"{self.path} is not a run folder"
            raise UserError(message, hint="Train a run: sciformer train RECIPE --run FOLDER", file=self.path)
        if not self.folder.files.sealed:
            text = f"{self.path} was made before runs had a manifest, so that damage of its files is not noticed"
            warnings.warn(f"{text}; `sciformer train` of this run or `calibrate` writes one", stacklevel=2)
        self.about: dict[str, Any] = self.folder.read_json("run.json")
        plugin.check_plugins(self.about.get("plugins", []), list(plugins), accepted=accept_changes)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def _repr_html_(self) -> str:
        from .interface.notebook import run_as_html

        return run_as_html(self)

    @cached_property
    def recipe(self) -> Recipe:
        """Recipe of the run, with the values of all keys."""
        return replace(Recipe.load(self.folder.path), tables=self.tables)

    @property
    def records(self) -> list[dict[str, Any]]:
        """Records of the training log, `metrics.jsonl`."""
        return self.folder.records()

    @cached_property
    def assembly(self) -> Assembly:
        """Tokens and objective, with their fitted state and calibration but without data."""
        made = Assembly.from_state(self.recipe, self.folder.read_json("model/statistics.json"))
        made.objective.state.update(self.calibration.get("state", {}))
        made.columns = self.columns
        if self.reading:
            made.reading = self._recipe_for_new_files()
        return made

    def _recipe_for_new_files(self) -> Recipe:
        known = [f"data.{key}" for key in self.recipe.data.reading_keys]
        for key in self.reading:
            if key not in known:
                others = f"Keys that can be changed for new files: {', '.join(known)}. " if known else ""
                hint = f"{others}Columns with other names: --map OURS=THEIRS"
                message = f"{key} cannot be changed, because a run keeps the recipe of its training"
                raise UserError(message, hint=hint, key=key)
        return Recipe.load(self.folder.path, self.reading, where="for new files")

    @property
    def calibration(self) -> dict[str, Any]:
        """Result of `sciformer calibrate`; empty if the run is not calibrated."""
        name = "model/calibration.json"
        return self.folder.read_json(name) if self.folder.files.has(name) else {}

    @cached_property
    def step(self) -> Step:
        """Best model with its objective, on its device and in evaluation mode."""
        weights, self.kept = load_weights(self.folder.model)
        step = Step(self.assembly.network(), self.assembly.objective)
        load_into(step.model, weights, place, f"the model in {self.folder.model}", self.folder.model)
        return step.to(self.device).eval()

    @property
    def model(self) -> torch.nn.Module:
        """The best model of the run, on its device."""
        model: torch.nn.Module = self.step.model
        return model

    @cached_property
    def device(self) -> torch.device:
        """Device of the training, or the CPU if it is not available here."""
        try:
            return find_device(self.recipe.train.device)
        except UserError:
            return torch.device("cpu")

    @property
    def scores(self) -> dict[str, float]:
        """Scores of the best model on the validation part."""
        kept = load_weights(self.folder.model)[1]
        bounds = kept.get("bounds", ())
        return {name: AtLeast(value) if name in bounds else value for name, value in kept.get("scores", {}).items()}

    def data(self) -> Assembly:
        """Open the data of the run again, with the fitted state; nothing is written.

        Changed data are refused: the split would differ, and training samples could be in the test part.
        """
        if "imported" in self.about and not self.about["data"]:
            message = f"the run {self.path} has no data, because it was imported"
            hint = "Name files to evaluate, or import it again with --data.files FILE."
            raise UserError(message, hint=hint, file=self.path)
        _check_tables(self.about.get("data", {}), self.recipe, self.path)
        opened = Assembly.open(self.recipe, self.assembly.state(), write=False)
        assert opened.splits is not None
        advice = "Name files to evaluate, or open the run with Run(..., accept_changes=True)."
        check_same_data(self.about.get("data", {}), opened.splits.fingerprint, self.accept_changes, log_nothing, advice)
        return opened

    def evaluate(
        self,
        part: str = "test",
        files: Sequence[str | Path] = (),
        limit: int | None = None,
        accept_drift: bool = False,
        *,
        data: Any = None,
    ) -> Evaluation:
        """Evaluate on a part of the data, on files of the same format, or in memory.

        data           samples in memory, with their labels or targets; all samples are evaluated
        accept_drift   evaluate even if the scale of a column differs from the training data
        """
        if data is not None and files:
            raise UserError("files and data= are both given", hint="Give either files or data=.", key="data")
        new = [MemoryFile(data)] if data is not None else files
        watch = self.assembly.compare(accept_drift) if new else None
        dataset = self.samples(part, new, watch)
        found = evaluate(self.step, self.assembly, dataset, device=self.device, limit=limit)
        if limit is None:
            objective = self.assembly.objective
            found.scores.update(objective.generation_metrics(self.step, self.assembly, dataset, self.device))
        if watch is not None:
            found = replace(found, notes=(*found.notes, *watch.notes, *watch.describe_overlap()))
        return found

    def samples(self, part: str = "test", files: Sequence[str | Path] = (), watch: Comparison | None = None) -> Dataset:
        """Samples of files, or of a part of the run's data (default: test, else valid)."""
        if files:
            return self.assembly.read([file if isinstance(file, MemoryFile) else Path(file) for file in files], watch)
        opened = self.data()
        parts = opened.parts()
        if part not in parts and part == "test":
            part = "valid" if "valid" in parts else "train"
        return opened.dataset(part)

    def predict(
        self,
        what: Any,
        accept_drift: bool = False,
        watch: Watch | None = None,
        *,
        logits: bool = False,
        intervals: bool = False,
    ) -> Any:
        """Predict files or samples in memory; return predictions and sample columns.

        Classification gives probabilities and classes; regression gives values and standard deviations. Empty samples
        have NaN. The column `drift` is the fraction of the values of a sample that lie outside the range of the
        training data, for the data column with the largest fraction.

        For a data frame or table (pandas, polars, pyarrow, astropy), the result is a table of the same package. It
        has a row for each sample, the index of pandas, and a column for each number: `score_CLASS`, `class`,
        `mean_TARGET`, ... Otherwise the result is a mapping of NumPy arrays, in which `probabilities` is an array
        (n, classes).

        what           files, a table (frame or mapping of columns) read like a file, an array, or a list of texts
        accept_drift   predict even if the scale of a column differs from the training data
        watch          function that compares the samples and may add columns, see `Dataset` (default: a comparison with
                       the training data, whose notes become warnings)
        logits         also return the logits of the classes
        intervals      also return the central intervals of a regression: `low_68`, `high_68`, `low_95` and `high_95`
        """
        self.assembly.objective.check_predicts()
        compared = self.assembly.compare(accept_drift, scores=True) if watch is None else None
        source = self.source(what, empty=True)
        dataset = self.assembly.samples(source, watch=partial(self._mark_empty, watch or compared))
        most = max(64, min(512, self.recipe.train.batch))
        found = predict(self.step, self.assembly, dataset, self.device, most, logits)
        answers: dict[str, Any] = dict(found.outputs)
        empty = found.samples.pop(EMPTY, np.zeros(0, bool))
        for values in answers.values():
            if len(values) == len(empty) and values.dtype.kind == "f":
                values[empty] = np.nan
        if "probabilities" in answers:
            names = np.asarray(self.classes)
            likely = answers["probabilities"]
            answers["class"] = np.where(np.isnan(likely).any(1), "", names[likely.argmax(1)])
        if intervals:
            central = getattr(self.objective, "intervals", None)
            if central is None:
                kind = self.objective.kind
                message = f"predictions of `objective.kind: {kind}` have no intervals"
                raise UserError(message, hint="Predict without intervals.", key="objective.kind")
            answers |= central(found.outputs)
        for note in [] if compared is None else compared.notes:
            warnings.warn(note, stacklevel=2)
        answers = {**found.samples, **answers}
        if not has_own_type(what):
            return answers
        columns = {name: np.asarray(column) for name, column in answers.items()}
        return to_frame(flatten_columns(columns, self.assembly.objective), what, getattr(source, "rows", None))

    def inputs(self, what: Any) -> ModelInputs:
        """Prepare files or samples in memory as inputs of `model`, on its device.

        inputs = run.inputs(table)
        vectors = run.model.encode(inputs.stream)                 hidden states, with gradients
        answers = run.objective.predict(run.model, inputs)        {"probabilities": (B, classes)}, ...
        """
        dataset = self.assembly.samples(self.source(what))
        ids = np.arange(len(dataset))
        rng, objective = SampleRandom(0, -1, ids), self.objective
        batch = prepare(dataset.batch(ids), self.assembly.tokens, objective, rng, training=False, counted=False)
        return on_device(batch, self.device, {name: one.initial for name, one in self.assembly.carried().items()})

    @property
    def objective(self) -> Objective:
        """Objective of the run with its fitted state, for example the class names."""
        return self.assembly.objective

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of the probabilities; [] without classes."""
        return [str(name) for name in getattr(self.assembly.objective, "classes", [])]

    def _mark_empty(self, watch: Watch | None, table: Table, streams: Mapping[str, Stream]) -> dict[str, Array]:
        """Columns returned by `watch`, and a mask of empty samples."""
        columns = {} if watch is None else watch(table, streams)
        empty = self.recipe.data.empty_rows(table)
        return columns if empty is None else {**columns, EMPTY: empty}

    def translate(self, what: Any, *, beam: int | None = None, penalty: float | None = None) -> list[str]:
        """Translate texts, or write captions for samples such as images, in order.

        what      list of texts; for sources that are not text: files, an array or a table
        beam      number of hypotheses (default: `objective.beam` of the recipe)
        penalty   length penalty (default: `objective.penalty` of the recipe)
        """
        from .generation.translate import check_list, translate

        check_list(what)
        return translate(self, what, beam=beam, penalty=penalty)

    def generate(self, prompts: Any = (None,), number: int = 1, **options: Any) -> Any:
        """Generate samples such as pictures, or texts.

        Samples are an array (prompts, number, ...).

        prompts   list of texts; a table for conditions that are not text; None or an empty text is no condition
        number    samples of each prompt
        options   seed, guidance, steps, sampling, ... of `generation.samples.generate_samples`; for text, the result is
                  a list of texts, and the options are those of `generation.generate.generate_many`
        """
        from .generation.samples import generate_samples, makes_samples

        if makes_samples(self):
            return generate_samples(self, prompts, number, **options).values
        from .generation.generate import generate_many

        return generate_many(self, [prompt for prompt in prompts for _ in range(number)], **options)

    def source(self, what: Any, aligned: bool = False, empty: bool = False, streams: Collection[str] = ()) -> Source:
        """Source of samples from files, from memory, or from an open source.

        Strings in a list are names of files. If the run reads texts, the strings are texts, unless a file with one of
        the names exists, or all strings look like names of files.

        aligned   keep all samples, also empty or unselected samples, to align results with the input rows
        empty     keep empty samples
        streams   streams whose columns are required (default: all)
        """
        if hasattr(what, "load") and hasattr(what, "sizes"):
            opened: Source = what
            return opened
        if isinstance(what, Samples):
            return Memory(what)
        files = [what] if isinstance(what, (str, Path)) else what
        reader = self.recipe.data.table_reader()
        if isinstance(files, (list, tuple)) and files and all(isinstance(file, (str, Path)) for file in files):
            if not reader.reads_texts or are_files(files):
                return self.assembly.source(files, aligned, empty, streams)
            what = files
        if not reader.reads_tables:
            return Memory(read_frame(what, "the table").data)
        table = what if isinstance(what, MemoryFile) else MemoryFile(what)
        table.check_rows()
        return self.assembly.source([table], aligned, empty, streams)

    def report(self) -> Path:
        """Write report.html; return its path."""
        from .inspection.report.report import write_report

        return write_report(self)


def train(
    recipe: Recipe | str | Path,
    run: str | Path | None = None,
    *,
    data: Any = None,
    valid: Any = None,
    test: Any = None,
    parts: str = "",
    fresh: bool = False,
    accept_changes: bool = False,
    plugins: Sequence[plugin.Plugin] = (),
    show: bool = True,
    report: bool = True,
    stop_after: int | None = None,
) -> Run:
    """Train a recipe in a run folder, or resume from its last checkpoint.

    recipe          name of a shipped recipe, path of a recipe or run, or a `Recipe`
    data            samples in memory: a data frame, a mapping of names to columns, an array or a list (default: the
                    files of the recipe)
    valid           validation samples in memory (default: a share of `data`, by `data.split`)
    test            test samples in memory (default: a share of `data`, by `data.split`)
    parts           column of `data` with the part of each row: train, valid or test (default: none)
    fresh           start again: remove the files of an earlier training
    accept_changes  resume even if the recipe, the data or a plugin changed
    stop_after      step after which the training saves a checkpoint and stops (default: train to the end)
    """
    recipe = recipe if isinstance(recipe, Recipe) else Recipe.load(recipe)
    if data is not None:
        recipe = recipe.with_tables(data, valid, test, parts)
    elif valid is not None or test is not None or parts:
        hint = "Give the training samples with data=."
        raise UserError("valid=, test= and parts= belong to a table in memory", hint=hint, key="data")
    recipe = absolute_paths(recipe)
    device = find_device(recipe.train.device)
    folder = Folder(Path("runs") / (Path(recipe.name).stem or "run") if run is None else run)
    with ExitStack() as held:
        try:
            with Ranks(device) as ranks:
                teller = ProgressReporter(show and ranks.first)
                ranks.lead(lambda: _claim(folder, fresh, held))
                _check_shared(folder, ranks)
                return _train(recipe, folder, ranks, teller, accept_changes, plugins, report, stop_after)
        except Exception as error:
            if folder.signature and folder.is_run and not isinstance(error, Stopped):  # `Stopped` is noted already
                with suppress(UserError):  # the first error is the one to report
                    step = max(checkpoint.steps(folder.checkpoints), default=0)
                    folder.note_stop(step, error=(str(error) or type(error).__name__)[:MAX_NOTE_CHARACTERS])
            raise


def _train(
    recipe: Recipe,
    folder: Folder,
    ranks: Ranks,
    teller: ProgressReporter,
    accept_changes: bool,
    plugins: Sequence[plugin.Plugin],
    report: bool,
    stop_after: int | None,
) -> Run:
    began = time.monotonic()
    # The first rank may simulate or download data; the other ranks then read the result.
    old, assembly = ranks.in_turn(lambda: _open(recipe, folder, teller, accept_changes, plugins))
    recipe = assembly.recipe
    _check_ranks(assembly, ranks)
    engine = Engine(assembly, folder, ranks, teller)
    saved = _last_checkpoint(folder, ranks, teller)
    if saved is not None:
        engine.restore(saved)
    about = {**describe_run(assembly, engine, plugins), "seconds": old.get("seconds", 0.0)}
    about["resumed"] = old.get("resumed", 0) + (saved is not None and not engine.complete)
    note_versions(old, about, teller.log)
    about |= {
        "last_checkpoint": engine.number,
        "recipe": recipe.name,
        "began": old.get("began") or time.strftime("%Y-%m-%d %H:%M"),
    }
    if recipe.train.init_from:
        about["init_from"] = old.get("init_from") or (assembly.pretrained and assembly.pretrained.about)

    def write() -> None:
        texts: dict[str, str | None] = {"run.json": json.dumps(about, indent=1), **_texts(assembly)}
        if not engine.complete:
            texts["model/calibration.json"] = None  # it belongs to the old model
        folder.seal(texts, anew=saved is None)
        folder.rewind(engine.number or -1)

    ranks.lead(write)
    intact, before = engine.repair(accept_changes), engine.complete
    if before:
        teller.log(f"already complete: {engine.number} steps in {folder.path}")
    else:
        announce(recipe, assembly, engine, teller, saved is not None)
        try:
            engine.run(stop_after)
        finally:
            engine.close()
            if ranks.first:
                about["seconds"] += time.monotonic() - began
                about["last_checkpoint"] = max(checkpoint.steps(folder.checkpoints), default=0)
                try:
                    folder.seal({"run.json": json.dumps(about, indent=1)})
                except UserError as error:  # logged, because another error may be on its way
                    teller.log(f"the elapsed time was not saved: {error}")
    if engine.complete:  # also if the run was killed after its last step
        engine.average_checkpoints()
    done = Run(folder.path, plugins, accept_changes)
    done.tables = recipe.tables
    if engine.complete and ranks.first:
        if report and not (before and intact and folder.report.exists() and folder.scores()):
            done.report()
        folder.seal({"run.json": json.dumps({**about, "complete": True}, indent=1)})
        teller.log(f"done in {duration(time.monotonic() - began)}: {folder.path}")
    return done


def _check_tables(data: Mapping[str, str], recipe: Recipe, path: Path) -> None:
    """Refuse a run trained on tables in memory if the tables are not given again."""
    if is_in_memory(data) and not recipe.tables:
        message = f"the data of the run {path} were a table in memory, which is not stored"
        hint = "Pass samples to evaluate: run.evaluate(data=table). Or train again with the same table, data=table; "
        raise UserError(message, hint=f"{hint}an incomplete training is resumed.", key="data", file=path)


def _claim(folder: Folder, fresh: bool, held: ExitStack) -> None:
    """Create and lock the run folder; refuse the folder of an imported model."""
    begun = folder.recipe.exists() and folder.is_run
    if begun and "imported" in (folder.peek("run.json") if fresh else folder.read_json("run.json")):
        message = f"{folder.path} contains an imported model, so it cannot be trained in place"
        hint = f"Fine-tune it in another folder: sciformer finetune RECIPE --from {folder.path} --run FOLDER"
        raise UserError(message, hint=hint, file=folder.path)
    held.enter_context(folder.claim())
    folder.forget_stop()
    if fresh:
        folder.clear()


def _check_ranks(assembly: Assembly, ranks: Ranks) -> None:
    """Check that all processes of a training have the same tables in memory."""
    assert assembly.splits is not None
    found = ranks.gather(assembly.splits.fingerprint) if assembly.recipe.tables else []
    if any(one != found[0] for one in found):
        hint = "Every process must make the same table: use the same files, order and seed."
        raise UserError("the tables in memory differ between the processes of the training", hint=hint, key="data")


def _check_shared(folder: Folder, ranks: Ranks) -> None:
    """Refuse a run folder invisible to ranks on other machines."""
    signature = ranks.agree(folder.signature)
    seen = ranks.first or folder.is_locked_with(signature, SHARED_SECONDS)
    blind = [name for name in ranks.gather("" if seen else f"rank {ranks.rank} on {socket.gethostname()}") if name]
    if blind:
        message = f"the run folder {folder.path} cannot be seen by {', '.join(blind[:4])}"
        hint = "Choose a folder on a file system that all machines share, with --run."
        raise UserError(message, hint=hint, file=folder.path)


def _open(
    recipe: Recipe, folder: Folder, teller: ProgressReporter, accept_changes: bool, plugins: Sequence[plugin.Plugin]
) -> tuple[dict[str, Any], Assembly]:
    """Open the data of a training; if it is resumed, also read run.json.

    A resumed run is refused if its recipe, data or plugins have changed.

    A damaged recipe.yaml or statistics.json is written again if its new contents have the hash in the manifest.
    """
    recipe, pretrained = load_pretrained(recipe, folder)
    begun = bool(checkpoint.steps(folder.checkpoints))  # before the first checkpoint, changes are allowed
    old: dict[str, Any] = folder.read_json("run.json") if begun else {}
    state: dict[str, Any] | None = None
    damaged: dict[str, Damaged] = {}
    if not begun and (step := folder.peek("run.json").get("last_checkpoint")):
        message = f"the checkpoints of {folder.path} are missing (the last checkpoint was of step {step}); a training"
        message += " would start over and replace the model"
        hint = "Restore them, train in another folder with --run, or start over with --fresh."
        raise UserError(message, hint=hint, file=folder.path)
    if begun:
        plugin.check_plugins(old.get("plugins", []), list(plugins), accepted=accept_changes)
        try:
            _check_tables(old.get("data", {}), recipe, folder.path)
            check_same_recipe(Recipe.load(folder.path), recipe, accept_changes, teller.log)
        except Damaged as error:
            damaged["recipe.yaml"] = error
        try:
            state = folder.read_json("model/statistics.json")
        except Damaged as error:
            damaged["model/statistics.json"] = error
    assembly = Assembly.open(recipe, state, teller.log, pretrained=pretrained)
    assert assembly.splits is not None
    texts = _texts(assembly)
    for name, fault in damaged.items():
        if not folder.files.fits(name, texts[name].encode()):
            raise fault
        teller.log(f"{fault.message}; it is written again, with the same contents")
    if begun:
        check_same_data(old.get("data", {}), assembly.splits.fingerprint, accept_changes, teller.log)
    return old, assembly


def _texts(assembly: Assembly) -> dict[str, str]:
    """Contents of recipe.yaml and statistics.json: {file name: text}."""
    return {"recipe.yaml": assembly.recipe.to_yaml(), "model/statistics.json": json.dumps(assembly.state())}


def _last_checkpoint(folder: Folder, ranks: Ranks, teller: ProgressReporter) -> checkpoint.Checkpoint | None:
    """Load the newest intact checkpoint, the same on all ranks."""
    found: list[checkpoint.Checkpoint | None] = [None]
    ranks.lead(lambda: found.append(checkpoint.load(folder.checkpoints, log=teller.log)))
    saved = found[-1]
    step = ranks.agree(saved and saved.step)
    if ranks.first or step is None:
        return saved
    return checkpoint.load(folder.checkpoints, log=teller.log, step=step)
