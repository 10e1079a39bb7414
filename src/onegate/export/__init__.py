"""Other forms of a unit, each a function of its graph."""
