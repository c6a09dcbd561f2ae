"""Spins on a lattice: images of one channel, with exact answers to compare with."""

from ...recipe.field import Field

FIELD = Field(
    title="Spins",
    uses=("images",),
    simulation={"lattices": ".simulation:IsingLattices"},
)
