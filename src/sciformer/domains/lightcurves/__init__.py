"""Light curves and signals: points of a series in time, at any times, in any bands."""

from ...recipe.field import Field

FIELD = Field(
    title="Light curves and signals",
    tokens={"observations": ".tokens:Observations"},
    data={"lightcurves": ".simulate.sections:LightCurves"},
    new={"lightcurves": ".new:LIGHTCURVES"},
    simulate={"lightcurves": ".simulate.commands:lightcurves"},
    importers=(".astromer:IMPORTER",),
)
