"""ByteRover: a tree of Markdown that its program `brv` curates and searches on this machine."""

from wellkept.providers.byterover.provider import ByteRoverProvider

__all__ = ["ByteRoverProvider"]
