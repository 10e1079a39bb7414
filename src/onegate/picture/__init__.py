"""The data flow of a unit, drawn."""
