"""Pure functions of a unit's graph: LaTeX, pictures, stages, the backward step."""
