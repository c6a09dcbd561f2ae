"""Light curves and signals: time series with irregular times and several bands."""

from ...recipe.field import Field

FIELD = Field(
    title="Light curves and signals",
    tokens={"observations": ".tokens:Observations"},
    uses=("images",),
    simulation={
        "lightcurves": ".simulate.lightcurves:LightCurves",
        "transients": ".simulate.transients:Transients",
    },
    new={"lightcurves": ".new:LIGHTCURVES"},
    importers=(".astromer:IMPORTER",),
)
