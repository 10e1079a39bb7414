"""The laboratory: tasks, training, sweeps, reports, benchmarks and the command line."""
