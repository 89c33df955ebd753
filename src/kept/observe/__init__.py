"""Logs and figures about the running program."""
