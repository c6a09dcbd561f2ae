"""Pythia jets of the benchmarks as files for `data.kind: events`, with a fixed split."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MASSES = np.array([0.13957, 0.0, 0.0, 0.000511, 0.10566])  # charged hadron, neutral hadron, photon, electron, muon
TYPES = ("isChargedHadron", "isNeutralHadron", "isPhoton", "isElectron", "isMuon")
CLASSES = ("QCD", "Hbb", "Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl")
SHARES = {"train": 0.7, "valid": 0.1, "test": 0.2}
HALVES = {"train": 0.4, "valid": 0.1, "test": 0.5}  # where few jets are left above a cut
SEED = 20260101


def decoded(path: Path) -> tuple[dict[str, Array], dict[str, Array], Array]:
    """Columns of particles, columns of jets, and particles per jet, in JetClass names."""
    raw = np.load(path)
    count = raw["n"].astype(np.int64)
    names = [str(name) for name in raw["jet_columns"]]
    jet = {name: raw["jet"][:, place].astype(np.float64) for place, name in enumerate(names)}
    of = np.repeat(np.arange(len(count)), count)
    pt, deta, dphi = np.exp(raw["part_logpt_q"] / 3000.0), raw["part_deta_q"] / 1e4, raw["part_dphi_q"] / 1e4
    eta, phi = jet["jet_eta"][of] + np.sign(jet["jet_eta"])[of] * deta, jet["jet_phi"][of] + dphi
    kind, charge = raw["part_type"].astype(np.int64), raw["part_charge"].astype(np.float64)
    pz = pt * np.sinh(eta)
    tracked = charge != 0
    part = {"px": pt * np.cos(phi), "py": pt * np.sin(phi), "pz": pz}
    part["energy"] = np.sqrt(pt**2 + pz**2 + MASSES[kind] ** 2)
    part |= {"deta": deta, "dphi": dphi, "charge": charge}
    for name, first, growth in (("d0", 0.010, 0.080), ("dz", 0.020, 0.120)):
        part[f"{name}val"] = np.where(tracked, 0.01 * np.sinh(raw[f"part_{name}_q"] / 1000.0), 0)
        part[f"{name}err"] = np.where(tracked, np.hypot(first, growth / pt), 0)
    part |= {name: (kind == place).astype(np.float64) for place, name in enumerate(TYPES)}
    classes = np.array([str(name) for name in raw["classes"]])
    jet_columns: dict[str, Array] = {name: column.astype(np.float32) for name, column in jet.items()}
    return (
        {f"part_{name}": column.astype(np.float32) for name, column in part.items()},
        jet_columns | {"label": classes[raw["label"]]},
        count,
    )


def parts_of(labels: Array, shares: dict[str, float]) -> dict[str, Array]:
    """Rows of train, valid and test: a fixed split, stratified by class."""
    rng = np.random.default_rng(SEED)
    found: dict[str, list[Array]] = {name: [] for name in shares}
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        stops = np.round(np.cumsum(list(shares.values())) * len(rows)).astype(int)
        for name, low, high in zip(shares, [0, *stops], stops):
            found[name].append(rows[low:high])
    return {name: rng.permutation(np.concatenate(rows)) for name, rows in found.items()}


def prepare(source: Path, out: Path) -> None:
    """Write train, valid, test, smaller training parts, and tops against QCD as Parquet, once."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    if (out / "done").exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    part, jet, count = decoded(source)
    starts = count.cumsum() - count

    def write(name: str, rows: Array) -> None:
        lengths = count[rows]
        index = np.repeat(starts[rows] - (lengths.cumsum() - lengths), lengths) + np.arange(int(lengths.sum()))
        offsets = pa.array(np.concatenate([[0], lengths.cumsum()]).astype(np.int32))
        columns = {key: pa.ListArray.from_arrays(offsets, pa.array(column[index])) for key, column in part.items()}
        columns |= {key: pa.array(column[rows]) for key, column in jet.items() if key != "label"}
        columns |= {f"label_{one}": pa.array((jet["label"][rows] == one).astype(np.int8)) for one in CLASSES}
        pq.write_table(pa.table(columns), out / f"{name}.parquet")

    split = parts_of(jet["label"], SHARES)
    for name, rows in split.items():
        write(name, rows)
    for size in (100, 1000):
        few = [split["train"][jet["label"][split["train"]] == label][: size // 10] for label in np.unique(jet["label"])]
        write(f"train-{size}", np.concatenate(few))
    two = np.flatnonzero(np.isin(jet["label"], ["Tbqq", "QCD"]))
    for name, rows in parts_of(jet["label"][two], HALVES).items():
        write(f"tops-{name}", two[rows])
    (out / "done").write_text("")


def columns_of(file: Path) -> dict[str, Any]:
    """Columns of a file written by `prepare`."""
    import pyarrow.parquet as pq

    from sciformer.data.columns import Lists

    table, found = pq.read_table(file), dict[str, Any]()
    for name in table.column_names:
        column = table[name].combine_chunks()
        if name.startswith("part_"):
            found[name] = Lists(np.asarray(column.flatten()), np.diff(np.asarray(column.offsets)))
        else:
            found[name] = np.asarray(column)
    return found


def simulate(section: Any, jobs: int) -> None:
    """Simulate all jets of a section in parallel into its folder, once."""
    done = Path(section.cache) / "-".join([section.cache_prefix(), *map(str, section.counts().values()), "done"])
    if done.exists():
        return
    pieces = [(source, piece) for source in section.open().sources.values() for piece in range(len(source.sizes))]
    if jobs:
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:
            pool.starmap(_make, pieces)
    else:
        for source, piece in pieces:
            _make(source, piece)
    done.write_text("")


def _make(source: Any, piece: int) -> None:
    source.load(piece)
