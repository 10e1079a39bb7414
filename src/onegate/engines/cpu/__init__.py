"""The fused engine for CPUs."""
