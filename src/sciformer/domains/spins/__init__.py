"""Spins on a lattice: images of one channel."""

from ...recipe.field import Field

FIELD = Field(
    title="Spins",
    uses=("images",),
    simulation={"lattices": ".simulation:IsingLattices"},
)
