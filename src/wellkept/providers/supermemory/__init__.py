"""Supermemory: documents, memories and a profile, in the cloud or on a server of your own."""

from wellkept.providers.supermemory.provider import SupermemoryProvider

__all__ = ["SupermemoryProvider"]
