"""From a graph to the program that engines run."""
