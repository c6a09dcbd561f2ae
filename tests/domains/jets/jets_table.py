"""A small table of made-up jets with the columns of JetClass, and jets in files."""

import awkward
import numpy as np
import uproot

from sciformer.data.columns import Lists

TYPES = ("isChargedHadron", "isNeutralHadron", "isPhoton", "isElectron", "isMuon")
MASSES = np.array([0.13957, 0.0, 0.0, 0.000511, 0.10566])


def momenta(pt, eta, phi, mass):
    """px, py, pz and E (4, n)."""
    px, py, pz = pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)
    return np.stack([px, py, pz, np.sqrt(px**2 + py**2 + pz**2 + mass**2)])


def jets(lengths=(6, 1, 9, 3, 14), seed=0, sums=True):
    """Particles around axes of different direction, the second jet backwards; `sums`: with columns of the jet."""
    rng = np.random.default_rng(seed)
    lengths = np.asarray(lengths, np.int64)
    total, sample = int(lengths.sum()), np.repeat(np.arange(len(lengths)), lengths)
    axis = np.stack([rng.uniform(-2, 2, len(lengths)), rng.uniform(-3.1, 3.1, len(lengths))], -1)[sample]
    pt, kind = np.exp(rng.normal(2, 1, total)), rng.integers(0, 5, total)
    eta, phi = (axis + 0.2 * rng.normal(size=(total, 2))).T
    p, charged = momenta(pt, eta, phi, MASSES[kind]), np.isin(kind, (0, 3, 4))
    columns = dict(zip(("px", "py", "pz", "energy"), p)) | {"charge": charged * rng.choice([-1, 1], total)}
    columns |= {name: kind == i for i, name in enumerate(TYPES)}
    for name in ("d0", "dz"):
        columns |= {f"{name}val": charged * rng.normal(size=total), f"{name}err": charged * rng.uniform(0, 2, total)}
    table = {f"part_{name}": Lists(np.asarray(column, np.float32), lengths) for name, column in columns.items()}
    if sums:
        jet = np.zeros((len(lengths), 4))
        np.add.at(jet, sample, p.T)
        jpt, jphi = np.hypot(jet[:, 0], jet[:, 1]), np.arctan2(jet[:, 1], jet[:, 0])
        jeta = np.arcsinh(jet[:, 2] / np.maximum(jpt, 1e-9))
        table |= {"jet_pt": jpt, "jet_eta": jeta, "jet_phi": jphi, "jet_energy": jet[:, 3]}
        turn = (phi - jphi[sample] + np.pi) % (2 * np.pi) - np.pi
        table["part_deta"] = Lists((np.sign(jeta)[sample] * (eta - jeta[sample])).astype(np.float32), lengths)
        table["part_dphi"] = Lists(turn.astype(np.float32), lengths)
    return table


def ragged(column):
    return awkward.unflatten(column.values, column.lengths) if isinstance(column, Lists) else column


def write_root(path, table, trees=("tree",)):
    made = {name: ragged(column) for name, column in table.items()}
    kinds = {name: getattr(column, "type", None) or column.dtype for name, column in made.items()}
    with uproot.recreate(path) as file:
        for tree in trees:
            file.mktree(tree, kinds).extend(made)
