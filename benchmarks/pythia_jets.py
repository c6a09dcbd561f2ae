"""Plugin for jets of Pythia 8 and FastJet in the toy detector; it needs both packages.

    sciformer simulate pythia_jets pythia.root --number 1000 --plugin benchmarks/pythia_jets.py

The ten classes come from plain Pythia (leading order, 13 TeV, with multiple interactions, without pile-up). Jets are
anti-kT with R = 0.8, 500 to 1000 GeV and |eta| < 2; all decay quarks, gluons and charged leptons are within 0.8 of the
jet. The speed is about 40 jets per second. The columns are those of `jets`, but `jet_sdmass` is a soft drop mass (C/A,
z > 0.1, beta 0).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from sciformer.data.columns import Array, Lists, Table, concatenate, select
from sciformer.data.source import Splits
from sciformer.domains.jets.simulate.decays import CLASSES, JET_RADIUS
from sciformer.domains.jets.simulate.detector import (
    ELECTRONS,
    HADRONS,
    MIN_NEUTRAL_PT,
    MIN_PARTICLE_PT,
    MUONS,
    PHOTONS,
    TRACKS,
    DetectedParticles,
    four_vectors,
    leaves_trace,
    smear_particles,
)
from sciformer.domains.jets.simulate.jets import MAX_ETA, MAX_PT, MIN_PT, Jets, jet_columns, truncate_jets
from sciformer.domains.jets.simulate.kinematics import TWO_PI, Floats
from sciformer.errors import UserError
from sciformer.files.packages import require
from sciformer.recipe.registry import register

EVENTS_AT_ONCE, JETS_PER_TABLE = 16, 1000  # events made at a time, jets in a table
MAX_CLUSTERED_ETA, SOFT_DROP_CUT = 4.0, 0.1  # |eta| of clustered particles; soft drop z
INSTALL = "--only-binary :all: pythia8mc fastjet"
COMMON_SETTINGS = (
    "Print:quiet = on",
    "Random:setSeed = on",
    "Beams:eCM = 13000.",
    "ParticleDecays:limitTau0 = on",
    "ParticleDecays:tau0Max = 10.",
)
INVISIBLE_Z = ("23:onMode = off", "23:onIfAny = 12 14 16")
QUARKS_W = ("24:onMode = off", "24:onIfAny = 1 2 3 4 5")
HIGGS = ("HiggsSM:ffbar2HZ = on", *INVISIBLE_Z, "25:onMode = off")
TOPS = ("Top:gg2ttbar = on", "Top:qqbar2ttbar = on", "24:onMode = off")
PROCESSES: dict[str, list[tuple[str, ...]]] = {  # where there are several, each makes its share
    "QCD": [
        ("WeakBosonAndParton:qqbar2gmZg = on", "WeakBosonAndParton:qg2gmZq = on", "WeakZ0:gmZmode = 2", *INVISIBLE_Z)
    ],
    "Hbb": [(*HIGGS, "25:onIfMatch = 5 -5")],
    "Hcc": [(*HIGGS, "25:onIfMatch = 4 -4")],
    "Hgg": [(*HIGGS, "25:onIfMatch = 21 21")],
    "H4q": [(*HIGGS, "25:onIfMatch = 24 -24", *QUARKS_W)],
    "Hqql": [
        (*HIGGS, "25:onIfMatch = 24 -24", "24:onMode = off", f"24:on{a}IfAny = 1 2 3 4 5", f"24:on{b}IfAny = 11 13")
        for a, b in (("Pos", "Neg"), ("Neg", "Pos"))
    ],
    "Zqq": [("WeakDoubleBoson:ffbar2gmZgmZ = on", "WeakZ0:gmZmode = 2", "23:onMode = off", "23:onIfAny = 1 2 3 4 5")],
    "Wqq": [("WeakDoubleBoson:ffbar2ZW = on", *INVISIBLE_Z, *QUARKS_W)],
    "Tbqq": [(*TOPS, "24:onIfAny = 1 2 3 4 5")],
    "Tbl": [(*TOPS, "24:onIfAny = 11 13")],
}
HARD_PT_RANGES = {"Tbl": (520, 1200)}  # GeV, pT of the hard process; 480 to 1050 for the others
PARENT_CODES = {"H": (25,), "Z": (23,), "W": (24,), "T": (6,)}  # by the first letter of a class
RESONANCE_CODES = (6, 23, 24, 25)


@register("simulation", "pythia_jets")
class PythiaJets(Jets):
    """Jets of Pythia 8 and FastJet in the toy detector, with the columns of `jets`.

    They can be written to files, but not simulated during a training.
    """

    seed: int = Field(default=0, ge=0, le=7999)
    """Another seed gives other jets."""

    def check(self) -> None:
        """Refuse unknown classes, and missing packages."""
        super().check()
        load_pythia()

    def open(self, log: object = None, write: bool = True) -> Splits:
        """Refuse: Pythia cannot make a jet from its index, so there is no reader."""
        hint = "Write them to files: sciformer simulate pythia_jets OUT --plugin pythia_jets.py"
        raise UserError("data.kind pythia_jets makes files, not the parts of a training", hint=hint, key="data.kind")

    def make_tables(self) -> Iterator[Table]:
        """Tables of at most 1,000 jets; classes are equally frequent, in random order."""
        classes = self.classes or list(CLASSES)
        makers = [Maker(name, self.seed) for name in classes]
        rng = np.random.default_rng([self.seed, 1])
        for first in range(0, self.number, JETS_PER_TABLE):
            label = np.arange(first, min(first + JETS_PER_TABLE, self.number)) % len(classes)
            counts = np.bincount(label, minlength=len(classes))
            table = concatenate([maker.take(count) for maker, count in zip(makers, counts) if count])
            yield truncate_jets(select(table, rng.permutation(len(label))), self.most)


def load_pythia() -> tuple[Any, Any]:
    """Import the packages; if one is missing, the error names the pip command."""
    pythia, fastjet = (require(name, "jets of Pythia", INSTALL) for name in ("pythia8mc", "fastjet"))
    if "PYTHIA8DATA" not in os.environ:
        for above in (Path(str(pythia.__file__)).parent, Path(sys.prefix)):
            if (found := above / "share" / "Pythia8" / "xmldoc").is_dir():
                os.environ["PYTHIA8DATA"] = str(found)
                break
    return pythia, fastjet


class Maker:
    """Generator of jets of one class."""

    def __init__(self, name: str, seed: int) -> None:
        pythia, self.fastjet = load_pythia()
        self.name, self.chance = name, np.random.default_rng([seed, 2, CLASSES.index(name)])
        low, high = HARD_PT_RANGES.get(name, (480, 1050))
        self.engines, self.charges = [], dict[int, int]()
        for number, process in enumerate(PROCESSES[name]):
            engine = pythia.Pythia("", False)
            chosen = f"Random:seed = {1 + seed * 20 + CLASSES.index(name) + 10 * number}"
            window = (f"PhaseSpace:pTHatMin = {low}.", f"PhaseSpace:pTHatMax = {high}.")
            for line in (*COMMON_SETTINGS, chosen, *window, *process):
                if not engine.readString(line):
                    raise UserError(f"this version of Pythia does not know the setting {line}")
            if not engine.init():
                raise UserError(f"Pythia does not start for the class {name}", hint="Its own words are above.")
            self.engines.append(engine)
        self.turn, self.left = 0, list[dict[str, Array | Lists]]()

    def take(self, count: int) -> dict[str, Array | Lists]:
        """Next jets of this class."""
        have = sum(len(table["label"]) for table in self.left)
        while have < count:
            engine = self.engines[self.turn % len(self.engines)]
            self.turn += 1
            for event in engine.nextBatch(EVENTS_AT_ONCE).prt:
                table = self._jets(event, engine)
                if table is not None:
                    self.left.append(table)
                    have += len(table["label"])
        table = concatenate(self.left)
        self.left = [select(table, np.arange(count, have))] if have > count else []
        return select(table, np.arange(count))

    def _jets(self, event: Any, engine: Any) -> dict[str, Array | Lists] | None:
        """Jets of an event that belong to this class."""
        identity = np.asarray(event.id)
        seen = self._seen(event, identity, engine)
        found = self._clustered(seen)
        if self.name == "QCD":
            chosen = found[:1]
        else:
            groups = list(_prongs(event, identity, PARENT_CODES[self.name[0]]))
            chosen = [jet for jet in found if any(_all_inside(group, jet) for group in groups)]
        chosen = [jet for jet in chosen if MIN_PT <= jet.pt() <= MAX_PT and abs(jet.eta()) < MAX_ETA]
        if not chosen:
            return None
        parts, masses = [], []
        for number, jet in enumerate(chosen):
            inside = jet.constituents()
            part = seen.take(np.array([one.user_index() for one in inside]))
            part.jet = np.full(len(part), number)
            parts.append(part)
            masses.append(self._soft_drop(inside))
        momenta = np.array([[jet.px(), jet.py(), jet.pz(), jet.e()] for jet in chosen]).T
        label = np.full(len(chosen), CLASSES.index(self.name))
        made = jet_columns(DetectedParticles.join(parts), momenta, np.zeros(len(chosen)), label)
        return made | {"jet_sdmass": np.array(masses, np.float32)}

    def _seen(self, event: Any, identity: Floats, engine: Any) -> DetectedParticles:
        """Measurement of a jet by the toy detector."""
        p = np.stack([np.asarray(event.p[name], np.float32) for name in ("px", "py", "pz")])
        pt = np.hypot(p[0], p[1])
        kind = np.abs(identity)
        good = (np.asarray(event.status) > 0) & (pt > MIN_NEUTRAL_PT) & ~np.isin(kind, (12, 14, 16))
        rows = np.flatnonzero(good)
        p, pt, kind, identity = p[:, rows], pt[rows], kind[rows], identity[rows]
        eta, phi = np.arcsinh(p[2] / pt), np.arctan2(p[1], p[0])
        for one in np.unique(identity):
            self.charges.setdefault(int(one), round(engine.particleData.charge(int(one))))
        charge = np.array([self.charges[int(one)] for one in identity], np.int8)
        vertex = np.zeros((3, len(rows)), np.float32)
        for axis, name in enumerate(("px", "py", "pz")):  # so a vector of the batch calls its places
            vertex[axis] = np.asarray(event.vProd[name][rows].to_numpy(allow_missing=True).filled(0))
        x, y, z = vertex
        d0 = np.where(charge != 0, (x * p[1] - y * p[0]) / pt, 0).astype(np.float32)
        dz = np.where(charge != 0, z - (x * p[0] + y * p[1]) / pt**2 * p[2], 0).astype(np.float32)
        types = np.where(charge != 0, TRACKS, HADRONS)
        for number, look in ((22, PHOTONS), (11, ELECTRONS), (13, MUONS)):
            types[kind == number] = look
        found = leaves_trace(pt, eta, charge != 0, self.chance) & (np.abs(eta) < MAX_CLUSTERED_ETA)
        seen = DetectedParticles(pt, eta, phi, types.astype(np.int8), charge, d0, dz, np.zeros(len(pt), np.int32))
        seen = smear_particles(seen.take(np.flatnonzero(found)), self.chance)
        return seen.take(np.flatnonzero(seen.pt > MIN_PARTICLE_PT))

    def _clustered(self, seen: DetectedParticles) -> list[Any]:
        """Anti-kT jets above the smallest pT, hardest first."""
        near = []
        for number, one in enumerate(four_vectors(seen).T.astype(float)):
            near.append(self.fastjet.PseudoJet(*one.tolist()))
            near[-1].set_user_index(number)
        definition = self.fastjet.JetDefinition(self.fastjet.antikt_algorithm, JET_RADIUS)
        self.sequence = self.fastjet.ClusterSequence(near, definition)  # kept while its jets are used
        return list(self.fastjet.sorted_by_pt(self.sequence.inclusive_jets(MIN_PT)))

    def _soft_drop(self, inside: Any) -> float:
        """Soft drop mass of a jet."""
        definition = self.fastjet.JetDefinition(self.fastjet.cambridge_algorithm, 10 * JET_RADIUS)
        sequence = self.fastjet.ClusterSequence(list(inside), definition)
        (jet,) = self.fastjet.sorted_by_pt(sequence.inclusive_jets(0.0))[:1]
        one, two = self.fastjet.PseudoJet(), self.fastjet.PseudoJet()
        while jet.has_parents(one, two):
            if min(one.pt(), two.pt()) > SOFT_DROP_CUT * (one.pt() + two.pt()):
                break
            jet = self.fastjet.PseudoJet(one if one.pt() > two.pt() else two)
            one, two = self.fastjet.PseudoJet(), self.fastjet.PseudoJet()
        return float(np.sqrt(max(jet.m2(), 0.0)))


def _prongs(event: Any, identity: Floats, parents: tuple[int, ...]) -> Iterator[list[tuple[float, float]]]:
    """(eta, phi) of quarks, gluons and charged leptons from each parent's decay."""
    first, last = np.asarray(event.daughter1), np.asarray(event.daughter2)
    hard = np.flatnonzero((np.asarray(event.status) == -22) & np.isin(np.abs(identity), parents))
    p = [np.asarray(event.p[name]) for name in ("px", "py", "pz")]

    def leaves(place: int) -> Iterator[int]:
        while True:  # to the last copy
            daughters = list(range(first[place], max(first[place], last[place]) + 1))
            same = [one for one in daughters if identity[one] == identity[place]]
            if not same:
                break
            place = same[0]
        for one in daughters:
            if abs(identity[one]) in RESONANCE_CODES:
                yield from leaves(one)
            elif abs(identity[one]) not in (12, 14, 16):
                yield one

    for place in hard.tolist():
        rows = list(leaves(place))
        x, y, z = (one[rows] for one in p)
        yield list(zip(np.arcsinh(z / np.hypot(x, y)).tolist(), np.arctan2(y, x).tolist()))


def _all_inside(group: list[tuple[float, float]], jet: Any) -> bool:
    """Whether all prongs are within the radius of the jet."""
    for eta, phi in group:
        turn = (phi - jet.phi() + np.pi) % TWO_PI - np.pi
        if np.hypot(eta - jet.eta(), turn) >= JET_RADIUS:
            return False
    return bool(group)
