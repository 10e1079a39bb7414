"""The data flow of a unit, drawn."""

from onegate.extras import need

need("onegate.picture", "picture")
