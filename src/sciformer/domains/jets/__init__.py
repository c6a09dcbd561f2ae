"""Jets: sprays of particles from a quark, a gluon or a heavy particle."""

from ...recipe.field import Field

FIELD = Field(
    title="Jets of particles",
    tokens={"particles": ".tokens:Particles"},
    simulation={"jets": ".simulate.jets:Jets"},
    objective={"discriminate": ".discriminate:Discriminate"},
    trunk={"lorentz_net": ".lorentz_net:LorentzNetOptions"},
    new={"jets": ".new:JETS"},
    importers=(".interop.weaver:IMPORTER",),
    data_files=(".interop.data_config:import_data",),
    renamed={"model.trunk": {"lorentz": "lorentz_net"}},
)
