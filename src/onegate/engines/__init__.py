"""Engines run a unit's graph over a sequence: `reference` anywhere, `fused` on CPUs."""
