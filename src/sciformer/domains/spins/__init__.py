"""Spins on a lattice: images of one channel, and states of quantum spins."""

from ...recipe.field import Field

FIELD = Field(
    title="Spins",
    uses=("images",),
    data={"states": ".quantum.states:States"},
    objective={"energy": ".quantum.energy:Energy"},
    simulation={"lattices": ".simulation:IsingLattices", "quantum": ".quantum.states:GroundStates"},
)
