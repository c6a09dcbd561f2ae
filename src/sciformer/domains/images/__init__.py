"""Images: patches of pictures, maps and lattices."""

from ...recipe.field import Field

FIELD = Field(
    title="Images",
    tokens={"picture_codes": ".codes.tokens:Codes", "patches": ".tokens:Patches"},
    data={"images": ".reader.reader:ImageFiles"},
    simulation={
        "cues": ".simulate.cues:Cues",
        "galaxies": ".simulate.galaxies:Galaxies",
        "lenses": ".simulate.lenses:Lenses",
        "scenes": ".simulate.scenes:Scenes",
    },
    new={"images": ".new:IMAGES", "patches": ".new:PATCHES", "arrays": ".new:PATCHES"},
    importers=(".interop.importing:IMPORTER",),
    exporters=(".interop.export:EXPORTER",),
    estimators=(".estimator:choose",),
    report=(".cues:cue_section",),
)
