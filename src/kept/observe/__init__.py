"""Logs of the running program."""
