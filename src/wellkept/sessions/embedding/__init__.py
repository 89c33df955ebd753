"""Embedding models on this machine, and the calls to any embedding model."""
