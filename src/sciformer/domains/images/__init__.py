"""Images: patches of pictures, maps and lattices."""

from ...recipe.field import Field

FIELD = Field(
    title="Images",
    tokens={"patches": ".tokens:Patches"},
    data={
        "cues": ".simulate.sections:Cues",
        "galaxies": ".simulate.sections:Galaxies",
        "images": ".reader.reader:ImageFiles",
        "lenses": ".simulate.sections:Lenses",
    },
    new={"images": ".new:IMAGES", "patches": ".new:PATCHES", "arrays": ".new:PATCHES"},
    simulate={
        "cues": ".simulate.commands:cues",
        "galaxies": ".simulate.commands:galaxies",
        "lenses": ".simulate.commands:lenses",
    },
    importers=(".interop.importing:IMPORTER",),
    exporters=(".interop.export:EXPORTER",),
    report=(".cues:cue_section",),
)
