"""Files, locks and databases."""
