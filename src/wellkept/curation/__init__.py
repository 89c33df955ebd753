"""Maintenance of skills over time: the curator, backups and consolidation."""
