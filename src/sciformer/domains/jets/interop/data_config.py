"""Import of data configuration files of weaver (hqucms/weaver-core) as recipes.

    made = import_data("JetClass_full.yaml")        writes JetClass_full-recipe.yaml
    made.notes                                      untranslated options

Formulas are parsed as syntax trees and rewritten in the syntax of recipes; nothing is evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple, cast

import yaml

from ....data.readers.formula import (
    BINARY_OPERATIONS,
    COMPARISONS,
    CONSTANTS,
    FUNCTION_ALIASES,
    LIST_FUNCTIONS,
    Formula,
)
from ....errors import UserError
from ....files.packages import reading
from ....recipe.page import Found, check_new_recipe, write_page
from ..features import FEATURE_SETS, PLANE_COLUMNS, VECTOR_COLUMNS, Feature

MAX_BYTES = 1 << 20  # bytes of a data file
KNOWN_KEYS = {
    *("treename", "branch_magic", "file_magic", "selection", "test_time_selection", "preprocess", "new_variables"),
    *("inputs", "labels", "observers", "monitor_variables", "weights", "bucketing"),
}
KNOWN_INNER_KEYS = {
    "preprocess": {"method", "params", "data_fraction"},
    "labels": {"type", "value"},
    "weights": {
        *("use_precomputed_weights", "weight_branches", "reweight_method", "reweight_vars", "reweight_basewgt"),
        *("reweight_basewgts", "reweight_classes", "class_weights", "reweight_threshold", "reweight_hists"),
        "reweight_discard_under_overflow",
    },
}
KNOWN_INPUT_KEYS = {"length", "vars", "pad_mode", "pad_value"}
INPUT_ROLES = ("points", "features", "vectors", "mask")
FeatureScaling = dict[str, Any]  # centre, scale, clip
FILE_KEYS = ("data.files", "data.valid", "data.test")
REASONS = {
    "data": {
        "tree": "treename",
        "select": "selection",
        "select_new": "test_time_selection: applied to files given to predict",
        "new": "new_variables used by the recipe",
        "classes": "labels: column or formula of each class, 1 for its jets",
        "label": "labels",
        "observers": "columns copied to the predictions",
        "weight": "weights",
        "reweight": "weights",
    },
    "tokens": {
        "vector": "four-momentum of a particle",
        "plane": "angles of a particle to the jet axis",
        "features": "input features of a particle",
        "max_tokens": "particles per jet, the highest pT first",
    },
    "objective": {
        "weight": "weight of each jet in the loss",
        "balance": "equal total weight of all classes, as in weaver",
    },
}


class ImportedData(NamedTuple):
    """Path of the written recipe, and notes on options without a translation."""

    path: Path
    notes: list[str]


def import_data(
    source: str | Path, out: str | Path | None = None, changes: Mapping[str, Any] | None = None, overwrite: bool = False
) -> ImportedData:
    """Write a recipe with the `data:` and `tokens:` sections of a weaver data file.

    out        a .yaml file (default: SOURCE-recipe.yaml in the current folder)
    changes    files of the data: {"data.files": [...], "data.valid": [...], "data.test": [...]}
    overwrite  replace an existing recipe
    """
    source = Path(source).expanduser()
    path = Path(out).expanduser() if out is not None else Path(f"{source.stem}-recipe.yaml")
    check_new_recipe(path, overwrite)
    options = read_data_config(source)
    try:
        with reading(source, "weaver data"):
            made = translate_options(options)
    except UserError as error:
        raise error.with_fields(file=source) from error
    for key in (key for key in changes or {} if key not in FILE_KEYS):
        message = f"--{key} cannot be changed during the import, only --data.files, --data.valid and --data.test"
        raise UserError(message, hint="Change it in the written recipe.", key=key)
    files = {key: [str(one) for one in as_list(value)] for key, value in (changes or {}).items()}
    write_page(path, *recipe_page(made, source.name, files))
    return ImportedData(path, made.notes)


def read_data_config(path: Path) -> dict[str, Any]:
    """Read the options of a data file, without empty keys."""
    if not path.is_file():
        raise UserError(f"{path} {'is a folder, not a data file' if path.is_dir() else 'does not exist'}", file=path)
    if (size := path.stat().st_size) > MAX_BYTES:
        raise UserError(f"{path} has {size:,} bytes, more than the maximum of {MAX_BYTES:,}", file=path)
    try:
        options = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark, message = getattr(error, "problem_mark", None), " ".join(str(error).split())[:200]
        line = mark.line + 1 if mark else None
        raise UserError(f"{path} is not valid YAML: {message}", file=path, line=line) from error
    if not isinstance(options, dict) or not {"inputs", "labels"} <= set(options):
        hint = "A recipe of Sciformer needs no import." if isinstance(options, dict) and "tokens" in options else ""
        raise UserError(f"{path} is not a weaver data file: `inputs` or `labels` is missing", hint=hint, file=path)
    return {str(key): value for key, value in options.items() if value is not None}


def translate_options(options: Mapping[str, Any]) -> Translation:
    """Translate the options of a data file into the sections of a recipe."""
    return Translation(options).translate()


def recipe_page(made: Translation, name: str, files: Mapping[str, list[str]]) -> tuple[list[str], list[Found]]:
    """Header comment of the recipe, and its keys with a reason for each."""
    head = [
        f"Data of the weaver file {name}, written by `sciformer import`.",
        *(["", "Not translated:", *(f"  {note}" for note in made.notes)] if made.notes else []),
        "",
        *made.asides,
    ]
    background = next((name for name in made.data.get("classes", {}) if name.lower() == "qcd"), "")

    def given(section: str, values: Mapping[str, Any]) -> list[Found]:
        return [Found(f"{section}.{key}", values.get(key) or None, why) for key, why in REASONS[section].items()]

    found = [
        Found("base", "jets/part", "source of model and training; jets/particlenet or jets/pfn also work"),
        Found("about.title", f"Particle Transformer on the data of {name}"),
        Found("data.kind", "events"),
        Found("data.files", files.get("data.files", []), "names or globs; CLASS:NAME where no column has the class"),
        *(Found(key, files.get(key)) for key in FILE_KEYS[1:]),
        *given("data", made.data),
        Found("tokens.kind", "particles"),
        *given("tokens", made.tokens),
        Found("objective.kind", "discriminate"),
        Found("objective.background", background, "class to reject, if any"),
        Found("objective.efficiencies", {}, "signal efficiencies, {NAME: 0.99} (default: 0.5)"),
        *given("objective", made.objective),
    ]
    return head, found


class Translation:
    """Translation of a data file into the sections of a recipe.

    data, tokens, objective   keys of the sections
    notes                     options that could not be translated
    asides                    remarks for the header of the recipe
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.data: dict[str, Any] = {}
        self.tokens: dict[str, Any] = {}
        self.objective: dict[str, Any] = {}
        self.notes: list[str] = []
        self.asides: list[str] = []
        self.magic = {old: str(now) for old, now in as_mapping(options.get("branch_magic"), "branch_magic").items()}
        self.new = as_mapping(options.get("new_variables"), "new_variables")
        self.wanted: dict[str, str] = {}
        self.covered: set[str] = set()  # new variables that the recipe expresses in another form

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def translate(self) -> Translation:
        self._inputs()
        for key in self.options:
            if key not in KNOWN_KEYS:
                self.note(f"`{key}`: unknown key of weaver")
        self._unknown_inner_keys()
        if "treename" in self.options:
            self.data["tree"] = str(self.options["treename"])
        self._selection()
        self._labels()
        observers = dict.fromkeys(map(str, as_list(self.options.get("observers"))))
        self.data["observers"] = [column for name in observers if (column := self.column(name, "observers"))]
        self._weights()
        for name in as_list(self.options.get("monitor_variables")):
            self.note(f"`monitor_variables: {name}`: add it to data.observers to keep it in the predictions")
        if "bucketing" in self.options:
            self.asides.append("bucketing: batches always group samples of similar length")
        for name, patterns in as_mapping(self.options.get("file_magic"), "file_magic").items():
            self.note(f"`file_magic: {name}` ({patterns}): name the class before the files instead, CLASS:path/*.root")
        if self.magic:
            self.asides.append(f"branch_magic: columns have their names in the files ({self.magic})")
        if self.wanted:
            self.data["new"] = self.wanted
        self._unused()
        return self

    def _unknown_inner_keys(self) -> None:
        sections = {key: (as_mapping(self.options.get(key), key), known) for key, known in KNOWN_INNER_KEYS.items()}
        for name, value in as_mapping(self.options["inputs"], "inputs").items():
            sections[f"inputs: {name}"] = as_mapping(value, f"inputs: {name}"), KNOWN_INPUT_KEYS
        for where, (given, known) in sections.items():
            for key in (key for key in given if key not in known):
                self.note(f"`{where}: {key}: {repr(given[key])[:80]}`: no equivalent")
        fraction = sections["preprocess"][0].get("data_fraction", 1)
        if fraction != 1 and self._fits_scales:
            self.note(f"`preprocess: data_fraction: {fraction}`: centres and scales are fitted to the training part")
        elif fraction != 1:
            self.asides.append(f"data_fraction: {fraction}: no effect, because the centres and scales are given")

    @property
    def _fits_scales(self) -> bool:
        """Whether weaver computes centres and scales from the data."""
        process = as_mapping(self.options.get("preprocess"), "preprocess")
        return str(process.get("method", "manual")).lower().startswith("auto")

    # Columns and formulas

    def column(self, name: Any, where: str) -> str:
        """Name of a column or new variable in the recipe; "" if it cannot be translated."""
        name = str(name)
        if name not in self.new or self.new[name] == name:
            return self.file_name(name)
        if name not in self.wanted:
            self.wanted[name] = ""
            text = self.formula(self.new[name], f"new_variables: {name}", f"needed by {where}")
            del self.wanted[name]
            if not text:
                return ""
            self.wanted[name] = text
        return name

    def file_name(self, name: str) -> str:
        for old, now in self.magic.items():
            name = name.replace(old, now)
        return name

    def with_file_names(self, text: str) -> str:
        for name in column_names(text) if self.magic else ():
            if name not in self.new:
                text = re.sub(rf"\b{re.escape(name)}\b", self.file_name(name), text)
        return text

    def formula(self, text: Any, where: str, why: str = "") -> str:
        """Translate a formula and its columns; if impossible, add a note and return ""."""
        try:
            made = translate_formula(text)
            for name in column_names(text):
                if not self.column(name, where):
                    raise UserError(f"its variable `{name}` cannot be translated")
            return self.with_file_names(made)
        except UserError as error:
            self.note(f"`{where}: {text}`{f', {why}' if why else ''}: {error.message}")
            return ""

    def _unused(self) -> None:
        for name, text in self.new.items():
            told = any(f"new_variables: {name}:" in note for note in self.notes)
            if name in self.wanted or name in self.covered or told:
                continue
            try:
                translate_formula(text)
            except UserError as error:
                self.note(f"`new_variables: {name}: {text}`, not used by the recipe: {error.message}")

    # Selection, labels and weights

    def _selection(self) -> None:
        chosen, later = self.options.get("selection"), self.options.get("test_time_selection")
        if chosen:
            self.data["select"] = self.formula(chosen, "selection")
        if later and later != chosen:
            self.data["select_new"] = self.formula(later, "test_time_selection")
            self.asides.append("test_time_selection: applied to files given to predict, not to the test part")

    def _labels(self) -> None:
        labels = as_mapping(self.options["labels"], "labels")
        kind, value = str(labels.get("type", "simple")), labels.get("value")
        if kind == "simple":
            if not isinstance(value, list) or not value:
                raise UserError(f"`labels: value` must be a list of columns, but is {repr(value)[:80]}")
            names = [str(name) for name in value]
            columns = zip(class_names(names), [self.column(name, "labels") for name in names])
            self.data["classes"] = {title: column for title, column in columns if column}
            return
        targets = as_mapping(value, "labels: value")
        name, text = next(iter(targets.items()), ("", None))
        if not name:
            raise UserError("`labels: value` is empty: it must map a name to its formula")
        made = self.formula(text, f"labels: {name}")
        if made:
            self.data["label"] = made if made.isidentifier() else name
            self.wanted |= {} if made.isidentifier() else {name: made}
        self.asides.append(
            f"labels of type {kind}: `{name}` is read as the class; for a regression, set objective.kind: regress"
        )
        for other, formula in list(targets.items())[1:]:
            self.note(f"`labels: {other}: {formula}`: second target; the recipe predicts only the first, {name}")

    def _weights(self) -> None:
        weights = as_mapping(self.options.get("weights"), "weights")
        if not weights:
            return
        data = self.data
        self.asides.append("weights: weaver samples jets by weight; here the loss is weighted")
        ready = bool(weights.get("use_precomputed_weights"))
        keys = ("weight_branches",) if ready else ("reweight_basewgt", "reweight_basewgts")
        factors = [f"({one})" for key in keys for one in as_list(weights.get(key))]
        if weights.get("reweight_vars") and not ready:
            factors += self._reweight(weights)
        if factors:
            data["weight"] = self.formula("*".join(factors), "weights")
        if data.get("weight") or "reweight" in data:
            self.objective["weight"] = "weight"

    def _reweight(self, weights: dict[str, Any]) -> list[str]:
        """Set `data.reweight` for two variables; return the formulas of the class weights."""
        edges = as_mapping(weights["reweight_vars"], "weights: reweight_vars")
        if len(edges) != 2:
            self.note(f"`weights: reweight_vars` ({', '.join(map(str, edges))}): needs exactly two variables")
            return []
        x, y = (self.column(name, "weights") or name for name in edges)
        x_edges, y_edges = map(as_list, edges.values())
        classes = self.data.get("classes", {})
        labels = as_mapping(self.options["labels"], "labels").get("value")
        named = dict(zip(map(str, as_list(labels)), classes))
        chosen = [str(name) for name in as_list(weights.get("reweight_classes"))] or list(named)
        method = str(weights.get("reweight_method", "flat"))
        to = named.get(chosen[0], "flat") if method == "ref" and chosen else "flat"
        if method not in ("flat", "ref") or (method == "ref" and to == "flat"):
            self.note(f"`weights: reweight_method: {method}`: replaced by flat")
        self.data["reweight"] = {"x": x, "y": y, "x_edges": x_edges, "y_edges": y_edges, "to": to}
        self.objective["balance"] = True
        if set(chosen) != set(named):
            self.note(f"`weights: reweight_classes` ({', '.join(chosen)}): all classes are reweighted, each separately")
        if "reweight_threshold" in weights:
            self.note(f"`weights: reweight_threshold: {weights['reweight_threshold']}`: use data.reweight.cap instead")
        if weights.get("reweight_discard_under_overflow") is False:
            self.note("`weights: reweight_discard_under_overflow: false`: outside the edges the weight is 0")
        if "reweight_hists" in weights:
            self.asides.append("reweight_hists: recomputed from the data")
        counts = dict(zip(chosen, as_list(weights.get("class_weights"))))
        if len(set(map(str, counts.values()))) < 2:
            return []
        return ["(" + " + ".join(f"{value} * ({classes[named[name]]})" for name, value in counts.items()) + ")"]

    def _inputs(self) -> None:
        """Translate the first set of particles into tokens; name other sets in the notes."""
        inputs = as_mapping(self.options["inputs"], "inputs")
        groups: dict[str, dict[str, Any]] = {}
        for name, value in inputs.items():
            prefix, _, role = name.rpartition("_")
            if role not in INPUT_ROLES:
                self.note(f"`inputs: {name}`: only inputs named NAME_{', NAME_'.join(INPUT_ROLES)} are supported")
                continue
            groups.setdefault(prefix, {})[role] = as_mapping(value, f"inputs: {name}")
        ready = [prefix for prefix, group in groups.items() if "features" in group]
        if not ready:
            raise UserError(f"`inputs` has no NAME_features like `pf_features`, only {', '.join(inputs) or 'nothing'}")
        main = next((prefix for prefix in ready if "vectors" in groups[prefix]), ready[0])
        for prefix, group in groups.items():
            if prefix != main:
                names = ", ".join(f"{prefix}_{role}" for role in group)
                self.note(f"`inputs: {names}`: second set of particles; the recipe has only the first, {main}")
        self._particles(main, groups[main])

    def _particles(self, prefix: str, group: dict[str, Any]) -> None:
        tokens, where = self.tokens, f"inputs: {prefix}_"
        for key, role, usual in (("vector", "vectors", VECTOR_COLUMNS), ("plane", "points", PLANE_COLUMNS)):
            names = [name for name, _ in self._vars(group.get(role), where + role, plain=True)]
            tokens[key] = list(usual)
            if len(names) == len(usual):
                tokens[key] = [self.column(name, where + role) or name for name in names]
            elif names or key == "vector":
                found = ", ".join(names) or "missing"
                self.note(f"`{where}{role}` ({found}): {len(usual)} columns are needed; replaced by {', '.join(usual)}")
        if tokens["plane"] == list(PLANE_COLUMNS):
            del tokens["plane"]
        tokens["features"] = self._features(self._vars(group["features"], f"{where}features"))
        lengths = {role: one.get("length") for role, one in group.items()}
        if lengths["features"] is not None:
            tokens["max_tokens"] = int(lengths["features"])
        if len(set(lengths.values())) > 1:
            self.note(f"`{where}*: length` differ ({lengths}): the recipe uses the length of the features")
        for name, _ in self._vars(group.get("mask"), f"{where}mask"):
            text, way = str(self.new.get(name, "a column")), "all particles of the file are used"
            self.covered.add(name)
            if re.fullmatch(r"(ak|np)\.ones_like\(\s*\w+\s*\)", text.strip()):
                self.asides.append(f"{name}: {way}")
            else:
                self.note(f"`{where}mask: {name}` ({text}): {way}")
        modes = sorted({str(one.get("pad_mode", "constant")) for one in group.values()})
        self.asides.append(f"pad_mode ({', '.join(modes)}), pad_value: padding does not change the results")

    def _vars(self, group: Any, where: str, plain: bool = False) -> list[tuple[str, FeatureScaling]]:
        """Names and standardisations of input variables.

        plain   whether the variables are not standardised; a standardisation in the file is then noted as not applied
        """
        found = []
        for one in as_list((group or {}).get("vars")):
            name, *rest = [str(one)] if not isinstance(one, list) else [str(one[0]), *one[1:]]
            standard = self._standard(name, rest)
            if plain and standard.get("scale", 1) is not None and standard:
                self.note(f"`{where}: {name}`: the standardisation ({standard}) is not applied")
            found.append((name, standard))
        return found

    def _standard(self, name: str, rest: list[Any]) -> FeatureScaling:
        """Standardisation clip((x - centre) * scale); empty if the centre is null."""
        process = as_mapping(self.options.get("preprocess"), "preprocess")
        known = as_mapping(process.get("params"), "preprocess: params").get(name)
        if isinstance(known, dict):
            rest = [known.get(key) for key in ("center", "scale", "min", "max")]
        rest = rest or ["auto" if self._fits_scales else None]
        centre, scale, low, high = [*rest, *(None, 1.0, -5.0, 5.0)[len(rest) :]][:4]
        if centre is None:
            return {}
        centre, scale = (None, None) if centre == "auto" else (float(centre), float(scale))
        return {"centre": centre, "scale": scale, "clip": [float(low), float(high)]}

    def _features(self, found: list[tuple[str, FeatureScaling]]) -> Any:
        """Name of the feature set with exactly these features; else a list of features."""
        entries = []
        for name, standard in found:
            try:
                entries.append({**self._feature(name), **standard})
            except UserError as error:
                text = f"{name}: {self.new[name]}" if name in self.new else name
                self.note(f"`inputs: features: {text}`: {error.message}")
        self.covered = needed_variables(self.new, [name for name, _ in found])
        made = [Feature(**entry) for entry in entries]
        if len(made) == len(found):
            for name, wanted in FEATURE_SETS.items():
                if [_feature_key(one) for one in made] == [_feature_key(one) for one in wanted]:
                    self.asides.append(f"features: {', '.join(one for one, _ in found)} form the feature set `{name}`")
                    return name
        return entries

    def _feature(self, name: str) -> dict[str, Any]:
        tokens = self.tokens
        text, px, py, energy, deta, dphi = (
            self.with_file_names(expand_formula(one, self.new))
            for one in (name, *tokens["vector"][:2], tokens["vector"][3], *tokens.get("plane", PLANE_COLUMNS))
        )
        moving = {
            f"log(hypot({px}, {py}))": "log_pt",
            f"log({energy})": "log_energy",
            f"log(hypot({px}, {py}) / jet_pt)": "log_pt_rel",
            f"log({energy} / jet_energy)": "log_energy_rel",
            f"hypot({deta}, {dphi})": "delta_r",
            deta: "deta",
            dphi: "dphi",
        }
        if text in moving:
            return {"name": moving[text]}
        if text.isidentifier():
            return {"name": name, "column": text}
        if inner := re.fullmatch(r"tanh\((\w+)\)", text):
            return {"name": name, "column": inner[1], "change": "tanh"}
        return {"name": name, "formula": translate_formula(text)}


