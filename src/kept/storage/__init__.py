"""Files, locks and databases: where bytes meet the disk."""
