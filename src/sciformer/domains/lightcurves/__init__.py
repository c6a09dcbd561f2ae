"""Light curves and signals: time series at any times, in any bands."""

from ...recipe.field import Field

FIELD = Field(
    title="Light curves and signals",
    tokens={"observations": ".tokens:Observations"},
    simulation={"lightcurves": ".simulate.lightcurves:LightCurves"},
    new={"lightcurves": ".new:LIGHTCURVES"},
    importers=(".astromer:IMPORTER",),
)