def class_names(columns: list[str]) -> list[str]:
    """Names of classes: column names without common prefix (label_QCD becomes QCD)."""
    ends = [match.end() for match in re.finditer(r"_|is(?=[A-Z]|$)", commonprefix(columns))]  # noqa: RUF071
    short = [name[max(ends, default=0) :] for name in columns]
    return short if len(columns) > 1 and all(short) else columns


def needed_variables(new: Mapping[str, Any], names: Iterable[str]) -> set[str]:
    """New variables in `names`, with all new variables in their formulas."""
    found: set[str] = set()
    left = [name for name in names if name in new]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            with suppress(UserError):  # an unreadable formula has no dependencies
                left += [other for other in column_names(new[name]) if other in new]
    return found


def as_list(value: Any) -> list[Any]:
    """Convert a value to a list; None becomes an empty list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def as_mapping(value: Any, where: str) -> dict[str, Any]:
    """Convert a mapping to string keys; None becomes an empty mapping."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"`{where}` must be a mapping of keys to values, but is {repr(value)[:80]}")
    return {str(key): one for key, one in value.items()}


def _feature_key(feature: Feature) -> Any:
    """Definition of a feature, for comparing features."""
    what = feature.name if feature.is_kinematic else (feature.column or feature.name, feature.formula, feature.change)
    return what, feature.centre, feature.scale, feature.clip


