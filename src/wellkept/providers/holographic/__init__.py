"""The holographic provider: facts in a local database, found by words, overlap and holographic vectors."""

from wellkept.providers.holographic.provider import HolographicProvider

__all__ = ["HolographicProvider"]
