"""Tier 3: procedures as SKILL.md folders that are learned, used, measured and curated."""
