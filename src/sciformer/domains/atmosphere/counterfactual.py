"""Counterfactuals: a changed input, the difference of the answers, and its maps."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ...data.columns import Array
from ...errors import UserError, one_of
from ...inspection.plots.attention import FONT_SIZE
from ...inspection.plots.style import add_colour_bar, escape_label, label_axes
from ...inspection.report.page import save_figure
from ...tokens.protocols import Change
from .reader.axes import describe_time
from .reader.files import Catalog, MapField
from .reader.neighbourhoods import Neighbourhoods

KEY = "--change"
MAX_SHOWN_TIMES = 4  # maps of a field
PANEL_SIZE = (2.6, 2.1)  # inches


@dataclass(frozen=True)
class ShiftedField:
    """Field with a number added to all of its values; missing values stay missing."""

    field: MapField
    by: float

    @property
    def levels(self) -> Array:
        return self.field.levels

    @property
    def units(self) -> str:
        return self.field.units

    @property
    def members(self) -> int:
        return self.field.members

    def read(self, times: Array, rows: Array, columns: Array, member: int = 0) -> Array:
        return self.field.read(times, rows, columns, member) + np.float32(self.by)


def change_source(source: Neighbourhoods, changes: Sequence[Change]) -> Neighbourhoods:
    """Neighbourhoods of the same files with changed fields; the climatology stays."""
    assert isinstance(source.catalog, Catalog)
    catalog = copy.copy(source.catalog)
    fields: dict[str, MapField] = dict(catalog.fields)
    for name, by, unit in changes:
        one_of("the field of --change", name, source.names, key=KEY)
        own = source.names[name]
        if unit and unit != fields[own].units:
            there = f"in {fields[own].units}" if fields[own].units else "without a unit"
            hint = f"Convert the number and write its unit, or no unit: --change {name}={by:+g}{fields[own].units}"
            raise UserError(f"--change {name}={by:+g} is in {unit}, but `{name}` is {there}", hint=hint, key=KEY)
        if not np.isfinite(by) or by == 0:
            raise UserError(f"--change {name}={by:+g} must add a finite number, not zero", key=KEY)
        fields[own] = ShiftedField(fields[own], by)
    catalog.fields = fields  # type: ignore[assignment]
    return Neighbourhoods(catalog, source.boxes, source.names, source.climatology)


def draw_differences(differences: Mapping[str, Array], hours: Array, catalog: Catalog) -> Figure | None:
    """Maps of differences (L, T, H, W) of the answers, a row for each field; None if nothing is finite.

    Columns are up to four of the times with answers, for the lowest level. Colours are symmetric around zero, with
    blue for a lower and red for a higher answer.
    """
    rows = {}
    for name, values in differences.items():
        known = np.flatnonzero(np.isfinite(values[-1]).any((1, 2)))
        if len(known):
            rows[name] = known[np.unique(np.linspace(0, len(known) - 1, MAX_SHOWN_TIMES).round().astype(int))]
    if not rows:
        return None
    wide = max(len(times) for times in rows.values())
    size = (PANEL_SIZE[0] * wide + 0.8, PANEL_SIZE[1] * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(rows), wide, squeeze=False)
    edges = [_edges(catalog.grid.longitude), _edges(catalog.grid.latitude)]
    for across, (name, times) in zip(panels, rows.items()):
        shown = differences[name][-1, times]
        most = max(float(np.nanmax(np.abs(shown))), 1e-12)
        for axes, values, hour in zip(across, shown, hours[times]):
            drawn = axes.pcolormesh(*edges, values, cmap="RdBu_r", vmin=-most, vmax=most)
            axes.set_title(describe_time(float(hour), catalog.calendar).replace("T", " "), fontsize=FONT_SIZE)
            axes.tick_params(labelsize=FONT_SIZE, length=2)
            axes.set_facecolor("0.85")  # where nothing was predicted
            label_axes(axes, "longitude" if name == [*rows][-1] else "", "latitude" if axes is across[0] else "")
        for axes in across[len(times) :]:
            axes.set_axis_off()
        unit = catalog.fields[name].units
        label = f"change of {name}" + (f" ({unit})" if unit else "")
        add_colour_bar(figure, drawn, across.tolist(), escape_label(label))
    return figure


def write_differences(path: Path, differences: Mapping[str, Array], hours: Array, catalog: Catalog) -> None:
    """Draw the differences into a PNG file beside the answers."""
    figure = draw_differences(differences, hours, catalog)
    if figure is not None:
        save_figure(figure, path.with_suffix(".png"))


def _edges(centres: Array) -> Array:
    """Edges of cells between ascending centres."""
    if len(centres) == 1:
        return np.array([centres[0] - 0.5, centres[0] + 0.5])
    middle = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]])
