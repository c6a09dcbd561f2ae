"""Real and simulated events of the shared folder, skipped without it."""

import awkward
import numpy as np
import pytest

from sciformer.data.columns import rows_of
from sciformer.files.formats.base import Layout, open_file
from tests.data.readers.events.examples import part, section, whole
from tests.errors import refuses
from tests.paths import SHARED

JETS = SHARED / "jets"
NAMES = ["QCD", "Hbb", "Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl"]
CLASSES = {name: f"label_{name}" for name in NAMES}
pytestmark = pytest.mark.skipif(not JETS.is_dir(), reason="no shared data beside the repository")


def test_a_file_in_the_form_of_jetclass():
    data = section(
        JETS / "toyjets_jetclass_format.root",
        classes=CLASSES,
        observers=["jet_sdmass"],
        new={"part_pt": "hypot(part_px, part_py)"},
        select="500 < jet_pt < 1000 and abs(jet_eta) < 2",
    ).want(["part_px", "part_py", "part_pz", "part_energy", "part_pt"], ["label"], ["jet_pt", "jet_nparticles"])
    opened = data.open()
    assert {name: sum(source.sizes) for name, source in opened.sources.items()} == {
        "train": 2000,
        "valid": 250,
        "test": 250,
    }
    assert opened.notes == []
    found = whole(data.read([JETS / "toyjets_jetclass_format.root"]))
    assert dict(zip(*np.unique(found["label"], return_counts=True))) == dict.fromkeys(NAMES, 250)
    np.testing.assert_array_equal(found["part_px"].lengths, found["jet_nparticles"])
    lengths = found["part_px"].lengths
    px, py = (np.add.reduceat(found[name].values, lengths.cumsum() - lengths) for name in ("part_px", "part_py"))
    whole_jets = lengths < 128
    np.testing.assert_allclose(np.hypot(px, py)[whole_jets], found["jet_pt"][whole_jets], rtol=1e-3)


def test_the_same_jets_in_npz():
    columns = [str(name) for name in np.load(JETS / "toyjets_pythia8.npz")["jet_columns"]]
    data = section(
        JETS / "toyjets_pythia8.npz", axes={"jet": columns}, new={"part_pt": "exp(part_logpt_q / 3000)"}, label="label"
    )
    found = part(data.want(["part_pt", "part_deta_q"], ["label"], columns).open())
    assert set(np.unique(found["label"])) == set(range(10))
    assert rows_of(found) == 23786 - 2 * round(0.1 * 23786)
    root = whole(section().want(["part_px", "part_py"]).read([JETS / "toyjets_jetclass_format.root"]))
    assert found["part_pt"].values.mean() == pytest.approx(
        np.hypot(root["part_px"].values, root["part_py"].values).mean(), rel=0.05
    )


def test_real_jets_in_parquet():
    path = JETS / "real" / "JetClassII_example.parquet"
    found = whole(
        section(label="jet_label").want(["part_px", "part_isMuon"], ["label"], ["jet_nparticles"]).read([path])
    )
    assert rows_of(found) == 100
    np.testing.assert_array_equal(found["part_px"].lengths, found["jet_nparticles"])
    assert found["label"].dtype.kind == "i"
    assert found["part_isMuon"].values.dtype == bool


def test_events_of_cms():
    path = JETS / "real" / "pfnano.root"
    with refuses("Events, LuminosityBlocks, Runs, MetaData, ParameterSets", key="data.tree", file=path):
        section(path).open()
    data = section(
        path, tree="Events", select="nFatJet > 0", new={"lead": "first(FatJet_pt)"}, observers=["event", "lead"]
    )
    found = whole(data.want(["FatJet_pt", "FatJet_eta"]).read([path]))
    assert (found["lead"] > 100).all()
    np.testing.assert_array_equal(
        found["lead"], found["FatJet_pt"].values[found["FatJet_pt"].lengths.cumsum() - found["FatJet_pt"].lengths]
    )


def test_events_of_delphes():
    path = JETS / "real" / "events_delphes_example.root"
    data = section(path, new={"charged": "ParticleFlowCandidate.Charge != 0"})
    found = whole(data.want(["ParticleFlowCandidate.PT", "charged"]).read([path]))
    assert rows_of(found) == 10
    assert 0 < found["charged"].values.mean() < 1
    with refuses("`GenJet.Tau[5]`", "float[][5]", file=path):
        data.want(["GenJet.Tau[5]"]).read([path])


def test_events_of_atlas_agree_with_uproot():
    file = open_file(JETS / "real" / "PHYSLITE_example.root", Layout())
    names = [name for name in file.columns if name.startswith("AnalysisLargeRJetsAuxDyn.")]
    assert len(names) > 20
    found, tree = file.read(names, 11, 93), file.tree
    assert {type(tree[name].interpretation).__name__ for name in names} == {"AsJagged"}  # std::vector, with headers
    for name in names:
        array = tree[name].array(entry_start=11, entry_stop=93)
        np.testing.assert_array_equal(found[name].lengths, awkward.to_numpy(awkward.num(array)))
        np.testing.assert_array_equal(found[name].values, awkward.to_numpy(awkward.flatten(array)))
    name, kind = next(iter(file.others.items()))
    with refuses(f"`{name}`", kind, file=file.path):
        file.need(name, "a test")
    file.close()
