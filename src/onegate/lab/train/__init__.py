"""Training: models, optimisers, the loop, run folders' checkpoints."""
