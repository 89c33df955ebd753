"""Maintenance of skills over time (not of curated memory): the curator, backups and consolidation."""
