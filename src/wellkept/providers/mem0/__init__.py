"""Mem0: memories that the other side extracts; platform, self-hosted server, or embedded."""

from wellkept.providers.mem0.provider import Mem0Provider

__all__ = ["Mem0Provider"]
