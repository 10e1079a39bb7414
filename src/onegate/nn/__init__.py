"""Layers and cells of any unit, which stand where those of torch.nn stood."""
