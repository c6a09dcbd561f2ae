"""The `inputs:` of a data file of weaver as tokens: momenta, places and features of particles."""

from __future__ import annotations

import re
from typing import Any

from ....errors import UserError
from ..features import FEATURE_SETS, Feature
from .formula import expand_formula, translate_formula
from .options import OptionReader, as_list, as_mapping, needed_variables

INPUT_ROLES = ("points", "features", "vectors", "mask")
VECTOR_COLUMNS = ("part_px", "part_py", "part_pz", "part_energy")
PLANE_COLUMNS = ("part_deta", "part_dphi")
FeatureScaling = dict[str, Any]  # centre, scale, clip


class ModelInputs:
    """The inputs of one data file."""

    def __init__(self, reading: OptionReader) -> None:
        self.reading = reading

    def translate(self) -> None:
        """The first set of particles; others are noted."""
        inputs = {str(name): value for name, value in as_mapping(self.reading.options["inputs"], "inputs").items()}
        groups: dict[str, dict[str, Any]] = {}
        for name, value in inputs.items():
            prefix, _, role = name.rpartition("_")
            if role not in INPUT_ROLES:
                self.reading.note(f"`inputs: {name}`: only sets called NAME_{', NAME_'.join(INPUT_ROLES)} are known")
                continue
            groups.setdefault(prefix, {})[role] = as_mapping(value, f"inputs: {name}")
        ready = [prefix for prefix, group in groups.items() if "features" in group]
        if not ready:
            there = ", ".join(inputs) or "nothing"
            raise UserError(f"`inputs` has no NAME_features, like `pf_features`; there is {there}")
        main = next((prefix for prefix in ready if "vectors" in groups[prefix]), ready[0])
        for prefix, group in groups.items():
            if prefix != main:
                names = ", ".join(f"{prefix}_{role}" for role in group)
                self.reading.note(f"`inputs: {names}`: a second set of particles; the recipe has the first, {main}")
        self._particles(main, groups[main])

    def _particles(self, prefix: str, group: dict[str, Any]) -> None:
        tokens, where = self.reading.made.tokens, f"inputs: {prefix}_"
        vector = [name for name, _ in self._vars(group.get("vectors"), f"{where}vectors", plain=True)]
        if len(vector) == 4:
            tokens["vector"] = [self.reading.column(name, f"{where}vectors") for name in vector]
        else:
            tokens["vector"] = list(VECTOR_COLUMNS)
            found = ", ".join(vector) or "no such input"
            self.reading.note(
                f"`{where}vectors` ({found}): four columns were expected; {', '.join(VECTOR_COLUMNS)} are taken"
            )
        plane = [name for name, _ in self._vars(group.get("points"), f"{where}points", plain=True)]
        if len(plane) not in (0, 2):
            self.reading.note(
                f"`{where}points` ({', '.join(plane)}): two columns were expected; {', '.join(PLANE_COLUMNS)} are taken"
            )
        elif plane and (columns := [self.reading.column(name, f"{where}points") for name in plane]) != list(
            PLANE_COLUMNS
        ):
            tokens["plane"] = columns
        tokens["features"] = self._features(self._vars(group["features"], f"{where}features"))
        lengths = {role: one.get("length") for role, one in group.items()}
        if lengths["features"] is not None:
            tokens["max_tokens"] = int(lengths["features"])
        if len(set(lengths.values())) > 1:
            self.reading.note(f"`{where}*: length` differ ({lengths}): the recipe has one, that of the features")
        for name, _ in self._vars(group.get("mask"), f"{where}mask"):
            text, way = str(self.reading.new.get(name, "a column")), "every particle of the file is taken"
            self.reading.covered.add(name)
            if re.fullmatch(r"(ak|np)\.ones_like\(\s*\w+\s*\)", text.strip()):
                self.reading.made.asides.append(f"{name}: {way}")
            else:
                self.reading.note(f"`{where}mask: {name}` ({text}): {way}")
        modes = sorted({str(one.get("pad_mode", "constant")) for one in group.values()})
        self.reading.made.asides.append(f"pad_mode ({', '.join(modes)}), pad_value: results do not depend on padding")

    def _vars(self, group: Any, where: str, plain: bool = False) -> list[tuple[str, FeatureScaling]]:
        """Names and standardisations; `plain` ones should have none."""
        found = []
        for one in as_list((group or {}).get("vars")):
            name, *rest = [str(one)] if not isinstance(one, list) else [str(one[0]), *one[1:]]
            standard = self._standard(name, rest)
            if plain and standard.get("scale", 1) is not None and standard:
                self.reading.note(f"`{where}: {name}`: standardised ({standard}), but the recipe takes it as it is")
            found.append((name, standard))
        return found

    def _standard(self, name: str, rest: list[Any]) -> FeatureScaling:
        """(x - centre) * scale, clipped; weaver does neither where the centre is null."""
        process = as_mapping(self.reading.options.get("preprocess"), "preprocess")
        known = as_mapping(process.get("params"), "preprocess: params").get(name)
        if isinstance(known, dict):
            rest = [known.get(key) for key in ("center", "scale", "min", "max")]
        auto = str(process.get("method", "manual")).lower().startswith("auto")
        rest = rest or ["auto" if auto else None]
        centre, scale, low, high = [*rest, *(None, 1.0, -5.0, 5.0)[len(rest) :]][:4]
        if centre is None:
            return {}
        learned = centre == "auto"
        return {
            "centre": None if learned else float(centre),
            "scale": None if learned else float(scale),
            "clip": [float(low), float(high)],
        }

    def _features(self, found: list[tuple[str, FeatureScaling]]) -> Any:
        """The name of a set of ours where it is the same, and else a list."""
        entries = []
        for name, standard in found:
            try:
                entries.append({**self._feature(name), **standard})
            except UserError as error:
                text = f"{name}: {self.reading.new[name]}" if name in self.reading.new else name
                self.reading.note(f"`inputs: features: {text}`: {error.message}")
        self.reading.covered = needed_variables(self.reading.new, [name for name, _ in found])
        made = [Feature(**entry) for entry in entries]
        if len(made) == len(found):
            for name, wanted in FEATURE_SETS.items():
                if [_feature_key(one) for one in made] == [_feature_key(one) for one in wanted]:
                    self.reading.made.asides.append(
                        f"features: {', '.join(one for one, _ in found)} are the set `{name}`"
                    )
                    return name
        return entries

    def _feature(self, name: str) -> dict[str, Any]:
        """What a feature is made of: momenta in our way, a column, or a formula."""
        tokens = self.reading.made.tokens
        text, px, py, energy, deta, dphi = (
            self.reading.with_file_names(expand_formula(one, self.reading.new))
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


def _feature_key(feature: Feature) -> Any:
    """A feature without its name, unless that says what it is."""
    what = feature.name if feature.is_kinematic else (feature.column or feature.name, feature.formula, feature.change)
    return what, feature.centre, feature.scale, feature.clip
