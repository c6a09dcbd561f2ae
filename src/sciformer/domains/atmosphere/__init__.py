"""Atmosphere: fields on a grid of time, level, latitude and longitude."""

from ...recipe.field import Field

FIELD = Field(
    title="Fields of the atmosphere",
    tokens={"cubes": ".tokens:Cubes"},
    data={"fields": ".reader.reader:FieldFiles"},
    new={"atmosphere": ".new:ATMOSPHERE"},
    simulation={"flows": ".simulate.flows:Flows"},
)
