"""Tier 2: every conversation, stored in full and searchable with plain questions."""
