"""Atmosphere: fields on a grid of time, level, latitude and longitude."""

from ...recipe.field import Field

FIELD = Field(
    title="Fields of the atmosphere",
    data={"fields": ".reader.reader:FieldFiles"},
)
