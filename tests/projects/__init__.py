"""Models of other projects, trained with and without one line of ours."""
