"""The options of a data file of weaver, one by one, as sections of a recipe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ....errors import UserError
from .formula import column_names, translate_formula

KNOWN_KEYS: tuple[str, ...] = (
    "treename",
    "branch_magic",
    "file_magic",
    "selection",
    "test_time_selection",
    "preprocess",
    "new_variables",
)
KNOWN_KEYS += ("inputs", "labels", "observers", "monitor_variables", "weights", "bucketing")


@dataclass
class Translation:
    """What was understood: the sections, what has no equal, and what need not have one."""

    data: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    asides: list[str] = field(default_factory=list)


class OptionReader:
    """One data file, from key to key."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options, self.made = options, Translation()
        self.magic = {
            str(old): str(now) for old, now in as_mapping(options.get("branch_magic"), "branch_magic").items()
        }
        new = as_mapping(options.get("new_variables"), "new_variables")
        self.new = {str(name): text for name, text in new.items()}
        self.wanted: dict[str, str] = {}
        self.covered: set[str] = set()  # new variables that the recipe has in another form

    def note(self, text: str) -> None:
        """What has no equal."""
        if text not in self.made.notes:
            self.made.notes.append(text)

    def translate(self) -> Translation:
        """Every key but the inputs."""
        for key in self.options:
            if key not in KNOWN_KEYS:
                self.note(f"`{key}`: not a key of weaver that is known here")
        data = self.made.data
        if "treename" in self.options:
            data["tree"] = str(self.options["treename"])
        self._selection()
        self._labels()
        observers = [str(name) for name in as_list(self.options.get("observers"))]
        named = {name: self.column(name, "observers") for name in observers}
        data["observers"] = [column for name, column in named.items() if self.is_translated(name)]
        self._weights()
        for name in as_list(self.options.get("monitor_variables")):
            self.note(f"`monitor_variables: {name}`: put it among data.observers to have it beside the answers")
        if "bucketing" in self.options:
            self.made.asides.append("bucketing: samples of like length are put together anyway")
        for name, patterns in as_mapping(self.options.get("file_magic"), "file_magic").items():
            self.note(f"`file_magic: {name}` ({patterns}): give files a class by a tag, CLASS:path/*.root")
        if self.magic:
            self.made.asides.append(f"branch_magic: columns are called as in the files ({self.magic})")
        if self.wanted:
            data["new"] = self.wanted
        self._unused()
        return self.made

    # Columns and formulas

    def column(self, name: Any, where: str) -> str:
        """A column by the name it has in the files, or with a formula of its own in `data.new`."""
        name = str(name)
        if name not in self.new or self.new[name] == name:
            return self.file_name(name)
        if name not in self.wanted:
            self.wanted[name] = ""
            text = self.formula(self.new[name], f"new_variables: {name}", f"needed by {where}")
            del self.wanted[name]
            if text:
                self.wanted[name] = text
        return name

    def is_translated(self, name: str) -> bool:
        """Whether a name is a column of the files, or a variable that was translated."""
        return name not in self.new or self.new[name] == name or name in self.wanted

    def file_name(self, name: str) -> str:
        """The name in the files."""
        for old, now in self.magic.items():
            name = name.replace(old, now)
        return name

    def with_file_names(self, text: str) -> str:
        """A formula with the names of columns that the files have."""
        for name in column_names(text) if self.magic else ():
            if name not in self.new:
                text = re.sub(rf"\b{re.escape(name)}\b", self.file_name(name), text)
        return text

    def formula(self, text: Any, where: str, why: str = "") -> str:
        """A formula in our words, and what it needs; nothing where it has no equal, with a note."""
        try:
            made = translate_formula(text)
            for name in column_names(text):
                self.column(name, where)
                if not self.is_translated(name):
                    raise UserError(f"the variable `{name}` could not be translated")
            return self.with_file_names(made)
        except UserError as error:
            self.note(f"`{where}: {text}`{f', {why}' if why else ''}: {error.message}")
            return ""

    def _unused(self) -> None:
        """New variables that nothing in the recipe needs; those that could not be translated are told all the same."""
        for name, text in self.new.items():
            if name in self.wanted or any(f"new_variables: {name}:" in note for note in self.made.notes):
                continue
            if name in self.covered:
                continue
            try:
                translate_formula(text)
            except UserError as error:
                self.note(f"`new_variables: {name}: {text}`, which nothing in the recipe needs: {error.message}")

    # What is asked

    def _selection(self) -> None:
        chosen, later = self.options.get("selection"), self.options.get("test_time_selection")
        if chosen:
            self.made.data["select"] = self.formula(chosen, "selection")
        if later and later != chosen:
            self.made.data["select_new"] = self.formula(later, "test_time_selection")
            self.made.asides.append("test_time_selection: holds for files that predict is given, not for the part test")

    def _labels(self) -> None:
        labels = as_mapping(self.options["labels"], "labels")
        kind, value = str(labels.get("type", "simple")), labels.get("value")
        if kind == "simple":
            if not isinstance(value, list) or not value:
                raise UserError(f"`labels: value` must be a list of columns, not {repr(value)[:80]}")
            names = [str(name) for name in value]
            columns = {title: self.column(name, "labels") for name, title in zip(names, class_names(names))}
            classes = {
                title: column for (title, column), name in zip(columns.items(), names) if self.is_translated(name)
            }
            self.made.data["classes"] = classes
            return
        targets = as_mapping(value, "labels: value")
        name, text = next(iter(targets.items()), ("", None))
        if not name:
            raise UserError("`labels: value` must hold a name and its formula, but has no name")
        made = self.formula(text, f"labels: {name}")
        if made:
            self.made.data["label"] = made if made.isidentifier() else str(name)
            self.wanted |= {} if made.isidentifier() else {str(name): made}
        self.made.asides.append(
            f"labels of type {kind}: `{name}` is taken for the class; for values: objective.regress"
        )
        for other, formula in list(targets.items())[1:]:
            self.note(f"`labels: {other}: {formula}`: a second target; the recipe asks for the first, {name}")

    def _weights(self) -> None:
        weights = as_mapping(self.options.get("weights"), "weights")
        if not weights:
            return
        data = self.made.data
        self.made.asides.append("weights: weaver draws samples by their weight, here their loss is weighted")
        factors = [f"({one})" for one in self._as_lists(weights, "reweight_basewgt", "reweight_basewgts")]
        if weights.get("use_precomputed_weights"):
            factors = [f"({one})" for one in self._as_lists(weights, "weight_branches")]
        elif weights.get("reweight_vars"):
            factors += self._reweight(weights)
        if factors:
            data["weight"] = self.formula("*".join(factors), "weights")
        if data.get("weight") or "reweight" in data:
            self.made.objective["weight"] = "weight"

    def _as_lists(self, weights: Mapping[str, Any], *keys: str) -> list[Any]:
        return [one for key in keys for one in as_list(weights.get(key))]

    def _reweight(self, weights: dict[str, Any]) -> list[str]:
        """Weights in bins of two variables; and those of classes, as factors of the weight."""
        edges = as_mapping(weights["reweight_vars"], "weights: reweight_vars")
        if len(edges) != 2:
            self.note(f"`weights: reweight_vars` ({', '.join(map(str, edges))}): two variables are reweighted here")
            return []
        (x, x_edges), (y, y_edges) = ((self.column(name, "weights"), as_list(some)) for name, some in edges.items())
        classes = self.made.data.get("classes", {})
        labels = as_mapping(self.options["labels"], "labels").get("value")
        named = dict(zip(map(str, as_list(labels)), classes))
        chosen = [str(name) for name in as_list(weights.get("reweight_classes"))] or list(named)
        method = str(weights.get("reweight_method", "flat"))
        to = named.get(chosen[0], "flat") if method == "ref" and chosen else "flat"
        if method not in ("flat", "ref") or (method == "ref" and to == "flat"):
            self.note(f"`weights: reweight_method: {method}`: flat is taken")
        self.made.data["reweight"] = {"x": x, "y": y, "x_edges": x_edges, "y_edges": y_edges, "to": to}
        self.made.objective["balance"] = True
        if set(chosen) != set(named):
            self.note(f"`weights: reweight_classes` ({', '.join(chosen)}): all classes are reweighted, each by itself")
        if "reweight_threshold" in weights:
            self.note(f"`weights: reweight_threshold: {weights['reweight_threshold']}`: see data.reweight.cap instead")
        if weights.get("reweight_discard_under_overflow") is False:
            self.note("`weights: reweight_discard_under_overflow: false`: outside the edges the weight is 0 here")
        if "reweight_hists" in weights:
            self.made.asides.append("reweight_hists: made anew from the data")
        counts = dict(zip(chosen, as_list(weights.get("class_weights"))))
        if len(set(map(str, counts.values()))) < 2:
            return []
        return ["(" + " + ".join(f"{value} * ({classes[named[name]]})" for name, value in counts.items()) + ")"]


def class_names(columns: list[str]) -> list[str]:
    """The columns of classes without what all begin with: label_QCD, label_Hbb are QCD, Hbb; jet_isQ is Q."""
    first, last = min(columns), max(columns)
    common = first[: next((place for place, pair in enumerate(zip(first, last)) if len({*pair}) > 1), len(first))]
    ends = [match.end() for match in re.finditer(r"_|is(?=[A-Z]|$)", common)]
    short = [name[max(ends, default=0) :] for name in columns]
    return short if len(columns) > 1 and all(short) else columns


def needed_variables(new: Mapping[str, Any], names: Iterable[str]) -> set[str]:
    """New variables that these are made of, themselves included."""
    found: set[str] = set()
    left = [name for name in names if name in new]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            with suppress(UserError):  # one that cannot be read needs nothing
                left += [other for other in column_names(new[name]) if other in new]
    return found


def as_list(value: Any) -> list[Any]:
    """A list of nothing, of one, or of what is in it."""
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def as_mapping(value: Any, where: str) -> dict[str, Any]:
    """Keys and values, where there are some."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"`{where}` must hold keys and their values, not {repr(value)[:80]}")
    return value