# Formulas of weaver in the syntax of `sciformer.data.readers.formula`: np.log(part_pt/jet_pt) -> log(part_pt / jet_pt)


MODULE_NAMES = ("np", "numpy", "ak", "awkward", "math")
MAX_CHARACTERS = 10_000  # characters of a formula, as written or with variables substituted
RENAMED_FUNCTIONS = {**FUNCTION_ALIASES, "_clip": "clip", "fmin": "minimum", "fmax": "maximum"}
IDENTITY_FUNCTIONS = ("to_numpy", "asarray", "values_astype", "to_packed")  # functions that return their argument
# Operators by the names of NumPy: add, subtract, less_equal, ...
OPERATORS: dict[str, Any] = {function.__name__: sign for sign, function in (BINARY_OPERATIONS | COMPARISONS).items()}
OPERATORS["true_divide"] = ast.Div


def translate_formula(text: Any) -> str:
    """Translate a formula of weaver; refuse unsupported functions by name."""
    made = _unparse(_parse(text))
    Formula(made)
    return made


def column_names(text: Any) -> list[str]:
    """Columns of a weaver formula, in order of appearance."""
    return list(Formula(_unparse(_parse(text))).names)


def expand_formula(text: Any, new: Mapping[str, Any]) -> str:
    """Replace new variables in a formula by their definitions, down to file columns."""
    return _unparse(_ExpandNames(new, ()).visit(_parse(text)))


