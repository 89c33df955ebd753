"""Readers of what other programs wrote, one module for each program."""
