"""Tier 4: optional external memories, in addition to built-in memory; their failures never affect it."""