def _unparse(tree: ast.expr) -> str:
    try:
        return ast.unparse(tree)
    except RecursionError as error:
        raise UserError("the formula is nested too deeply") from error


def _parse(text: Any) -> ast.expr:
    if not isinstance(text, (str, int, float)) or len(str(text)) > MAX_CHARACTERS:
        raise UserError(f"a formula must be text of at most {MAX_CHARACTERS:,} characters, but is {str(text)[:60]!r}")
    try:
        tree = ast.parse(str(text).strip(), mode="eval")
        return cast(ast.expr, ast.fix_missing_locations(_SimplifyCalls().visit(tree.body)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"the formula {str(text)[:60]!r} has a syntax error") from error


class _SimplifyCalls(ast.NodeTransformer):
    """Replace np.log by log, and functions such as np.add by operators."""

    def visit_Call(self, node: ast.Call) -> Any:
        name = _function_name(node.func)
        given = [self.visit(value) for value in node.args]
        keywords = {word.arg: word.value for word in node.keywords}
        if name in IDENTITY_FUNCTIONS:
            return given[0]
        name = RENAMED_FUNCTIONS.get(name, name)
        if name in LIST_FUNCTIONS:
            return ast.Call(ast.Name(name), [self._one_axis(name, given, keywords)], [])
        if keywords:
            raise UserError(f"the keyword argument {next(iter(keywords))}= of `{name}` is not supported")
        if name in OPERATORS and len(given) == 2:
            (a, b), operator = given, OPERATORS[name]()
            return ast.Compare(a, [operator], [b]) if isinstance(operator, ast.cmpop) else ast.BinOp(a, operator, b)
        return ast.Call(ast.Name(name), given, [])

    def _one_axis(self, name: str, given: list[ast.expr], keywords: Mapping[str | None, ast.expr]) -> ast.expr:
        """Argument x of a reduction such as sum(x, axis=1); refuse other axes."""
        other = set(keywords) - {"axis"}
        axis = given[1] if len(given) > 1 else keywords.get("axis")
        if axis is None and name in ("count", "first") and len(given) == 1 and not other:  # axis 1 by default
            return given[0]
        known = isinstance(axis, (ast.Constant, ast.UnaryOp)) and ast.unparse(axis) in ("1", "-1")
        if other or not known or len(given) > 2:
            raise UserError(f"`{name}` is supported only over the particles of a jet (axis=1)")
        return given[0]

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id in MODULE_NAMES and node.attr in CONSTANTS:
            return ast.Constant(CONSTANTS[node.attr])
        raise UserError(f"`{ast.unparse(node)}` is neither a column nor a supported function")


def _function_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in MODULE_NAMES:
        return node.attr
    raise UserError(f"`{ast.unparse(node)[:60]}` is not a function of NumPy or Awkward Array")


class _ExpandNames(ast.NodeTransformer):
    """Replace names of new variables by their formulas, recursively."""

    def __init__(self, new: Mapping[str, Any], inside: tuple[str, ...], size: list[int] | None = None) -> None:
        self.new, self.inside, self.size = new, inside, size or [0]

    def visit_Call(self, node: ast.Call) -> Any:
        node.args = [self.visit(value) for value in node.args]
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id not in self.new or node.id in self.inside or self.new[node.id] == node.id:
            return node
        self.size[0] += len(str(self.new[node.id]))
        if self.size[0] > MAX_CHARACTERS:
            raise UserError(f"the formula with its variables is longer than {MAX_CHARACTERS:,} characters")
        return _ExpandNames(self.new, (*self.inside, node.id), self.size).visit(_parse(self.new[node.id]))
