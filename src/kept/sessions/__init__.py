"""Tier 2: every conversation, kept whole and found again by a plain question."""
