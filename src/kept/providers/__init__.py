"""Tier 4: optional external memories, beside the built-in one and never in its way."""
