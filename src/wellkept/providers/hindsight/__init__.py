"""Hindsight: facts, experiences and observations in banks; in the cloud, on a server, or started by kept."""

from wellkept.providers.hindsight.provider import HindsightProvider

__all__ = ["HindsightProvider"]
