"""Protection against hostile text, leaked secrets and unsafe paths."""
