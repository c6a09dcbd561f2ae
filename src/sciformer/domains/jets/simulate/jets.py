"""Simulated jets of the ten classes of JetClass, 20,000 per second on one core.

    table = Jets(seed=1).make(100_000)                # columns part_px ... label, as in a file of JetClass
    table = Jets().make(1000, first=5_000_000)        # jets 5,000,000 to 5,000,999 of an endless sequence

It is a toy model with the right structure. Resonances decay with exact kinematics into two, three or four prongs
(decays.py); partons branch at decreasing angles (shower.py); resonances keep their four-momentum (systems.py);
clusters become hadrons, photons and leptons, b and c hadrons fly before they decay (hadrons.py); a toy detector smears
and loses particles (detector.py). About twenty constants were fitted (benchmarks/jets_fit.py) to Pythia 8 jets behind
the same toy detector: multiplicities, masses, shares of momentum, charge and types, and displaced tracks of each class.
The fit used the training part of benchmarks/jets.py, not its test part. benchmarks/jets_generator.py prints the
remaining differences.

It is not a physics prediction. There is no matrix element, no colour connection between jets, no interference, and no
spin except in the decay angles of W and Z. Hadrons come from clusters of one parton; charge and strangeness are
balanced only inside a cluster. The underlying event is flat, and a cone replaces anti-kT. `jet_sdmass` is the mass
without sparse regions (`groomed_masses`), not a soft drop mass. Use it to learn, to test and to pretrain; measure
physics with a real generator (benchmarks/pythia_jets.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from ....data.columns import Array, Lists, Table
from ....data.readers.events.reader import EventFiles
from ....data.readers.simulation import SimulatedSequence
from ....data.source import Data
from ..features import TYPE_FLAGS
from .decays import CLASSES, JET_RADIUS, Prongs, draw_prongs
from .detector import DetectedParticles, detect_jets, four_vectors, impact_errors, jet_momenta
from .kinematics import TWO_PI, Floats
from .systems import shower_particles

MAX_HELD_JETS = 200_000  # parts up to this number of jets stay in memory, about 3 kB per jet
JETCLASS_FILES = {  # names of the files of JetClass
    "QCD": "ZJetsToNuNu", "Hbb": "HToBB", "Hcc": "HToCC", "Hgg": "HToGG", "H4q": "HToWW4Q", "Hqql": "HToWW2Q1L",
    "Zqq": "ZToQQ", "Wqq": "WToQQ", "Tbqq": "TTBar", "Tbl": "TTBarLep",
}  # fmt: skip
MAX_PARTICLES = 128  # per jet
MIN_PT, MAX_PT, MAX_ETA = 500.0, 1000.0, 2.0  # cuts on pT (GeV) and |eta| of a jet
# By class, the inverse acceptance of the cuts.
CANDIDATES_PER_JET = np.array([1.27, 1.74, 1.66, 1.48, 1.78, 3.0, 1.5, 1.52, 2.05, 3.35])
GROOMING_CELLS = 12  # cells per side of the grid in `groomed_masses`
MIN_CELL_PT_SHARE = 0.05  # minimum share of the jet pT in a block of nine cells
ROW_BITS = 20  # bits of a particle index in the sort key
PARTICLE_COLUMNS = ("px", "py", "pz", "energy", "deta", "dphi", "d0val", "d0err", "dzval", "dzerr", "charge")
JET_COLUMNS = ("jet_pt", "jet_eta", "jet_phi", "jet_energy", "jet_nparticles", "jet_sdmass")
BRANCHES = (
    *(f"part_{name}" for name in PARTICLE_COLUMNS + TYPE_FLAGS),
    *JET_COLUMNS,
    *(f"label_{name}" for name in CLASSES),
)


class Jets(SimulatedSequence):
    """Simulated jets of the ten classes of JetClass.

    Columns are named like the branches of JetClass; `label` is the class. See `sciformer.domains.jets.simulate.jets`
    for details.
    """

    noun: ClassVar[str] = "jets"
    suffixes: ClassVar[tuple[str, ...]] = (".root", ".parquet", ".npz")
    class_files: ClassVar[Mapping[str, str]] = {name: f"{file}_000.root" for name, file in JETCLASS_FILES.items()}
    version: ClassVar[int] = 2
    names_samples: ClassVar[bool] = False
    rows_per_chunk: ClassVar[int] = 2048
    known_classes: ClassVar[tuple[str, ...]] = CLASSES
    rows_per_write: ClassVar[int] = 8192

    number: int = Field(default=100_000, ge=1, le=10**10)
    """Number of jets for training, or number of jets to write (default: 100,000)."""
    classes: list[str] = Field(default_factory=lambda: list(CLASSES))
    """Classes of jets, with equal frequency (default: all ten)."""
    most: int = Field(default=MAX_PARTICLES, ge=1, le=MAX_PARTICLES)
    """Maximum number of particles per jet (default: 128). The particles of highest pT are kept."""
    chunk_size: int = Field(default=8192, ge=16)
    """Jets simulated at a time (default: 8,192). Training keeps several chunks in memory and shuffles across them."""

    def describe(self) -> str:
        kinds = ", ".join(self.classes)
        return f"jets of {kinds}; seed {self.seed}, version {self.version}, at most {self.most} particles"

    def cache_prefix(self) -> str:
        kinds = "".join(map(str, self.class_numbers()))
        return f"jets-{self.version}-{self.seed}-{kinds}-{self.most}"

    def make(self, count: int, first: int = 0, part: str = "file") -> Table:
        return truncate_jets(super().make(count, first, part), self.most)

    def tables(self, suffix: str) -> Iterator[Table]:
        """Tables for a file; in ROOT files, label_QCD etc. replace `label`."""
        for table in self.make_tables():
            yield {name: column for name, column in table.items() if suffix != ".root" or name != "label"}

    def make_tables(self) -> Iterator[Table]:
        return super().tables("")

    def make_chunk(self, rng: np.random.Generator, label: Array, part: str) -> Table:
        slots = [np.flatnonzero(label == number) for number in range(len(CLASSES))]  # rows not yet filled
        found, azimuth, momenta = [], np.empty(len(label)), np.empty((4, len(label)))
        while any(map(len, slots)):
            tries = [int(len(free) * more) + 8 if len(free) else 0 for free, more in zip(slots, CANDIDATES_PER_JET)]
            prongs = draw_prongs(np.repeat(np.arange(len(CLASSES)), tries), rng)
            prongs = prongs.take(np.flatnonzero(_may_pass_cuts(prongs)))
            crowd, vertices = shower_particles(prongs, rng)
            seen, sums = detect_jets(crowd, vertices, prongs, rng)
            place = np.full(len(prongs), -1)
            good = _passes_cuts(prongs, sums)
            for number, free in enumerate(slots):
                rows = np.flatnonzero(good & (prongs.label == number))[: len(free)]
                place[rows], slots[number] = free[: len(rows)], free[len(rows) :]
            rows = np.flatnonzero(place >= 0)
            azimuth[place[rows]], momenta[:, place[rows]] = prongs.azimuth[rows], sums[:, rows]
            seen.phi += prongs.azimuth.astype(np.float32).take(seen.jet)
            seen.jet = place.take(seen.jet)
            found.append(seen)
        return jet_columns(DetectedParticles.join(found), momenta, azimuth, label)

    def select_columns(self, table: Table) -> Table:
        if not self.state:
            return table
        names = {*self.state["names"], *self.state["truth"], *self.state["wishes"], "label", *JET_COLUMNS}
        return {name: column for name, column in table.items() if name in names}

    def stays_in_memory(self, count: int) -> bool:
        return count <= MAX_HELD_JETS

    def file_reader(self) -> Data:
        found = EventFiles(kind="events", most=self.most, classes={name: f"label_{name}" for name in CLASSES})
        return found.want(**self.state) if self.state else found


def truncate_jets(table: Table, most: int) -> Table:
    """Keep the first `most` particles of each jet."""
    lengths = next(column.lengths for column in table.values() if isinstance(column, Lists))
    if lengths.max(initial=0) <= most:
        return table
    fewer = np.minimum(lengths, most)
    kept = np.arange(int(lengths.sum())) - np.repeat(lengths.cumsum() - lengths, lengths) < most
    lists = {name: Lists(column.values[kept], fewer) for name, column in table.items() if isinstance(column, Lists)}
    return {**table, **lists, "jet_nparticles": fewer.astype(np.float32)}


def _may_pass_cuts(prongs: Prongs) -> Floats:
    """Mask of jets inside or near the cuts, from the sum of their visible prongs."""
    seen = np.where(prongs.visible[:, None], prongs.vectors, 0).sum(0)
    pt = np.hypot(seen[0], seen[1])
    near = prongs.within_radius(seen) & (np.abs(prongs.rapidity) < MAX_ETA + 0.05)
    return near & (pt > MIN_PT - 15) & (pt < MAX_PT + 100)


def _passes_cuts(prongs: Prongs, momenta: Floats) -> Floats:
    """Mask of jets within the cuts on pT, |eta|, and prongs inside the radius."""
    pt = np.hypot(momenta[0], momenta[1])
    eta = np.arcsinh(momenta[2] / pt)
    local = momenta.copy()  # in the frame of the prongs (mass neglected)
    local[2] = pt * np.sinh(eta - prongs.rapidity)
    return prongs.within_radius(local) & (pt >= MIN_PT) & (pt <= MAX_PT) & (np.abs(eta) < MAX_ETA)


def jet_columns(seen: DetectedParticles, momenta: Floats, azimuth: Floats, label: Floats) -> dict[str, Array | Lists]:
    """Columns of jets with momenta (4, n) and classes (n,), particles by falling pT.

    Azimuths of the momenta are relative to `azimuth` (n,), azimuths of the particles are absolute. Particles with jet
    -1 are dropped.
    """
    lengths = np.bincount(seen.jet + 1, minlength=len(label) + 1)
    order = _hardest_first(seen)[lengths[0] :]  # drop particles with jet -1
    lengths = lengths[1:]
    if lengths.max() > MAX_PARTICLES:
        order = order[np.arange(len(order)) - np.repeat(np.cumsum(lengths) - lengths, lengths) < MAX_PARTICLES]
        lengths = np.minimum(lengths, MAX_PARTICLES)
    seen = seen.take(order)
    pt = np.hypot(momenta[0], momenta[1])
    eta = np.arcsinh(momenta[2] / pt)
    phi = np.remainder(np.arctan2(momenta[1], momenta[0]) + azimuth + np.pi, TWO_PI) - np.pi
    p, charged = four_vectors(seen), seen.charge != 0
    sign = np.where(eta < 0, -1, 1).astype(np.float32)
    deta = sign.take(seen.jet) * (seen.eta - eta.astype(np.float32).take(seen.jet))
    dphi = seen.phi - phi.astype(np.float32).take(seen.jet)
    dphi -= np.float32(TWO_PI) * np.rint(dphi / np.float32(TWO_PI))
    error = [np.where(charged, one, 0) for one in impact_errors(seen.pt)]
    values = [*p, deta, dphi, seen.d0, error[0], seen.dz, error[1], seen.charge.astype(np.float32)]
    values += [(seen.type == number).astype(np.int32) for number in range(len(TYPE_FLAGS))]
    names = [f"part_{name}" for name in PARTICLE_COLUMNS + TYPE_FLAGS]
    made: dict[str, Array | Lists] = {name: Lists(column, lengths) for name, column in zip(names, values)}
    mass = groomed_masses(seen, p, deta, dphi, len(label))
    jet = (pt, eta, phi, momenta[3], lengths, mass)
    made |= {name: np.asarray(column, np.float32) for name, column in zip(JET_COLUMNS, jet)}
    for number, name in enumerate(CLASSES):
        made[f"label_{name}"] = (label == number).astype(np.float32 if name == "QCD" else np.int32)
    return made | {"label": np.array(CLASSES)[label]}


def _hardest_first(seen: DetectedParticles) -> Floats:
    """Row order by jet, then falling pT; seven times faster than a lexsort."""
    assert len(seen) < 1 << ROW_BITS
    hard = seen.pt.astype(np.float32).view(np.uint32)  # positive floats have the same order as their bits
    key = (seen.jet + 1).astype(np.uint64) << np.uint64(31 + ROW_BITS)
    key |= (np.uint32(0x7FFFFFFF) - hard).astype(np.uint64) << np.uint64(ROW_BITS)
    key |= np.arange(len(seen), dtype=np.uint64)
    key.sort()
    return (key & np.uint64((1 << ROW_BITS) - 1)).astype(np.intp)


def groomed_masses(seen: DetectedParticles, p: Floats, deta: Floats, dphi: Floats, n: int) -> Floats:
    """Jet masses without the sparse regions of the jets.

    The jet cone is divided into a grid of cells. A cell counts if its block of 3 x 3 cells has a minimum share of the
    jet pT (`MIN_CELL_PT_SHARE`).
    """
    width = np.float32(GROOMING_CELLS / (2 * JET_RADIUS))
    wide = GROOMING_CELLS + 2  # with a border, so that shifts in memory reach the neighbours
    inside = ((x * width + GROOMING_CELLS / 2).astype(np.int32) for x in (deta, dphi))
    row, column = (np.clip(place, 0, GROOMING_CELLS - 1) + 1 for place in inside)
    cell = (seen.jet * wide + row) * wide + column
    grid = np.bincount(cell, seen.pt, n * wide * wide).astype(np.float32)
    for step in (1, wide):
        near = grid.copy()
        near[step:] += grid[:-step]
        near[:-step] += grid[step:]
        grid = near
    whole = np.bincount(seen.jet, seen.pt, n).astype(np.float32)
    kept = np.flatnonzero(grid.take(cell) > np.float32(MIN_CELL_PT_SHARE) * whole.take(seen.jet))
    x, y, z, e = jet_momenta(seen, n, p, kept)
    return np.sqrt(np.maximum(e * e - x * x - y * y - z * z, 0))
