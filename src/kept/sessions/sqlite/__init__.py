"""Sessions in SQLite."""
