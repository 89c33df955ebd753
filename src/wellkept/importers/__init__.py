"""Readers of what other programs wrote, and the files that connect other agents to kept."""
